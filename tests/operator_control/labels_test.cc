// Node labels as they change while the operator runs (operator.md §4): workload modes, values of others, MIG.
#include "operator/node_labels.h"

#include "base/text.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

const std::string kDeploy = "nvidia.com/gpu.deploy.";
constexpr const char* kContainer =
    "client container-toolkit dcgm dcgm-exporter device-plugin driver gpu-feature-discovery "
    "node-status-exporter "
    "operator-validator";
constexpr const char* kPassthrough =
    "cc-manager client kata-manager sandbox-device-plugin sandbox-validator vfio-manager";
constexpr const char* kVgpu =
    "cc-manager client sandbox-device-plugin sandbox-validator vgpu-device-manager vgpu-manager";

std::string words(const std::set<std::string>& all) {
  return join(std::vector<std::string>(all.begin(), all.end()), " ");
}

struct Labels : Cluster {
  explicit Labels(const std::string& spec = "") { policy("p", spec); }
  // The operands that are wanted on a node.
  std::string deployed(const std::string& name) {
    std::set<std::string> out;
    for (const auto& [key, value] : labels(name))
      if (key.starts_with(kDeploy) && value == "true") out.insert(key.substr(kDeploy.size()));
    return words(out);
  }
  void spec(const std::string& patch) {
    merge(kube::kClusterPolicies, "", "p", R"({"spec":)" + patch + "}");
    settle();
  }
  void workload(const std::string& mode) {
    label("n1", R"("nvidia.com/gpu.workload.config":)" + mode);
    settle();
  }
  std::string warnings() {
    std::string out;
    for (const auto& name : names(kube::kEvents, "default")) {
      const Json event = get(kube::kEvents, "default", name);
      if (get_string(event, {"reason"}) == "GPUOperatorNodeLabels")
        out += str(get_string(event, {"type"})) + " " + str(get_string(event, {"message"})) + "\n";
    }
    return out;
  }
};

TEST(operator_labels, a_node_goes_from_mode_to_mode_while_the_operator_runs) {
  Labels cluster(R"({"sandboxWorkloads":{"enabled":true}})");
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(cluster.deployed("n1"), kContainer);
  cluster.workload(R"("vm-passthrough")");
  EXPECT_EQ(cluster.deployed("n1"), kPassthrough);
  cluster.workload(R"("vm-vgpu")");
  EXPECT_EQ(cluster.deployed("n1"), kVgpu);
  cluster.workload(R"("container")");
  EXPECT_EQ(cluster.deployed("n1"), kContainer);
  cluster.workload(R"("vm-passthrough")");
  cluster.spec(R"({"sandboxWorkloads":{"mode":"kata"}})");
  EXPECT_EQ(cluster.deployed("n1"),
            "cc-manager client kata-manager kata-sandbox-device-plugin sandbox-validator vfio-manager");
  // Without virtual machines the label says nothing.
  cluster.spec(R"({"sandboxWorkloads":{"enabled":false}})");
  EXPECT_EQ(cluster.deployed("n1"), kContainer);
}

// Upstream keeps the first default that it has seen.
TEST(operator_labels, the_default_mode_is_the_policys_of_now) {
  Labels cluster(R"({"sandboxWorkloads":{"enabled":true,"defaultWorkload":"vm-vgpu"}})");
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(cluster.deployed("n1"), kVgpu);
  cluster.spec(R"({"sandboxWorkloads":{"defaultWorkload":"vm-passthrough"}})");
  EXPECT_EQ(cluster.deployed("n1"), kPassthrough);
  cluster.spec(R"({"sandboxWorkloads":{"defaultWorkload":null}})");
  EXPECT_EQ(cluster.deployed("n1"), kContainer);
}

TEST(operator_labels, values_of_others_outlive_whatever_happens) {
  Labels cluster;
  std::string labels(kGpu);
  const std::map<std::string, std::string> theirs = {
      {kDeploy + "driver", "pre-installed"},
      {kDeploy + "device-plugin", "paused-for-driver-upgrade"},
      {kDeploy + "gpu-feature-discovery", "paused-for-mig-change"},
      {kDeploy + "dcgm", "false"},
      {kDeploy + "dcgm-exporter", "paused-for-vgpu-change_paused-for-driver-upgrade"},
      {kDeploy + "something-of-mine", "x"}};
  for (const auto& [key, value] : theirs) labels += ",\"" + key + "\":\"" + value + "\"";
  cluster.node("n1", labels);
  const auto kept = [&](const char* when) {
    cluster.settle();
    const auto now = cluster.labels("n1");
    for (const auto& [key, value] : theirs) {
      const auto found = now.find(key);
      EXPECT_EQ(found == now.end() ? "gone" : found->second, value) << key << " " << when;
    }
    EXPECT_EQ(now.at(kDeploy + "operator-validator"), "true") << when;
  };
  kept("at first");
  cluster.label("n1", R"("nvidia.com/mig.capable":"true")");
  kept("with another label");
  cluster.spec(R"({"gfd":{"enabled":false}})");
  kept("with another policy");
  cluster.controller.reset();
  cluster.start_operator();
  kept("after a restart");
}

TEST(operator_labels, operands_that_are_switched_off_on_a_node_are_warned_of) {
  Labels cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(cluster.warnings(), "");
  cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":"false")");
  cluster.settle();
  EXPECT_NE(
      cluster.warnings().find("Warning label nvidia.com/gpu.deploy.operands=false takes every operand off "
                              "this node, the driver included"),
      std::string::npos)
      << cluster.warnings();
}

TEST(operator_labels, a_node_that_loses_its_gpu_loses_owner_and_upgrade_too) {
  Labels cluster;
  cluster.node("n1", std::string(kGpu) + R"(,"nvidia.com/gpu-operator.driver.owner":"d",
      "nvidia.com/gpu-driver-upgrade-state":"upgrade-done","nvidia.com/gpu.workload.config":"container")");
  cluster.settle();
  cluster.merge(kube::kNodes, "", "n1", R"({"metadata":{"annotations":{"mine":"1",
      "nvidia.com/gpu-driver-upgrade-enabled":"true","nvidia.com/gpu-driver-upgrade-requested":"true",
      "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load":"true",
      "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable":"true",
      "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time":"1",
      "nvidia.com/gpu-driver-upgrade-validation-start-time":"1"}}})");
  cluster.label("n1", R"("feature.node.kubernetes.io/pci-10de.present":null)");
  cluster.loop->run_for(59s);
  EXPECT_EQ(cluster.labels("n1")["nvidia.com/gpu-operator.driver.owner"], "d") << "within the grace";
  cluster.loop->run_for(10s);
  EXPECT_EQ(cluster.labels("n1"),
            (std::map<std::string, std::string>{{"nvidia.com/gpu.present", "false"},
                                                {"nvidia.com/gpu.workload.config", "container"}}));
  std::string left;
  const Json node = cluster.get(kube::kNodes, "", "n1");
  for (const auto& [key, value] : get_object(node, {"metadata", "annotations"}))
    if (std::string_view(key).starts_with("nvidia.com/gpu-driver-upgrade") || key == "mine") left += str(key);
  EXPECT_EQ(left, "mine");
}

TEST(operator_labels, drivers_that_upgrade_by_themselves_are_marked) {
  static constexpr const char* kAnnotation = "nvidia.com/gpu-driver-upgrade-enabled";
  Labels cluster(R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"580.105.08",
                     "upgradePolicy":{"autoUpgrade":true}}})");
  cluster.node("n1", kGpu);
  cluster.settle();
  const auto marked = [&] { return str(kube::annotation(cluster.get(kube::kNodes, "", "n1"), kAnnotation)); };
  EXPECT_EQ(marked(), "true");
  cluster.spec(R"({"sandboxWorkloads":{"enabled":true}})");
  EXPECT_EQ(marked(), "") << "virtual machines: unsupported";
  cluster.spec(R"({"sandboxWorkloads":{"enabled":false}})");
  EXPECT_EQ(marked(), "true");
  cluster.spec(R"({"driver":{"upgradePolicy":{"autoUpgrade":false}}})");
  EXPECT_EQ(marked(), "");
  cluster.spec(R"({"driver":{"enabled":false,"upgradePolicy":{"autoUpgrade":true}}})");
  EXPECT_EQ(marked(), "");
}

TEST(operator_labels, which_nodes_can_be_partitioned) {
  const auto capable = [](const std::string& labels) {
    return mig_capable(parse_json("{" + labels + "}")->as_object());
  };
  EXPECT_FALSE(capable(""));
  EXPECT_TRUE(capable(R"("nvidia.com/mig.capable":"true")"));
  EXPECT_FALSE(
      capable(R"("nvidia.com/mig.capable":"false","nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3")"));
  EXPECT_TRUE(capable(R"("nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3")"));
  EXPECT_TRUE(capable(R"("nvidia.com/gpu.product":"a100-SXM4-40GB")"));
  EXPECT_TRUE(capable(R"("nvidia.com/gpu.product":"NVIDIA-A30")"));
  EXPECT_FALSE(capable(R"("nvidia.com/gpu.product":"NVIDIA-L4")"));
  EXPECT_FALSE(capable(R"("nvidia.com/gpu.product":"NVIDIA-H200")")) << "more products by mig.capable alone";
  EXPECT_FALSE(capable(R"("nvidia.com/mig.capable":"true","nvidia.com/vgpu.host-driver-version":"570.1")"));
}

TEST(operator_labels, partitioning_is_off_where_nobody_says_otherwise) {
  const auto config = [](const std::string& labels, const std::string& spec) {
    Labels cluster(spec);
    cluster.node("n1", std::string(kGpu) + R"(,"nvidia.com/mig.capable":"true")" + labels);
    cluster.settle();
    return cluster.labels("n1")["nvidia.com/mig.config"];
  };
  EXPECT_EQ(config("", ""), "all-disabled");
  EXPECT_EQ(config(R"(,"nvidia.com/mig.config":"")", ""), "all-disabled");
  EXPECT_EQ(config(R"(,"nvidia.com/mig.config":"all-1g.10gb")", ""), "all-1g.10gb");
  EXPECT_EQ(config("", R"({"migManager":{"enabled":false}})"), "");
  EXPECT_EQ(config("", R"({"migManager":{"config":{"default":""}}})"), "");
  EXPECT_EQ(config("", R"({"sandboxWorkloads":{"enabled":true,"defaultWorkload":"vm-passthrough"}})"),
            "all-disabled");
}

}  // namespace
}  // namespace gpuop::op
