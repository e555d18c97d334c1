// Real helm and kubectl on simulated nodes, with our chart and our plain manifests: hooks run where pods run,
// and nothing of it is left at the end.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop {
namespace {

const std::string kGpuctl = BUILD_ROOT "/bin/gpuctl";
const std::string kFleet = SOURCE_ROOT "/tests/e2e/bare.yaml";

// A fleet with what the demo installs: the plain manifests.
class HelmOnFleet : public ::testing::Test {
 protected:
  void SetUp() override {
    kubectl_ = env_or("GPUOP_KUBECTL",
                      env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache") + "/gpu-operator/kubectl/kubectl");
    helm_ = fs::path(kubectl_).replace_filename("helm").string();
    if (!file_exists(helm_)) {
      if (env_or("CI") == "true") FAIL() << "helm is not there: tests/tools/fetch-kubectl";
      GTEST_SKIP() << "helm is not there: tests/tools/fetch-kubectl";
    }
  }
  void start(const std::string& fleet, const std::string& limit) {
    run({kGpuctl, "demo", "--fleet", fleet, "--timeout", limit, "--keep", "--state-dir", state()});
    ASSERT_TRUE(file_exists(kubeconfig()));
  }
  // As docs/install.md has it.
  void uninstall() {
    for (const char* command :
         {"delete clusterpolicies,nvidiadrivers --all --timeout=30s",
          "-n gpu-operator delete deployment gpu-operator --timeout=30s",
          "apply -k " SOURCE_ROOT "/deploy/uninstall",
          "-n gpu-operator wait --for=condition=complete job/gpu-operator-cleanup-nodes --timeout=60s",
          "delete -k " SOURCE_ROOT "/deploy --ignore-not-found --timeout=60s"}) {
      const ExitState done = kubectl(command);
      ASSERT_EQ(done.code, 0) << command << ": " << done.out;
    }
  }
  // Objects that somebody made, and labels, annotations, taints and conditions of nodes that are not a
  // kubelet's.
  std::string traces() const {
    std::string out =
        kubectl(
            "get configmaps,secrets,serviceaccounts,services,pods,leases,jobs,daemonsets,deployments,roles,"
            "rolebindings,controllerrevisions -n gpu-operator -o name")
            .out +
        kubectl("get runtimeclasses,crd -o name").out;
    for (const std::string& line :
         split(kubectl("get clusterroles,clusterrolebindings,nodes -o yaml").out, '\n')) {
      for (const char* word : {"nvidia", "nfd.", "gpu-operator", "feature.node", "GPUReady"}) {
        if (line.find(word) != std::string::npos) out += line + "\n";
      }
    }
    std::string rest;
    for (const std::string& line : split(out, '\n')) {
      // A namespace's own.
      if (line.empty() || line.ends_with("/kube-root-ca.crt") || line.ends_with("serviceaccount/default") ||
          line.starts_with("No resources found"))
        continue;
      rest += line + "\n";
    }
    return rest;
  }
  void TearDown() override { run({kGpuctl, "demo", "--stop", "--state-dir", state()}); }

  std::string state() const { return (dir_.path() / "fleet").string(); }
  std::string kubeconfig() const { return state() + "/kubeconfig"; }
  ExitState run(std::vector<std::string> argv) const {
    Command command{std::move(argv),
                    {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                     "HOME=" + dir_.path().string(), "TMPDIR=" + env_or("TMPDIR", "/tmp")}};
    command.merge_output = true;
    auto result = run_command(command, 2min);
    return result ? std::move(*result) : ExitState{.code = -1, .out = result.error().text()};
  }
  ExitState with(const std::string& program, std::string_view arguments) const {
    std::vector<std::string> argv{program, "--kubeconfig", kubeconfig()};
    for (std::string& word : split_fields(arguments)) argv.push_back(std::move(word));
    return run(std::move(argv));
  }
  ExitState kubectl(std::string_view arguments) const { return with(kubectl_, arguments); }
  ExitState helm(const std::string& arguments) const {
    return with(helm_, arguments + " -n gpu-operator --wait --timeout 90s");
  }

  TempDir dir_;
  std::string kubectl_, helm_;
};

TEST_F(HelmOnFleet, our_chart_is_installed_upgraded_rolled_back_and_uninstalled) {
  start(kFleet, "1s");
  uninstall();
  EXPECT_EQ(traces(), "");
  const std::string chart = SOURCE_ROOT "/deploy/chart";
  const ExitState installed = helm("install g " + chart + " --create-namespace");
  ASSERT_EQ(installed.code, 0) << installed.out;
  const auto plugin = [&] {
    return kubectl("get clusterpolicy cluster-policy -o jsonpath={.spec.devicePlugin.enabled}").out;
  };
  EXPECT_EQ(plugin(), "true");
  const ExitState upgraded =
      helm("upgrade g " + chart + " --set devicePlugin.enabled=false --set operator.cleanupCRD=true");
  ASSERT_EQ(upgraded.code, 0) << upgraded.out;
  EXPECT_EQ(plugin(), "false");
  const std::string events =
      kubectl("get events -n gpu-operator -o custom-columns=O:.involvedObject.name,R:.reason").out;
  EXPECT_NE(events.find("gpu-operator-upgrade-crd"), std::string::npos) << events;
  const ExitState back = helm("rollback g 1");
  ASSERT_EQ(back.code, 0) << back.out;
  EXPECT_EQ(plugin(), "true");
  ASSERT_EQ(helm("upgrade g " + chart + " --set operator.cleanupCRD=true").code, 0);
  const ExitState removed = helm("uninstall g");
  ASSERT_EQ(removed.code, 0) << removed.out;
  // The clean-up ran in a pod: the kinds are gone.
  EXPECT_EQ(kubectl("get crd clusterpolicies.nvidia.com --ignore-not-found -o name").out, "");
  const std::string left = traces();
  for (const std::string& line : split(left, '\n'))
    EXPECT_TRUE(line.empty() || line.find("computedomain") != std::string::npos) << line;  // the DRA driver's
}

// Of a node with GPUs, on which operands ran.
TEST_F(HelmOnFleet, plain_manifests_are_taken_away_without_a_trace) {
  const std::string fleet = (dir_.path() / "fleet.yaml").string();
  ASSERT_TRUE(write_file_atomic(fleet, R"(nodes:
  - {name: n, os: ubuntu22.04, kernel: 5.15.0-1058-generic, driver: preinstalled, driverVersion: 580.95.05,
     gpus: {model: L4, count: 1}}
)"));
  start(fleet, "60s");
  EXPECT_NE(traces().find("nvidia.com/gpu.product"), std::string::npos);
  EXPECT_NE(traces().find("lease.coordination.k8s.io/53822513.nvidia.com"), std::string::npos);
  kubectl("annotate node n example.com/mine=nothing-of-theirs");
  uninstall();
  // What the kubelet says of the devices that it knew is its own.
  std::string left;
  for (const std::string& line : split(traces(), '\n')) {
    if (!trim(line).starts_with("nvidia.com/gpu: ")) left += line;
  }
  EXPECT_EQ(left, "");
}

}  // namespace
}  // namespace gpuop
