// Labels of nodes that choose what is not there: named on the node and on the policy, with the nearest right
// name.
#include "operator/node_choices.h"

#include <gtest/gtest.h>

#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kPlugin = R"({"devicePlugin":{"config":{"name":"plugin","default":"whole"}}})";

void config_map(Cluster& cluster, const std::string& name, const std::string& data) {
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(
        kube::kConfigMaps, kNs,
        *parse_json(R"({"metadata":{"name":")" + name + R"("},"data":{)" + data + "}}"), {}, std::move(done));
  }));
}

std::string advice(Cluster& cluster) {
  cluster.loop->run_for(15s);
  return std::string(get_string(cluster.condition("p", "Advice"), {"message"}));
}

std::vector<std::string> of_nodes(Cluster& cluster) {
  std::vector<std::string> out;
  for (std::string& event : cluster.events("Warning"))
    if (event.starts_with("Node ")) out.push_back(std::move(event));
  return out;
}

TEST(operator_choices, an_unknown_plugin_configuration_is_named_with_the_nearest_right_name) {
  Cluster cluster;
  config_map(cluster, "plugin", R"("whole":"a","time-slicing":"b")");
  for (const char* node : {"n1", "n2", "n3", "n4", "n5"})
    cluster.node(node, std::string(kGpu) + R"(,"nvidia.com/device-plugin.config":"time-slcing")");
  cluster.node("n6", std::string(kGpu) + R"(,"nvidia.com/device-plugin.config":"whole")");
  cluster.policy("p", kPlugin);
  const std::string wrong =
      "label nvidia.com/device-plugin.config=time-slcing: ConfigMap 'plugin' has no key 'time-slcing' (did "
      "you "
      "mean 'time-slicing'?); it has time-slicing, whole";
  EXPECT_EQ(advice(cluster), "node n1, n2, n3 and 2 more: " + wrong);
  const auto told = of_nodes(cluster);
  ASSERT_EQ(told.size(), 5u);
  EXPECT_EQ(told[0], "Node n1 GPUOperatorNodeLabels: " + wrong);
  // The key comes, and nothing is said any more.
  cluster.merge(kube::kConfigMaps, kNs, "plugin", R"({"data":{"time-slcing":"c"}})");
  EXPECT_EQ(advice(cluster), "");
  // And goes.
  cluster.merge(kube::kConfigMaps, kNs, "plugin", R"({"data":{"time-slcing":null}})");
  EXPECT_NE(advice(cluster), "");
  for (const char* node : {"n1", "n2", "n3", "n4", "n5"})
    cluster.label(node, R"("nvidia.com/device-plugin.config":"whole")");
  EXPECT_EQ(advice(cluster), "");
}

TEST(operator_choices, a_plugin_configuration_that_nobody_reads_is_named) {
  Cluster cluster;
  cluster.node("n1", std::string(kGpu) + R"(,"nvidia.com/device-plugin.config":"a")");
  cluster.policy("p");
  EXPECT_EQ(
      advice(cluster),
      "node n1: label nvidia.com/device-plugin.config=a: spec.devicePlugin.config.name of the ClusterPolicy "
      "names no ConfigMap, so there is no 'a'");
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"devicePlugin":{"enabled":false}}})");
  EXPECT_EQ(advice(cluster), "");
}

TEST(operator_choices, a_default_that_its_file_does_not_have_is_named) {
  Cluster cluster;
  config_map(cluster, "plugin", R"("hole":"a","time-slicing":"b")");
  cluster.node("n1", kGpu);
  cluster.policy("p", kPlugin);
  EXPECT_EQ(
      advice(cluster),
      "spec.devicePlugin.config.default: ConfigMap 'plugin' has no key 'whole' (did you mean 'hole'?); it "
      "has hole, time-slicing");
}

TEST(operator_choices, an_unknown_mig_configuration_is_named) {
  const std::string labels = std::string(kGpu) + R"(,"nvidia.com/mig.capable":"true")";
  Cluster cluster;
  cluster.node("n1", labels + R"(,"nvidia.com/mig.config":"all-1g.5g")");
  cluster.node("n2", labels + R"(,"nvidia.com/mig.config":"all-1g.5gb")");
  cluster.node("n3", labels);
  cluster.policy("p");
  const std::string words = advice(cluster);
  EXPECT_TRUE(
      words.starts_with("node n1: label nvidia.com/mig.config=all-1g.5g: ConfigMap "
                        "'default-mig-parted-config' has no entry of mig-configs 'all-1g.5g' (did you mean "
                        "'all-1g.5gb'?); it has all-"))
      << words;
  // What the node's own manager made counts as well.
  config_map(cluster, "n1-mig-config", R"("config.yaml":"version: v1\nmig-configs:\n  all-1g.5g: []\n")");
  EXPECT_EQ(advice(cluster), "");
  // A file of the user's is all that there is.
  config_map(cluster, "mine",
             R"("config.yaml":"version: v1\nmig-configs:\n  half: []\n  all-disabled: []\n")");
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"migManager":{"config":{"name":"mine"}}}})");
  const std::string now = advice(cluster);
  EXPECT_NE(now.find("node n1: label nvidia.com/mig.config=all-1g.5g: ConfigMap 'mine'"), std::string::npos)
      << now;
  EXPECT_NE(
      now.find(
          "node n2: label nvidia.com/mig.config=all-1g.5gb: ConfigMap 'mine' has no entry of mig-configs "
          "'all-1g.5gb'; it has all-disabled, half"),
      std::string::npos)
      << now;
}

TEST(operator_choices, values_that_no_operand_knows_are_named) {
  const auto wrong = [](const char* key, const char* value) { return wrong_choice({key, value}, {}); };
  EXPECT_EQ(wrong("nvidia.com/mps.capable", "ture"),
            "label nvidia.com/mps.capable=ture: must be one of true, false (did you mean 'true'?)");
  EXPECT_EQ(wrong("nvidia.com/gpu.deploy.dcgm", "yes"),
            "label nvidia.com/gpu.deploy.dcgm=yes: must be one of true, false; as it is, the operand is kept "
            "off the "
            "node");
  EXPECT_EQ(wrong("nvidia.com/gpu.deploy.operands", "fasle"),
            "label nvidia.com/gpu.deploy.operands=fasle: must be one of true, false (did you mean 'false'?)");
  EXPECT_EQ(wrong("nvidia.com/cc.mode", "of"),
            "label nvidia.com/cc.mode=of: must be one of on, off, devtools, ppcie (did you mean 'off'?)");
  for (const char* value :
       {"true", "false", "", "paused-for-driver-upgrade", "pre-installed", "x_paused-for-mig-change"})
    EXPECT_EQ(wrong("nvidia.com/gpu.deploy.driver", value), "") << value;
  EXPECT_EQ(wrong("nvidia.com/mig.config", "x"), "") << "nobody knows what there is";
  EXPECT_EQ(wrong("nvidia.com/gpu.product", "x"), "");
}

}  // namespace
}  // namespace gpuop::op
