// Startup and dedicated-node taints of GPU nodes (spec.fleet of the ClusterPolicy, an addition of ours).
#include <gtest/gtest.h>

#include "operator/taints.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kStartup = R"({"fleet":{"startupTaint":{"enabled":true}}})";

// "key=value:effect" of every taint, in order.
std::vector<std::string> taints(const Json& node) {
  std::vector<std::string> out;
  for (const auto& taint : get_array(node, {"spec", "taints"})) {
    const std::string value(get_string(taint, {"value"}));
    out.push_back(std::string(get_string(taint, {"key"})) + (value.empty() ? "" : "=" + value) + ":" +
                  std::string(get_string(taint, {"effect"})));
  }
  return out;
}
std::vector<std::string> taints(Cluster& cluster, const std::string& node) {
  return taints(cluster.get(kube::kNodes, "", node));
}
std::string annotations(Cluster& cluster, const std::string& node) {
  std::string out;
  const Json object = cluster.get(kube::kNodes, "", node);
  for (const auto& [key, value] : get_object(object, {"metadata", "annotations"})) {
    if (std::string_view(key).starts_with("nvidia.com/gpu-operator."))
      out += std::string(key) + "=" + std::string(as_text(value)) + " ";
  }
  return out;
}
using List = std::vector<std::string>;

TEST(operator_taints, off_by_default) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), List{});
  EXPECT_EQ(annotations(cluster, "n1"), "");
}

TEST(operator_taints, the_startup_taint_is_put_before_and_taken_when_validated) {
  Cluster cluster;
  cluster.policy("p", kStartup);
  cluster.node("cpu", R"("feature.node.kubernetes.io/kernel-version.full":"6.8.0")");
  const int before = cluster.writes;
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), List{"nvidia.com/gpu.not-ready:NoSchedule"});
  EXPECT_EQ(taints(cluster, "cpu"), List{});
  EXPECT_GT(cluster.writes, before);
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), List{});
  EXPECT_EQ(annotations(cluster, "n1"), "nvidia.com/gpu-operator.validated-boot=- ");
  // An operand that restarts brings nothing back, nor does another operator.
  cluster.pod("nvidia-operator-validator", "n1", R"({"conditions":[{"type":"Ready","status":"False"}]})");
  cluster.loop->run_for(1min);
  EXPECT_EQ(taints(cluster, "n1"), List{});
  cluster.controller.reset();
  cluster.start_operator();
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), List{});
}

TEST(operator_taints, another_boot_is_another_start) {
  Cluster cluster;
  cluster.policy("p", kStartup);
  cluster.node("n1", kGpu);
  const auto boot = [&](const std::string& id) {
    cluster.merge(kube::kNodes, "", "n1", R"({"status":{"nodeInfo":{"bootID":")" + id + R"("}}})", "status");
  };
  boot("a");
  cluster.settle();
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), List{});
  EXPECT_EQ(annotations(cluster, "n1"), "nvidia.com/gpu-operator.validated-boot=a ");
  cluster.pod("nvidia-operator-validator", "n1", R"({"conditions":[{"type":"Ready","status":"False"}]})");
  boot("b");
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), List{"nvidia.com/gpu.not-ready:NoSchedule"});
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), List{});
}

TEST(operator_taints, a_node_registered_with_the_startup_taint_loses_it) {
  Cluster cluster;
  cluster.policy("p", R"({"fleet":{"startupTaint":{"enabled":true,"key":"example.com/wait"}}})");
  cluster.node("n1", kGpu);
  cluster.merge(kube::kNodes, "", "n1",
                R"({"spec":{"taints":[{"key":"example.com/wait","value":"x","effect":"NoSchedule"},
                    {"key":"other","effect":"NoSchedule"}]}})");
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1").size(), 2u);
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), List{"other:NoSchedule"});
}

// With our key, another value: an administrator's, who took it for their own after ours had gone, or before.
TEST(operator_taints, only_what_the_operator_put_there_goes_when_the_key_changes) {
  const auto key = [](const std::string& name) {
    return R"({"spec":{"fleet":{"startupTaint":{"enabled":true,"key":")" + name + R"("}}}})";
  };
  const auto taint = [](Cluster& cluster, const std::string& list) {
    cluster.merge(kube::kNodes, "", "n1", R"({"spec":{"taints":[)" + list + "]}}");
    cluster.settle();
  };
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", kStartup);
  cluster.settle();
  ASSERT_EQ(taints(cluster, "n1"), List{"nvidia.com/gpu.not-ready:NoSchedule"});
  // Ours became theirs while the node came up.
  taint(cluster, R"({"key":"nvidia.com/gpu.not-ready","value":"mine","effect":"NoSchedule"},
                    {"key":"nvidia.com/gpu.not-ready","effect":"NoExecute"})");
  cluster.merge(kube::kClusterPolicies, "", "p", key("a/b"));
  cluster.settle();
  const List mine{"nvidia.com/gpu.not-ready=mine:NoSchedule", "nvidia.com/gpu.not-ready:NoExecute"};
  List both = mine;
  both.push_back("a/b:NoSchedule");
  EXPECT_EQ(taints(cluster, "n1"), both);
  cluster.merge(kube::kClusterPolicies, "", "p", key("c/d"));
  cluster.settle();
  both.back() = "c/d:NoSchedule";
  EXPECT_EQ(taints(cluster, "n1"), both) << "and ours goes";
  EXPECT_EQ(annotations(cluster, "n1"), "nvidia.com/gpu-operator.taints=c/d ");
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), mine);
  // On a node that is validated, theirs has nothing to do with its start.
  cluster.merge(kube::kClusterPolicies, "", "p", key("nvidia.com/gpu.not-ready"));
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), mine);
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"fleet":{"startupTaint":{"enabled":false}}}})");
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), mine);
}

TEST(operator_taints, two_taints_of_one_key_are_advised_whoever_wrote_the_keys) {
  const auto advice = [](const std::string& fleet) {
    Cluster cluster;
    cluster.node("n1", kGpu);
    cluster.policy("p", R"({"fleet":{)" + fleet + "}}");
    cluster.settle();
    return std::string(get_string(cluster.condition("p", "Advice"), {"message"}));
  };
  for (
      const char* clash :
      {R"("startupTaint":{"enabled":true,"key":"a/b"},"dedicatedTaint":{"enabled":true,"key":"a/b"})",
       R"("startupTaint":{"enabled":true,"key":"nvidia.com/gpu"},"dedicatedTaint":{"enabled":true})",
       R"("startupTaint":{"enabled":true},"dedicatedTaint":{"enabled":true,"key":"nvidia.com/gpu.not-ready"})"})
    EXPECT_TRUE(advice(clash).starts_with("spec.fleet.startupTaint.key: '")) << clash << advice(clash);
  EXPECT_EQ(advice(R"("startupTaint":{"enabled":true},"dedicatedTaint":{"enabled":true})"), "");
  EXPECT_EQ(advice(R"("startupTaint":{"enabled":true,"key":"nvidia.com/gpu"})"), "");
  // What to write instead is no key that clashes again.
  const std::string words = advice(
      R"("startupTaint":{"enabled":true},"dedicatedTaint":{"enabled":true,"key":"nvidia.com/gpu.not-ready"})");
  EXPECT_NE(words.find("Instead: keys that differ"), std::string::npos) << words;
}

TEST(operator_taints, the_dedicated_taint_stays_and_an_own_one_of_the_user_is_kept) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.node("n2", kGpu);
  cluster.merge(kube::kNodes, "", "n2",
                R"({"spec":{"taints":[{"key":"nvidia.com/gpu","value":"present","effect":"NoSchedule"}]}})");
  cluster.policy("p", R"({"fleet":{"dedicatedTaint":{"enabled":true}}})");
  cluster.settle();
  cluster.all_available();
  EXPECT_EQ(taints(cluster, "n1"), List{"nvidia.com/gpu:NoSchedule"});
  EXPECT_EQ(taints(cluster, "n2"), List{"nvidia.com/gpu=present:NoSchedule"});
  EXPECT_EQ(annotations(cluster, "n1"), "nvidia.com/gpu-operator.taints=nvidia.com/gpu ");
  EXPECT_EQ(annotations(cluster, "n2"), "");
  // Switched off, ours goes and the user's stays.
  cluster.merge(kube::kClusterPolicies, "", "p",
                R"({"spec":{"fleet":{"dedicatedTaint":{"enabled":false}}}})");
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), List{});
  EXPECT_EQ(taints(cluster, "n2"), List{"nvidia.com/gpu=present:NoSchedule"});
  EXPECT_EQ(annotations(cluster, "n1"), "");
}

TEST(operator_taints, both_go_with_the_policy_and_with_the_gpu) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.node("n2", kGpu);
  cluster.merge(kube::kNodes, "", "n1", R"({"spec":{"taints":[{"key":"mine","effect":"NoExecute"}]}})");
  cluster.policy("p", R"({"fleet":{"startupTaint":{"enabled":true},"dedicatedTaint":{"enabled":true}}})");
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1").size(), 3u);
  cluster.label("n2", R"("feature.node.kubernetes.io/pci-10de.present":null)");
  cluster.loop->run_for(70s);
  EXPECT_EQ(taints(cluster, "n2"), List{});
  cluster.remove(kube::kClusterPolicies, "", "p");
  cluster.settle();
  EXPECT_EQ(taints(cluster, "n1"), List{"mine:NoExecute"});
  EXPECT_EQ(annotations(cluster, "n1"), "");
}

TEST(operator_taints, every_operand_tolerates_them_whatever_the_policy_says) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p",
                 R"({"fleet":{"startupTaint":{"enabled":true,"key":"a/b"},"dedicatedTaint":{"enabled":true}},
                          "daemonsets":{"tolerations":[{"key":"x","operator":"Exists"}]}})");
  cluster.settle();
  const auto sets = cluster.names(kube::kDaemonSets, kNs);
  EXPECT_FALSE(sets.empty());
  for (const auto& name : sets) {
    const Json set = cluster.get(kube::kDaemonSets, kNs, name);
    for (const auto& taint : own_taints({"a/b", "nvidia.com/gpu"}))
      EXPECT_TRUE(kube::tolerates(taint, get_array(set, {"spec", "template", "spec", "tolerations"})))
          << name;
  }
}

TEST(operator_taints, another_s_taint_is_never_lost_to_an_old_view) {
  const Json node = *parse_json(
      R"({"metadata":{"name":"n","resourceVersion":"7"},"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}})");
  Json patch = JsonObject{};
  add_taints(patch, decide_taints(node, {"s", ""}, true, true, false), node);
  EXPECT_EQ(get_string(patch, {"metadata", "resourceVersion"}), "7") << "a list is replaced whole";
  EXPECT_EQ(get_array(patch, {"spec", "taints"}).size(), 2u);
}

TEST(operator_taints, keys_that_no_node_takes_are_refused) {
  Cluster cluster;
  const Json bad = *parse_json(
      R"({"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":"p"},"spec":{"operator":{},"daemonsets":{},
      "driver":{},"toolkit":{},"devicePlugin":{},"dcgm":{},"dcgmExporter":{},"nodeStatusExporter":{},"gfd":{},
      "fleet":{"startupTaint":{"enabled":true,"key":"a b"}}}})");
  const auto made = kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kClusterPolicies, "", bad, {}, done);
  });
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("spec.fleet.startupTaint.key"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace gpuop::op
