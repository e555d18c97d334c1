// The demo end to end: real programs, real kubectl. Needs root, as the demo does.
#include <gtest/gtest.h>

#include "base/text.h"
#include "base/yaml.h"
#include "kept_demo.h"
#include "kube/object.h"
#include "operator/apply.h"

namespace gpuop {
namespace {

TEST(demo, demo_brings_every_gpu_node_up_and_leaves_nothing_behind) {
  TempDir scratch;
  Command command{{kGpuctl, "demo"}, environment()};
  command.env.back() = "TMPDIR=" + scratch.path().string();
  const auto result = run_command(command, 4min);
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->code, 0) << result->out << result->err;
  for (const char* part :
       {"a100: READY", "h200: READY", "l4: READY", "Pod one-gpu (asks for one whole GPU): Succeeded on node",
        "Pod shared-gpu (asks for a share of a GPU): Succeeded on node l4", "Test PASSED",
        "Pod too-many-gpus (asks for 9 GPUs on one node): Pending: 0/4 nodes are available",
        "Insufficient nvidia.com/gpu", "ClusterPolicy cluster-policy: ready"}) {
    EXPECT_TRUE(contains(result->out, part)) << "missing: " << part << "\n" << result->out << result->err;
  }
  EXPECT_TRUE(list_dir(scratch.path())->empty());
  // Nothing that was started is left: its programs name the folder on their command line.
  const auto entries = list_dir("/proc");
  ASSERT_TRUE(entries);
  for (const auto& entry : *entries) {
    if (!parse_int(entry)) continue;
    const auto words = read_file("/proc/" + entry + "/cmdline");
    EXPECT_FALSE(words && contains(*words, scratch.path().string())) << *words;
  }
  EXPECT_FALSE(contains(*read_file("/proc/self/mounts"), scratch.path().string()));
}

TEST(demo, kubectl_finds_what_a_user_expects) {
  KeptDemo demo;
  ASSERT_EQ(demo.demo.code, 0) << demo.demo.out << demo.demo.err;
  EXPECT_TRUE(contains(demo.demo.out, "KUBECONFIG=" + demo.kubeconfig()));

  const auto got = demo.kubectl({"get", "nodes,pods,clusterpolicy", "-A"});
  EXPECT_EQ(got.code, 0) << got.err;
  for (const char* part : {"node/a100", "pod/nvidia-device-plugin-daemonset-",
                           "clusterpolicy.nvidia.com/cluster-policy   ready"}) {
    EXPECT_TRUE(contains(got.out, part)) << got.out;
  }
  // Whoever looks for what is wrong looks for Warnings: of a start that goes well there are the two kinds
  // that docs/architecture.md explains.
  const auto events = parse_json(
      demo.kubectl({"-n", "gpu-operator", "get", "events", "--field-selector", "type=Warning", "-o", "json"})
          .out);
  ASSERT_TRUE(events) << events.error().text();
  for (const Json& event : get_array(*events, {"items"})) {
    const std::string message = str(get_string(event, {"message"}));
    EXPECT_TRUE(contains(message, "no runtime for \"nvidia\" is configured") ||
                contains(message, "Startup probe errored: call runtime"))
        << to_text(event);
  }
  const auto described = demo.kubectl({"describe", "node", "a100"});
  EXPECT_EQ(described.code, 0) << described.err;
  EXPECT_TRUE(contains(described.out, "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB")) << described.out;
  EXPECT_TRUE(contains(described.out, "Allocated resources"));
  const auto logs = demo.kubectl({"logs", "one-gpu"});
  EXPECT_TRUE(contains(logs.out, "Test PASSED")) << logs.out << logs.err;
  const auto rolled =
      demo.kubectl({"-n", "gpu-operator", "rollout", "status", "deployment/gpu-operator", "--timeout=20s"});
  EXPECT_EQ(rolled.code, 0) << rolled.out << rolled.err;
  const auto status = run({kGpuctl, "status", "--kubeconfig", demo.kubeconfig()}, 30s);
  EXPECT_EQ(status.code, 0) << status.out << status.err;
  EXPECT_TRUE(contains(status.out, "8 × NVIDIA-H200")) << status.out;

  // An edited policy: GPU feature discovery goes away.
  const auto stored = parse_json(demo.kubectl({"get", "clusterpolicy", "cluster-policy", "-o", "json"}).out);
  ASSERT_TRUE(stored) << stored.error().text();
  const Json& live = *stored;
  Json edited = JsonObject{{"apiVersion", "nvidia.com/v1"},
                           {"kind", "ClusterPolicy"},
                           {"metadata", JsonObject{{"name", "cluster-policy"}}},
                           {"spec", *find(live, {"spec"})}};
  set(edited, {"spec", "gfd", "enabled"}, false);
  const auto applied = demo.kubectl({"apply", "-f", "-"}, to_yaml(edited));
  EXPECT_EQ(applied.code, 0) << applied.err;
  EXPECT_TRUE(contains(applied.out, "clusterpolicy.nvidia.com/cluster-policy configured")) << applied.out;
  EXPECT_EQ(demo.kubectl({"-n", "gpu-operator", "wait", "--for=delete", "daemonset/gpu-feature-discovery",
                          "--timeout=20s"})
                .code,
            0);

  // Without its policy the stack goes.
  EXPECT_EQ(demo.kubectl({"delete", "clusterpolicy", "cluster-policy"}).code, 0);
  EXPECT_EQ(demo.kubectl({"-n", "gpu-operator", "wait", "--for=delete",
                          "daemonset/nvidia-device-plugin-daemonset", "--timeout=20s"})
                .code,
            0);
  EXPECT_EQ(demo.kubectl({"-n", "gpu-operator", "wait", "--for=delete", "pod", "-l",
                          "app=nvidia-operator-validator", "--timeout=40s"},
                         "", 60s)
                .code,
            0);
}

TEST(demo, policies_of_the_upstream_chart_are_created_as_they_are) {
  KeptDemo demo({"--fleet", SOURCE_ROOT "/tests/e2e/bare.yaml", "--timeout", "1s"});
  ASSERT_TRUE(file_exists(demo.kubeconfig())) << demo.demo.err;
  ASSERT_EQ(demo.kubectl({"delete", "clusterpolicy", "--all"}).code, 0);
  int seen = 0;
  const auto names = list_dir(SOURCE_ROOT "/tests/policy/data");
  ASSERT_TRUE(names);
  for (const auto& name : *names) {
    if (!name.ends_with(".yaml")) continue;
    const std::string text = *read_file(fs::path(SOURCE_ROOT "/tests/policy/data") / name);
    const auto documents = parse_yaml(text, name);
    ASSERT_TRUE(documents) << documents.error().text();
    for (const auto& document : *documents) {
      if (get_string(document.value, {"kind"}) != "ClusterPolicy") continue;
      const auto created = demo.kubectl({"create", "-f", "-"}, to_yaml(document.value));
      EXPECT_EQ(created.code, 0) << name << ": " << created.err;
      const std::string policy(kube::name_of(document.value));
      const auto live = parse_json(demo.kubectl({"get", "clusterpolicy", policy, "-o", "json"}).out);
      ASSERT_TRUE(live) << name;
      EXPECT_TRUE(op::covers(*find(*live, {"spec"}), *find(document.value, {"spec"}))) << name;
      EXPECT_EQ(demo.kubectl({"delete", "clusterpolicy", policy}).code, 0);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 10);
}

TEST(demo, bad_input_is_one_clear_error_before_anything_starts) {
  TempDir dir;
  const auto demo = [&](const std::string& flag, const std::string& text) {
    EXPECT_TRUE(write_file_atomic(dir.path() / "f.yaml", text));
    return run({kGpuctl, "demo", flag, (dir.path() / "f.yaml").string()}, 20s);
  };
  auto result = demo("--fleet", "nodes:\n  - name: a\n    gpus: {modle: H200, count: 1}\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "line 3") && contains(result.err, "modle") &&
              contains(result.err, "'model'"))
      << result.err;
  result = demo("--policy",
                "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  operator: "
                "{}\n  daemonsets: {}\n"
                "  driver: {}\n  toolkit: {}\n  devicePlugin: {}\n  dcgmExporter: {}\n  dcgm: {}\n  "
                "nodeStatusExporter: {}\n  gfd: {}\n"
                "  mig: {strategy: mixd}\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "spec.mig.strategy") && contains(result.err, "'mixed'")) << result.err;
  result = run({kGpuctl, "demo", "--flet", "x"}, 20s);
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "--fleet")) << result.err;
  result = demo("--policy",
                "apiVersion: nvidia.com/v1beta1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec: {}\n");
  EXPECT_TRUE(contains(result.err, "apiVersion: must be nvidia.com/v1; got 'nvidia.com/v1beta1'"))
      << result.err;
  result = demo("--policy", "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec: {}\n");
  EXPECT_TRUE(contains(result.err, "metadata.name: is missing")) << result.err;
  for (const char* program : {"/bin/gpu-operator", "/bin/nvidia-ctk"}) {
    result = run({BUILD_ROOT + std::string(program), "--hlep"}, 20s);
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(contains(result.err, "did you mean '--help'?")) << result.err;
  }
  result = run({kGpuctl, "stauts"}, 20s);
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "'status'")) << result.err;
}

}  // namespace
}  // namespace gpuop
