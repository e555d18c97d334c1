// What we claim, on real Kubernetes: API server, scheduler, controllers, kubelet and containerd are the real
// ones; only the hardware is not. The tests are one story on one cluster and run in this order.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/files.h"
#include "base/text.h"
#include "cluster_fixture.h"
#include "kube/object.h"

namespace gpuop::real {
namespace {

constexpr const char* kImage = "ghcr.io/gpu-operator/gpu-operator:v0.1.0";
constexpr double kUpstreamSeconds = 21, kGoalSeconds = 5;

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

std::string gpu_pod(const std::string& name, const std::string& command) {
  return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
         "}\nspec:\n  restartPolicy: Never\n  containers:\n  - name: cuda\n    image: " + kImage +
         "\n    command: " + command + "\n    resources: {limits: {nvidia.com/gpu: 1}}\n";
}

ExitState helm(std::vector<std::string> args) {
  const fs::path beside = fs::path(env_or("GPUOP_KUBECTL", "/usr/bin/kubectl")).parent_path() / "helm";
  args.insert(args.begin(), {beside.string(), "--kubeconfig", kubeconfig()});
  return run(std::move(args), 200s);
}

std::string phase_of(const std::string& pod) {
  return std::string(get_string(get_json({"pod", pod}), {"status", "phase"}));
}

::testing::AssertionResult ends_well(const std::string& pod) {
  const auto waited =
      kubectl({"wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/" + pod, "--timeout=60s"});
  if (waited.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << waited.err << kubectl({"describe", "pod", pod}).out << kubectl({"logs", pod}).out;
}

// When the node got the label that everything starts from, and when all was validated.
struct Times {
  std::optional<Duration> labelled, validated;
};

Times follow(Loop& loop, Watch& watch, Duration limit) {
  Times times;
  const auto look = [&] {
    watch.nodes->for_each([&](const auto& node) {
      if (kube::label(*node, "feature.node.kubernetes.io/pci-10de.present") == "true" && !times.labelled)
        times.labelled = loop.elapsed();
    });
    if (watch.chain().ready() && !times.validated) times.validated = loop.elapsed();
    return times.labelled && times.validated;
  };
  loop.run_until(look, limit);
  return times;
}

TEST(real, node_goes_from_its_label_to_validated) {
  const auto applied = kubectl({"apply", "-k", SOURCE_ROOT "/deploy"});
  ASSERT_EQ(applied.code, 0) << applied.err;
  EXPECT_EQ(applied.err, "");  // no warning: the real server found nothing odd in our manifests
  const auto there = kubectl({"wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"});
  ASSERT_EQ(there.code, 0) << there.err;
  const auto policy = kubectl({"apply", "-k", SOURCE_ROOT "/deploy/samples"});
  ASSERT_EQ(policy.code, 0) << policy.err;
  Loop loop;
  Watch watch(loop);
  const Times times = follow(loop, watch, 120s);
  ASSERT_TRUE(times.validated && times.labelled)
      << fleet::render(watch.chain()) << kubectl({"get", "pods", "-A", "-o", "wide"}).out
      << kubectl({"get", "events", "-A", "--sort-by=.lastTimestamp"}).out;
  const double took = seconds(*times.validated - *times.labelled);
  std::printf("= node's label to validated: %.2f s (upstream on such a cluster: %.0f s; goal: %.0f s)\n",
              took, kUpstreamSeconds, kGoalSeconds);
  const Json node = get_json({"node", node_name()});
  EXPECT_EQ(get_string(node, {"status", "allocatable", "nvidia.com/gpu"}), "8");
  EXPECT_EQ(kube::label(node, "nvidia.com/gpu.product"), "NVIDIA-A100-SXM4-80GB");
}

TEST(real, pod_gets_its_gpu_through_cdi_and_adds_vectors) {
  ASSERT_EQ(kubectl({"apply", "-f", "-"}, gpu_pod("vector-add", "[vectorAdd]")).code, 0);
  EXPECT_TRUE(ends_well("vector-add"));
  const auto log = kubectl({"logs", "vector-add"});
  EXPECT_TRUE(contains(log.out, "Test PASSED")) << log.out << log.err;
  ASSERT_EQ(
      kubectl({"apply", "-f", "-"}, gpu_pod("devices", "[sh, -c, 'ls -d /dev/nvidia*; nvidia-smi -L']")).code,
      0);
  EXPECT_TRUE(ends_well("devices"));
  const std::string seen = kubectl({"logs", "devices"}).out;
  int gpus = 0;
  for (int i = 0; i < 8; ++i) gpus += contains(seen, "/dev/nvidia" + std::to_string(i) + "\n");
  EXPECT_EQ(gpus, 1) << seen;
  EXPECT_TRUE(contains(seen, "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-")) << seen;
  EXPECT_FALSE(contains(seen, "GPU 1:")) << seen;
  const auto removed = kubectl({"delete", "pod", "vector-add", "devices", "--timeout=30s"});
  EXPECT_EQ(removed.code, 0) << removed.err;
}

TEST(real, pod_without_a_gpu_sees_none) {
  const std::string pod =
      "apiVersion: v1\nkind: Pod\nmetadata: {name: plain}\nspec:\n  restartPolicy: Never\n  containers:\n  - "
      "name: main\n"
      "    image: " +
      std::string(kImage) + "\n    command: [sh, -c, 'ls -d /dev/nvidia* && exit 1 || echo none']\n";
  ASSERT_EQ(kubectl({"apply", "-f", "-"}, pod).code, 0);
  EXPECT_TRUE(ends_well("plain"));
  EXPECT_EQ(kubectl({"delete", "pod", "plain", "--timeout=30s"}).code, 0);
}

TEST(real, more_gpus_than_there_are_wait) {
  std::string pod = gpu_pod("too-many", "[vectorAdd]");
  pod.replace(pod.find("gpu: 1"), 6, "gpu: 9");
  ASSERT_EQ(kubectl({"apply", "-f", "-"}, pod).code, 0);
  EXPECT_EQ(kubectl({"wait", "--for=condition=PodScheduled=false", "pod/too-many", "--timeout=30s"}).code, 0);
  const auto described = kubectl({"describe", "pod", "too-many"});
  EXPECT_TRUE(contains(described.out, "Insufficient nvidia.com/gpu")) << described.out;
  EXPECT_EQ(phase_of("too-many"), "Pending");
  EXPECT_EQ(kubectl({"delete", "pod", "too-many", "--timeout=30s"}).code, 0);
}

TEST(real, kubectl_reads_logs_executes_and_forwards) {
  const std::string ns = kOperatorNamespace;
  const auto pods = kubectl({"-n", ns, "get", "pods"});
  EXPECT_EQ(pods.code, 0) << pods.err;
  for (const char* name :
       {"nvidia-device-plugin-daemonset-", "gpu-feature-discovery-", "nvidia-operator-validator-"})
    EXPECT_TRUE(contains(pods.out, name)) << pods.out;
  const auto ran =
      kubectl({"-n", ns, "exec", "daemonset/nvidia-device-plugin-daemonset", "--", "echo", "inside"});
  EXPECT_EQ(ran.out, "inside\n") << ran.err;
  const auto log = kubectl({"-n", ns, "logs", "deployment/gpu-operator", "--tail=5"});
  EXPECT_EQ(log.code, 0) << log.err;
  EXPECT_NE(log.out, "");
  EXPECT_EQ(
      kubectl({"-n", ns, "rollout", "status", "daemonset/nvidia-device-plugin-daemonset", "--timeout=30s"})
          .code,
      0);
  const auto table = kubectl({"get", "clusterpolicy"});
  EXPECT_TRUE(contains(table.out, "ready")) << table.out;
}

TEST(real, edited_policy_takes_an_operand_away_and_brings_it_back) {
  const std::vector<std::string> patch{"patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p"};
  auto off = patch;
  off.emplace_back(R"({"spec":{"gfd":{"enabled":false}}})");
  ASSERT_EQ(kubectl(off).code, 0);
  const std::string ns = kOperatorNamespace;
  const auto gone =
      kubectl({"-n", ns, "wait", "--for=delete", "daemonset/gpu-feature-discovery", "--timeout=30s"});
  EXPECT_EQ(gone.code, 0) << gone.err;
  auto on = patch;
  on.emplace_back(R"({"spec":{"gfd":{"enabled":true}}})");
  ASSERT_EQ(kubectl(on).code, 0);
  const auto back =
      kubectl({"-n", ns, "wait", "--for=create", "daemonset/gpu-feature-discovery", "--timeout=30s"});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(kubectl({"-n", ns, "rollout", "status", "daemonset/gpu-feature-discovery", "--timeout=60s"}).code,
            0);
  EXPECT_EQ(kubectl({"wait", "--for=jsonpath={.status.state}=ready", "clusterpolicy/cluster-policy",
                     "--timeout=60s"})
                .code,
            0);
}

TEST(real, deleted_policy_leaves_no_operand_and_no_gpu_label) {
  const auto deleted = kubectl({"delete", "clusterpolicy", "cluster-policy", "--timeout=60s"});
  EXPECT_EQ(deleted.code, 0) << deleted.err;
  const std::string ns = kOperatorNamespace;
  for (const char* name :
       {"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-operator-validator"}) {
    const auto gone =
        kubectl({"-n", ns, "wait", "--for=delete", std::string("daemonset/") + name, "--timeout=60s"});
    EXPECT_EQ(gone.code, 0) << gone.err;
  }
  const auto removed = kubectl({"delete", "-k", SOURCE_ROOT "/deploy", "--timeout=120s"}, "", 130s);
  EXPECT_EQ(removed.code, 0) << removed.err;
  const auto left = kubectl({"get", "pods", "-A"});
  EXPECT_TRUE(contains(left.err, "No resources found")) << left.out;
}

TEST(real, helm_installs_a_pod_uses_its_gpu_and_helm_uninstalls) {
  const std::string ns = kOperatorNamespace, chart = SOURCE_ROOT "/deploy/chart";
  const auto installed = helm({"install", "gpu-operator", chart, "-n", ns, "--create-namespace", "--wait",
                               "--timeout", "3m", "--set", "migManager.enabled=false"});
  ASSERT_EQ(installed.code, 0) << installed.out << installed.err << kubectl({"get", "pods", "-A"}).out;
  const auto ready = kubectl(
      {"wait", "--for=jsonpath={.status.state}=ready", "clusterpolicy/cluster-policy", "--timeout=120s"}, "",
      130s);
  EXPECT_EQ(ready.code, 0) << ready.err << kubectl({"get", "pods", "-A"}).out;
  ASSERT_EQ(kubectl({"apply", "-f", "-"}, gpu_pod("after-helm", "[vectorAdd]")).code, 0);
  EXPECT_TRUE(ends_well("after-helm"));
  EXPECT_EQ(kubectl({"delete", "pod", "after-helm", "--timeout=30s"}).code, 0);
  const auto removed = helm({"uninstall", "gpu-operator", "-n", ns, "--wait", "--timeout", "2m"});
  EXPECT_EQ(removed.code, 0) << removed.out << removed.err;
  EXPECT_EQ(kubectl({"delete", "namespace", ns, "--timeout=60s"}).code, 0);
}

}  // namespace
}  // namespace gpuop::real
