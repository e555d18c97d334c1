// What the operator says of nodes that are not ready: the condition GPUReady, events, the policy's condition,
// metrics; everywhere the same words, and nothing when there is nothing new.
#include <gtest/gtest.h>

#include "fleet/chain.h"
#include "operator/node_health.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kCrash =
    R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
        {"name":"c","image":"i","imageID":"","ready":false,"restartCount":4,"state":{"waiting":{"reason":"CrashLoopBackOff"}},
         "lastState":{"terminated":{"exitCode":1,"message":"no such driver"}}}]})";

std::string text(const Json& condition, std::string_view field) {
  return std::string(get_string(condition, {field}));
}

std::vector<std::string> events_of(Cluster& cluster, std::string_view name) {
  std::vector<std::string> out;
  const auto list = kube::await(
      *cluster.loop, [&](auto done) { return cluster.client->list(kube::kEvents, "default", {}, done); });
  for (const auto& event : get_array(*list, {"items"})) {
    if (get_string(event, {"involvedObject", "name"}) != name) continue;
    out.push_back(text(event, "type") + " " + text(event, "reason") + " " + text(event, "message"));
  }
  return out;
}

TEST(operator_health, a_fault_is_told_in_the_same_words_everywhere) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.pod("nvidia-driver-daemonset", "n1", kCrash);
  cluster.settle();
  const std::string words =
      "driver: pod nvidia-driver-daemonset-n1: container c: CrashLoopBackOff: no such driver; read its last "
      "log: "
      "kubectl -n gpu-operator logs nvidia-driver-daemonset-n1 -c c --previous";
  const Json condition = cluster.node_condition("n1", "GPUReady");
  EXPECT_EQ(text(condition, "status"), "False");
  EXPECT_EQ(text(condition, "reason"), "DriverFailed");
  EXPECT_EQ(text(condition, "message"), words);
  EXPECT_NE(text(cluster.condition("p", "Error"), "message").find("; node n1: " + words), std::string::npos)
      << to_text(cluster.condition("p", "Error"));
  EXPECT_EQ(events_of(cluster, "n1"), std::vector<std::string>{"Warning DriverFailed " + words});
  EXPECT_NE(cluster.metrics.text().find(
                R"(gpu_operator_gpu_node_not_ready{node="n1",reason="DriverFailed",stage="driver"} 1)"),
            std::string::npos)
      << cluster.metrics.text();
  // gpuctl status.
  const auto shared = [](Json object) { return std::make_shared<const Json>(std::move(object)); };
  const auto chain = fleet::cluster_chain(
      {shared(cluster.get(kube::kClusterPolicies, "", "p"))}, {shared(cluster.get(kube::kNodes, "", "n1"))},
      {shared(cluster.get(kube::kPods, kNs, "nvidia-driver-daemonset-n1"))});
  EXPECT_NE(fleet::render(chain).find("  " + words + "\n"), std::string::npos) << fleet::render(chain);

  cluster.pod("nvidia-driver-daemonset", "n1", Cluster::kRunning);
  cluster.all_available();
  cluster.loop->run_for(2s);
  EXPECT_EQ(text(cluster.node_condition("n1", "GPUReady"), "status"), "True");
  EXPECT_EQ(cluster.state("p"), "ready");
  EXPECT_EQ(events_of(cluster, "n1").size(), 2u);
  EXPECT_EQ(cluster.metrics.text().find("gpu_node_not_ready{"), std::string::npos);
}

TEST(operator_health, a_crash_loop_costs_few_writes_and_one_event) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.all_available();
  cluster.loop->run_for(10s);
  const int before = cluster.writes;
  // Two states a second for a minute, as of a container that ends at once.
  int own = 0;
  for (int i = 0; i < 60; ++i) {
    cluster.pod("nvidia-driver-daemonset", "n1", kCrash);
    cluster.settle();
    cluster.pod(
        "nvidia-driver-daemonset", "n1",
        R"({"conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"name":"c","image":"i",
                 "imageID":"","ready":false,"restartCount":4,"state":{"running":{}},"lastState":{"terminated":{"exitCode":1}}}]})");
    cluster.settle();
    own += 2;
  }
  EXPECT_LE(cluster.writes - before - own, 10);
  EXPECT_EQ(events_of(cluster, "n1").size(), 1u);
}

TEST(operator_health, a_node_that_gets_ready_at_once_is_written_once) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_TRUE(cluster.node_condition("n1", "GPUReady").is_null()) << "it is on its way";
  cluster.all_available();
  const Json condition = cluster.node_condition("n1", "GPUReady");
  EXPECT_EQ(text(condition, "status"), "True");
  EXPECT_TRUE(events_of(cluster, "n1").empty());
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes);
}

TEST(operator_health, a_node_that_does_not_get_on_is_told_so) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.loop->run_for(10s);
  const Json condition = cluster.node_condition("n1", "GPUReady");
  EXPECT_EQ(text(condition, "reason"), "DriverNotReady");
  EXPECT_EQ(
      text(condition, "message"),
      "driver: pod of nvidia-operator-validator is not there yet; see why its DaemonSet makes none: kubectl "
      "describe daemonset nvidia-operator-validator");
  EXPECT_TRUE(events_of(cluster, "n1").empty()) << "nothing failed";
}

TEST(operator_health, the_condition_goes_with_the_policy_and_with_the_gpu) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.node("n2", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  cluster.merge(kube::kNodes, "", "n1", R"({"status":{"conditions":[{"type":"Ready","status":"True"},
      {"type":"GPUReady","status":"True","reason":"Validated","message":"every operand that this node needs is ready"}]}})",
                "status");
  cluster.label("n2", R"("nvidia.com/gpu.deploy.operands":"false")");
  cluster.settle();
  EXPECT_TRUE(cluster.node_condition("n2", "GPUReady").is_null());
  EXPECT_FALSE(cluster.node_condition("n1", "GPUReady").is_null());
  // Also by an operator that was not there when the policy went.
  cluster.controller.reset();
  cluster.remove(kube::kClusterPolicies, "", "p");
  cluster.start_operator();
  cluster.settle();
  EXPECT_TRUE(cluster.node_condition("n1", "GPUReady").is_null());
  EXPECT_FALSE(cluster.node_condition("n1", "Ready").is_null()) << "the kubelet's stays";
}

TEST(operator_health, a_lost_node_is_not_ready) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  cluster.loop->run_for(2s);
  cluster.merge(kube::kNodes, "", "n1", R"({"status":{"conditions":[{"type":"Ready","status":"Unknown",
      "message":"Kubelet stopped posting node status."},{"type":"GPUReady","status":"True"}]}})",
                "status");
  cluster.settle();
  EXPECT_EQ(text(cluster.node_condition("n1", "GPUReady"), "reason"), "NodeFailed");
  // Its DaemonSet controller does not count it any more: every operand that is wanted runs.
  EXPECT_EQ(cluster.state("p"), "notReady");
  EXPECT_EQ(text(cluster.condition("p", "Error"), "reason"), "OperandNotReady");
  EXPECT_EQ(text(cluster.condition("p", "Error"), "message"),
            "ClusterPolicy is not ready; nodes not ready: [n1]; node n1: node: the node is not ready: "
            "Kubelet stopped "
            "posting node status.; look at the kubelet on the node; nothing of its GPUs is known meanwhile");
  cluster.merge(kube::kNodes, "", "n1", R"({"status":{"conditions":[{"type":"Ready","status":"True"},
      {"type":"GPUReady","status":"False","reason":"NodeFailed"}]}})",
                "status");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "ready");
}

TEST(operator_health, a_lost_node_without_wanted_operands_or_gpus_is_nobodys_concern) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.node("n2", std::string(kGpu) + R"(,"nvidia.com/gpu.deploy.operands":"false")");
  cluster.node("cpu", R"("kubernetes.io/os":"linux")");
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  for (const char* name : {"n2", "cpu"})
    cluster.merge(kube::kNodes, "", name,
                  R"({"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}})", "status");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "ready");
}

TEST(operator_health, nodes_for_virtual_machines_are_judged_by_their_own_operands) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"sandboxWorkloads":{"enabled":true,"defaultWorkload":"vm-passthrough"}})");
  cluster.loop->run_for(10s);
  EXPECT_EQ(text(cluster.node_condition("n1", "GPUReady"), "reason"), "NvidiaSandboxValidatorNotReady")
      << to_text(cluster.node_condition("n1", "GPUReady"));
  cluster.pod("nvidia-sandbox-validator", "n1", Cluster::kRunning);
  cluster.settle();
  EXPECT_EQ(text(cluster.node_condition("n1", "GPUReady"), "status"), "True");
}

}  // namespace
}  // namespace gpuop::op
