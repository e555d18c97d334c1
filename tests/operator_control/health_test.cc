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
  const auto chain =
      fleet::cluster_chain({{shared(cluster.get(kube::kClusterPolicies, "", "p"))},
                            {shared(cluster.get(kube::kNodes, "", "n1"))},
                            {shared(cluster.get(kube::kPods, kNs, "nvidia-driver-daemonset-n1"))},
                            {},
                            {},
                            {}});
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
  EXPECT_EQ(text(condition, "message"),
            "driver: pod of nvidia-operator-validator is not there yet; see why its DaemonSet makes none: "
            "kubectl -n "
            "gpu-operator describe daemonset nvidia-operator-validator");
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

TEST(operator_health,
     the_step_that_a_validator_tells_of_is_in_the_condition_and_stays_with_another_operator) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.pod("nvidia-container-toolkit-daemonset", "n1", Cluster::kRunning);
  cluster.pod("nvidia-cuda-validator", "n1", R"({"phase":"Succeeded"})");
  cluster.pod("nvidia-operator-validator", "n1",
              R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
      {"name":"nvidia-operator-validator","image":"i","imageID":"","ready":false,"restartCount":0,
       "state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]})");
  // Only the annotation changes.
  cluster.merge(kube::kPods, kNs, "nvidia-operator-validator-n1",
                R"({"metadata":{"annotations":{"nvidia.com/gpu-validation":
      "{\"failing\":true,\"message\":\"nvidia-smi ended with code 9\",\"step\":\"driver\"}"}}})");
  cluster.settle();
  const auto told = [&] { return cluster.node_condition("n1", "GPUReady"); };
  EXPECT_EQ(text(told(), "reason"), "DriverFailed") << to_text(told());
  EXPECT_EQ(text(told(), "message").substr(0, 71),
            "driver: pod nvidia-operator-validator-n1: nvidia-smi ended with code 9;");
  cluster.controller.reset();
  cluster.start_operator();
  cluster.loop->run_for(1min);
  EXPECT_EQ(text(told(), "reason"), "DriverFailed") << to_text(told());
  cluster.merge(kube::kPods, kNs, "nvidia-operator-validator-n1",
                R"({"metadata":{"annotations":{"nvidia.com/gpu-validation":"{\"step\":\"plugin\"}"}}})");
  cluster.loop->run_for(1min);
  EXPECT_EQ(text(told(), "reason"), "PluginNotReady") << to_text(told());
}

TEST(operator_health, a_foreign_taint_is_named) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.merge(kube::kNodes, "", "n1",
                R"({"spec":{"taints":[{"key":"a","value":"b","effect":"NoSchedule"}]}})");
  cluster.loop->run_for(10s);
  const std::string message = text(cluster.node_condition("n1", "GPUReady"), "message");
  EXPECT_EQ(message.substr(0, message.find(" is not tolerated")), "driver: taint a=b:NoSchedule of the node");
  EXPECT_NE(message.find("kubectl taint node n1 a=b:NoSchedule-"), std::string::npos) << message;
  // The policy says it too, though its DaemonSets have all that they ask for.
  cluster.daemonsets_available();
  EXPECT_NE(text(cluster.condition("p", "Error"), "message").find("taint a=b:NoSchedule"), std::string::npos)
      << to_text(cluster.condition("p", "Error"));
  EXPECT_TRUE(events_of(cluster, "n1").empty()) << "it may be somebody's startup taint";
}

// The DaemonSet's controller leaves the node out, so that none of its pods is missing.
TEST(operator_health, a_policy_is_not_ready_while_a_taint_keeps_an_operand_off_a_node) {
  Cluster cluster;
  cluster.policy("p");
  for (const char* name : {"n1", "n2"}) cluster.node(name, kGpu);
  cluster.settle();
  cluster.all_available();
  cluster.loop->run_for(10s);
  ASSERT_EQ(cluster.state("p"), "ready");
  cluster.merge(kube::kNodes, "", "n1",
                R"({"spec":{"taints":[{"key":"team","value":"x","effect":"NoSchedule"}]}})");
  cluster.loop->run_for(10s);
  EXPECT_EQ(cluster.state("p"), "ready") << "what runs goes on running";
  cluster.remove(kube::kPods, kNs, "nvidia-operator-validator-n1");
  cluster.loop->run_for(40s);
  const std::string told = text(cluster.node_condition("n1", "GPUReady"), "message");
  EXPECT_NE(told.find("taint team=x:NoSchedule of the node is not tolerated by DaemonSets "
                      "nvidia-operator-validator"),
            std::string::npos)
      << told;
  EXPECT_EQ(cluster.state("p"), "notReady");
  EXPECT_NE(text(cluster.condition("p", "Error"), "message").find("node n1: " + told), std::string::npos)
      << to_text(cluster.condition("p", "Error"));
  cluster.merge(kube::kNodes, "", "n1", R"({"spec":{"taints":null}})");
  cluster.pod("nvidia-operator-validator", "n1", Cluster::kRunning);
  cluster.loop->run_for(10s);
  EXPECT_EQ(cluster.state("p"), "ready") << to_text(cluster.condition("p", "Error"));
}

// Its status does not change with it.
TEST(operator_health, a_pod_that_is_being_deleted_is_looked_at) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.create(kube::kPods, kNs,
                 R"({"metadata":{"name":"nvidia-device-plugin-daemonset-n1","finalizers":["a/b"],"labels":{
      "app":"nvidia-device-plugin-daemonset"}},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}})");
  cluster.all_available();
  cluster.loop->run_for(10s);
  ASSERT_EQ(text(cluster.node_condition("n1", "GPUReady"), "status"), "True");
  cluster.remove(kube::kPods, kNs, "nvidia-device-plugin-daemonset-n1");
  cluster.loop->run_for(10s);
  EXPECT_EQ(
      text(cluster.node_condition("n1", "GPUReady"), "message"),
      "plugin: the old pod nvidia-device-plugin-daemonset-n1 is ending, and another comes when it is gone");
}

TEST(operator_health, a_node_without_a_wanted_device_plugin_is_ready) {
  Cluster cluster;
  cluster.policy("p", R"({"devicePlugin":{"enabled":false},"fleet":{"startupTaint":{"enabled":true}}})");
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.validated("n1");
  cluster.devices("n1", R"("nvidia.com/gpu":"8")", R"("nvidia.com/gpu":"0")");
  cluster.daemonsets_available();
  cluster.loop->run_for(10s);
  EXPECT_EQ(text(cluster.node_condition("n1", "GPUReady"), "status"), "True")
      << to_text(cluster.node_condition("n1", "GPUReady"));
  EXPECT_EQ(cluster.state("p"), "ready");
  EXPECT_TRUE(get_array(cluster.get(kube::kNodes, "", "n1"), {"spec", "taints"}).empty());
}

TEST(operator_health, a_reboot_is_no_fault) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  cluster.loop->run_for(10s);
  for (const char* app : {"nvidia-container-toolkit-daemonset", "nvidia-operator-validator"})
    cluster.pod(app, "n1",
                R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
      {"name":"c","image":"i","imageID":"","ready":false,"restartCount":1,"state":{"running":{}},
       "lastState":{"terminated":{"exitCode":255,"reason":"Unknown"}}}]})");
  cluster.loop->run_for(1min);
  EXPECT_EQ(text(cluster.node_condition("n1", "GPUReady"), "reason").find("Failed"), std::string::npos)
      << to_text(cluster.node_condition("n1", "GPUReady"));
  EXPECT_TRUE(events_of(cluster, "n1").empty());
}

}  // namespace
}  // namespace gpuop::op
