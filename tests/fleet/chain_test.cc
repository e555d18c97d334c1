#include "fleet/chain.h"

#include <gtest/gtest.h>

namespace gpuop::fleet {
namespace {

Json node(const std::string& labels, const std::string& allocatable = "{}") {
  return *parse_json(R"({"metadata":{"name":"n1","labels":{)" + labels + R"(}},"status":{"allocatable":)" +
                     allocatable + "}}");
}
constexpr const char* kGpuLabels =
    R"("feature.node.kubernetes.io/pci-10de.present":"true","nvidia.com/gpu.present":"true",
       "nvidia.com/gpu.deploy.operator-validator":"true","nvidia.com/gpu.deploy.gpu-feature-discovery":"true",
       "nvidia.com/gpu.deploy.dcgm-exporter":"true","nvidia.com/gpu.deploy.driver":"true",
       "nvidia.com/gpu.deploy.container-toolkit":"true","nvidia.com/gpu.deploy.device-plugin":"true")";

std::shared_ptr<const Json> pod(const std::string& app, const std::string& status) {
  return std::make_shared<const Json>(
      *parse_json(R"({"metadata":{"name":")" + app + R"(-x","labels":{"app":")" + app +
                  R"("}},"spec":{"nodeName":"n1"},"status":)" + status + "}"));
}
const std::string kReady = R"({"conditions":[{"type":"Ready","status":"True"}]})";

StageState state_of(const NodeChain& chain, std::string_view name) {
  for (const auto& stage : chain.stages) {
    if (stage.name == name) return stage.state;
  }
  ADD_FAILURE() << "no stage " << name;
  return StageState::kFailed;
}

TEST(fleet, node_without_gpu_has_no_stages) {
  const auto chain = chain_of(node(R"("a":"b")"), {});
  EXPECT_FALSE(chain.gpu);
  EXPECT_TRUE(chain.stages.empty());
}

TEST(fleet, a_worker_of_feature_discovery_that_fails_is_shown_with_gpus_and_without) {
  const auto worker = std::make_shared<const Json>(*parse_json(
      R"({"metadata":{"name":"w","labels":{"role":"worker","app.kubernetes.io/name":"node-feature-discovery"}},
          "status":{"containerStatuses":[{"name":"worker","state":{"waiting":{"reason":"CrashLoopBackOff"}},
                    "lastState":{"terminated":{"exitCode":2,"message":"no such flag"}}}]}})"));
  for (const char* labels : {R"("a":"b")", kGpuLabels}) {
    EXPECT_EQ(chain_of(node(labels), {worker}).warnings,
              std::vector<std::string>{
                  "feature discovery: pod w: container worker: CrashLoopBackOff: no such flag; read its last "
                  "log: kubectl logs w -c worker --previous"});
  }
}

TEST(fleet, fresh_gpu_node_waits_for_the_operator) {
  const auto chain = chain_of(node(R"("feature.node.kubernetes.io/pci-0302_10de.present":"true")"), {});
  ASSERT_TRUE(chain.first_broken());
  EXPECT_EQ(chain.first_broken()->name, "discovered");
  EXPECT_EQ(state_of(chain, "driver"), StageState::kWaiting);
}

TEST(fleet, stages_follow_the_validators_init_containers) {
  const auto validator = pod("nvidia-operator-validator",
                             R"({"initContainerStatuses":[
      {"name":"driver-validation","state":{"terminated":{"exitCode":0}}},
      {"name":"toolkit-validation","state":{"terminated":{"exitCode":0}}},
      {"name":"cuda-validation","state":{"running":{}}},
      {"name":"plugin-validation","state":{"waiting":{"reason":"PodInitializing"}}}]})");
  const auto chain = chain_of(node(kGpuLabels), {validator});
  EXPECT_EQ(state_of(chain, "driver"), StageState::kDone);
  EXPECT_EQ(state_of(chain, "toolkit"), StageState::kDone);
  EXPECT_EQ(state_of(chain, "cuda"), StageState::kWorking);
  EXPECT_EQ(state_of(chain, "plugin"), StageState::kWaiting);
  EXPECT_FALSE(chain.ready);
}

// Our image does all validations in one container: where it is shows by the pods that wait for its steps, and
// by the message of a step that failed.
TEST(fleet, stages_follow_a_validator_of_one_container) {
  const auto running =
      pod("nvidia-operator-validator",
          R"({"containerStatuses":[{"name":"nvidia-operator-validator","state":{"running":{}}}]})");
  auto chain = chain_of(node(kGpuLabels), {running});
  ASSERT_TRUE(chain.first_broken());
  EXPECT_EQ(chain.first_broken()->name, "driver");
  EXPECT_EQ(chain.first_broken()->detail, "being validated");

  Objects pods{running, pod("nvidia-container-toolkit-daemonset", kReady)};
  EXPECT_EQ(chain_of(node(kGpuLabels), pods).first_broken()->name, "toolkit");
  pods.push_back(pod("nvidia-device-plugin-daemonset", R"({"conditions":[{"type":"Ready","status":"True"}],
      "initContainerStatuses":[{"name":"toolkit-validation","state":{"terminated":{"exitCode":0}}}]})"));
  EXPECT_EQ(chain_of(node(kGpuLabels), pods).first_broken()->name, "cuda");
  pods.push_back(pod("nvidia-cuda-validator", R"({"phase":"Succeeded"})"));
  EXPECT_EQ(chain_of(node(kGpuLabels), pods).first_broken()->name, "plugin");

  const auto failed = pod("nvidia-operator-validator",
                          R"({"containerStatuses":[{"name":"nvidia-operator-validator","restartCount":1,
      "state":{"waiting":{"reason":"CrashLoopBackOff"}},
      "lastState":{"terminated":{"exitCode":1,"message":"cuda: create validation pod: forbidden"}}}]})");
  chain = chain_of(node(kGpuLabels), {failed});
  EXPECT_EQ(state_of(chain, "toolkit"), StageState::kDone);
  EXPECT_EQ(state_of(chain, "cuda"), StageState::kFailed);
  EXPECT_EQ(
      chain.first_broken()->detail,
      "pod nvidia-operator-validator-x: container nvidia-operator-validator: CrashLoopBackOff: cuda: create "
      "validation pod: forbidden");
  // What others show is older than the failure.
  pods.front() = failed;
  EXPECT_EQ(state_of(chain_of(node(kGpuLabels), pods), "cuda"), StageState::kFailed);
}

TEST(fleet, evidence_of_an_earlier_validation_does_not_count) {
  auto validator =
      *pod("nvidia-operator-validator",
           R"({"containerStatuses":[{"name":"nvidia-operator-validator","state":{"running":{}}}]})");
  auto toolkit = *pod("nvidia-container-toolkit-daemonset", kReady);
  set(toolkit, {"metadata", "creationTimestamp"}, "2026-01-01T00:00:00Z");
  for (const auto& [made, stage] :
       {std::pair{"2026-01-01T00:00:00Z", "toolkit"}, std::pair{"2026-01-01T00:00:01Z", "driver"}}) {
    set(validator, {"metadata", "creationTimestamp"}, made);
    const auto chain = chain_of(
        node(kGpuLabels), {std::make_shared<const Json>(validator), std::make_shared<const Json>(toolkit)});
    ASSERT_TRUE(chain.first_broken());
    EXPECT_EQ(chain.first_broken()->name, stage);
  }
}

TEST(fleet, the_operands_own_fault_is_the_evidence) {
  const auto validator =
      pod("nvidia-operator-validator",
          R"({"initContainerStatuses":[{"name":"driver-validation","state":{"running":{}}}]})");
  const auto driver =
      pod("nvidia-driver-daemonset",
          R"({"containerStatuses":[{"name":"nvidia-driver-ctr","state":{"waiting":{"reason":"ErrImagePull",
                              "message":"not found"}}}]})");
  const auto chain = chain_of(node(kGpuLabels), {validator, driver});
  ASSERT_TRUE(chain.first_broken());
  EXPECT_EQ(chain.first_broken()->name, "driver");
  EXPECT_EQ(chain.first_broken()->state, StageState::kFailed);
  EXPECT_EQ(chain.first_broken()->detail,
            "pod nvidia-driver-daemonset-x: container nvidia-driver-ctr: ErrImagePull: not found");
}

TEST(fleet, ready_needs_an_allocatable_gpu) {
  const Objects pods{pod("nvidia-operator-validator", kReady), pod("gpu-feature-discovery", kReady),
                     pod("nvidia-dcgm-exporter", kReady)};
  const std::string labels =
      std::string(kGpuLabels) + R"(,"nvidia.com/gpu.product":"NVIDIA-L4","nvidia.com/gpu.count":"2")";
  EXPECT_FALSE(chain_of(node(labels, R"({"nvidia.com/gpu":"0"})"), pods).ready);
  const auto chain = chain_of(node(labels, R"({"nvidia.com/gpu":"2","cpu":"8"})"), pods);
  EXPECT_TRUE(chain.ready);
  EXPECT_EQ(chain.product, "2 × NVIDIA-L4");
  EXPECT_EQ(chain.allocatable.size(), 1u);
}

TEST(fleet, unhealthy_gpus_and_operands_without_a_stage_are_shown) {
  const Objects pods{pod("nvidia-operator-validator", kReady), pod("gpu-feature-discovery", kReady),
                     pod("nvidia-dcgm-exporter", kReady), pod("nvidia-device-plugin-daemonset", kReady)};
  Json some =
      node(std::string(kGpuLabels) + R"(,"nvidia.com/gpu.product":"NVIDIA-L4")", R"({"nvidia.com/gpu":"7"})");
  set(some, {"status", "capacity", "nvidia.com/gpu"}, "8");
  auto chain = chain_of(some, pods);
  EXPECT_TRUE(chain.ready);
  EXPECT_EQ(chain.warnings, std::vector<std::string>{"nvidia.com/gpu: 7 of 8 allocatable"});
  EXPECT_EQ(chain.plugin_pod, "nvidia-device-plugin-daemonset-x");
  set(some, {"status", "allocatable", "nvidia.com/gpu"}, "0");
  chain = chain_of(some, pods);
  EXPECT_FALSE(chain.ready);
  EXPECT_EQ(chain.first_broken()->detail, "nvidia.com/gpu: 0 of 8 allocatable");

  // A plugin that was validated and now keeps ending.
  Objects crashed = pods;
  crashed.back() =
      pod("nvidia-device-plugin-daemonset", R"({"containerStatuses":[{"name":"d","restartCount":4,"state":
      {"waiting":{"reason":"CrashLoopBackOff","message":"back-off"}},"lastState":{"terminated":{"exitCode":1}}}]})");
  chain = chain_of(some, crashed);
  ASSERT_TRUE(chain.first_broken());
  EXPECT_EQ(chain.first_broken()->state, StageState::kFailed);
  EXPECT_EQ(chain.first_broken()->log, (LogRef{"nvidia-device-plugin-daemonset-x", "d", false}));
  EXPECT_EQ(chain.plugin_pod, "");

  Json manager = *pod("nvidia-mig-manager", R"({"containerStatuses":[{"name":"m","state":{"waiting":
      {"reason":"RunContainerError","message":"no such program"}}}]})");
  set(manager, {"metadata", "ownerReferences"},
      JsonArray{JsonObject{{"kind", "DaemonSet"}, {"name", "nvidia-mig-manager"}, {"controller", true}}});
  Objects with = pods;
  with.push_back(std::make_shared<const Json>(manager));
  set(some, {"status", "allocatable", "nvidia.com/gpu"}, "8");
  chain = chain_of(some, with);
  ASSERT_TRUE(chain.first_broken());
  EXPECT_EQ(chain.first_broken()->name, "nvidia-mig-manager");
  EXPECT_TRUE(chain.first_broken()->stuck);
}

TEST(fleet, operands_that_the_policy_leaves_out_are_off) {
  const std::string labels =
      R"("feature.node.kubernetes.io/pci-10de.present":"true","nvidia.com/gpu.present":"true","nvidia.com/gpu.deploy.operator-validator":"true")";
  const auto chain =
      chain_of(node(labels, R"({"nvidia.com/gpu":"1"})"), {pod("nvidia-operator-validator", kReady)});
  EXPECT_EQ(state_of(chain, "labels"), StageState::kOff);
  EXPECT_TRUE(chain.ready);
}

TEST(fleet, operands_that_the_policy_switches_off_are_not_waited_for) {
  const auto policy = [](const std::string& state, const std::string& spec) {
    return std::make_shared<const Json>(*parse_json(R"({"metadata":{"name":"p"},"status":{"state":")" +
                                                    state + R"("},"spec":)" + spec + "}"));
  };
  const Objects policies{policy("ready", R"({"gfd":{"enabled":false},"dcgmExporter":{"enabled":true}})"),
                         policy("ignored", R"({"dcgmExporter":{"enabled":false}})")};
  const auto off = switched_off(policies);
  EXPECT_EQ(off, std::set<std::string>{"labels"});
  const auto validator = pod("nvidia-operator-validator", kReady);
  auto chain = chain_of(node(kGpuLabels, R"({"nvidia.com/gpu":"1"})"), {validator}, {off, {}});
  EXPECT_EQ(state_of(chain, "labels"), StageState::kOff);
  EXPECT_EQ(state_of(chain, "telemetry"), StageState::kWorking);
  chain = chain_of(node(kGpuLabels, R"({"nvidia.com/gpu":"1"})"),
                   {validator, pod("nvidia-dcgm-exporter", kReady)}, {off, {}});
  EXPECT_TRUE(chain.ready);
}

// The kubelet keeps the name of a resource that nobody serves any more, at 0.
TEST(fleet, a_plugin_that_is_switched_off_leaves_a_resource_of_none) {
  const auto validator = pod("nvidia-operator-validator", kReady);
  const Json live = node(kGpuLabels, R"({"nvidia.com/gpu":"0"})");
  EXPECT_EQ(state_of(chain_of(live, {validator}, {{"plugin"}, {}}), "plugin"), StageState::kOff);
  EXPECT_EQ(state_of(chain_of(live, {validator}), "plugin"), StageState::kWorking);
  const auto plugin = pod("nvidia-device-plugin-daemonset", kReady);
  EXPECT_EQ(state_of(chain_of(live, {validator, plugin}, {{"plugin"}, {}}), "plugin"), StageState::kWorking)
      << "its pod has yet to go";
}

TEST(fleet, a_policy_is_not_ready_by_a_status_of_its_earlier_generation) {
  const auto chain = [](const std::string& observed) {
    const auto policy = std::make_shared<const Json>(*parse_json(
        R"({"metadata":{"name":"p","generation":2},"status":{"state":"ready")" + observed + "}}"));
    return cluster_chain({{policy}, {}, {}, {}, {}, {}});
  };
  EXPECT_EQ(chain(R"(,"observedGeneration":2)").policy_state, "ready");
  EXPECT_EQ(chain("").policy_state, "ready") << "upstream's definition has no such field";
  EXPECT_EQ(chain(R"(,"observedGeneration":1)").policy_state, "");
}

TEST(fleet, cluster_is_ready_with_its_policy_and_every_gpu_node) {
  const auto policy = std::make_shared<const Json>(*parse_json(
      R"({"metadata":{"name":"p"},"status":{"state":"notReady","conditions":[{"type":"Error","status":"True","message":"why"}]}})"));
  const auto bare = std::make_shared<const Json>(node(R"("a":"b")"));
  const auto chain = cluster_chain({{policy}, {bare}, {}, {}, {}, {}});
  EXPECT_FALSE(chain.ready());
  EXPECT_EQ(render(chain).substr(0, 32), "ClusterPolicy p: notReady  (why)");
  EXPECT_EQ(cluster_chain({}).policy, "");
}

TEST(fleet, without_a_policy_or_an_operator_no_node_is_blamed) {
  const auto gpu = std::make_shared<const Json>(node(kGpuLabels));
  const auto policy = std::make_shared<const Json>(*parse_json(R"({"metadata":{"name":"p"}})"));
  EXPECT_NE(render(cluster_chain({{policy}, {gpu}, {}, {}, {}, {}})).find("nvidia-operator-validator"),
            std::string::npos);
  const auto bare = cluster_chain({{}, {gpu}, {}, {}, {}, {}});
  EXPECT_EQ(render(bare).find("nvidia-operator-validator"), std::string::npos) << render(bare);
  EXPECT_EQ(first_broken_link(bare), "there is no ClusterPolicy: nothing is deployed until one is created");
  auto pending = cluster_chain({{policy}, {gpu}, {}, {}, {}, {}});
  pending.operator_fault = "pod o: Pending";
  EXPECT_EQ(first_broken_link(pending), "operator: pod o: Pending");
}

}  // namespace
}  // namespace gpuop::fleet
