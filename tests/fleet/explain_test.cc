// What a node's chain says where it does not get on: the step that fails, what of an earlier life is left
// out, what is switched off and by which label, what keeps an operand away.
#include <gtest/gtest.h>

#include <tuple>

#include "fleet/chain.h"
#include "fleet/faults.h"
#include "fleet/missing.h"
#include "hardware/validation_note.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

using Shared = std::shared_ptr<const Json>;

constexpr const char* kValidator = "nvidia-operator-validator";
constexpr const char* kReady = R"({"conditions":[{"type":"Ready","status":"True"}]})";
constexpr const char* kRunning =
    R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
        {"name":"nvidia-operator-validator","state":{"running":{}}}]})";

Json gpu_node() {
  Json node = JsonObject{{"metadata", JsonObject{{"name", "n1"}, {"labels", JsonObject{}}}}};
  const auto label = [&node](const std::string& key) { set(node, {"metadata", "labels", key}, "true"); };
  label("feature.node.kubernetes.io/pci-10de.present");
  label("nvidia.com/gpu.present");
  for (const char* operand : {"driver", "container-toolkit", "operator-validator", "device-plugin",
                              "gpu-feature-discovery", "dcgm-exporter"})
    label(std::string("nvidia.com/gpu.deploy.") + operand);
  set(node, {"metadata", "labels", "nvidia.com/gpu.product"}, "NVIDIA-L4");
  set(node, {"status", "allocatable", "nvidia.com/gpu"}, "1");
  set(node, {"status", "capacity", "nvidia.com/gpu"}, "1");
  return node;
}
Json with_label(const std::string& operand, const char* value) {
  Json node = gpu_node();
  set(node, {"metadata", "labels", "nvidia.com/gpu.deploy." + operand}, value);
  return node;
}

Json pod(const std::string& app, const std::string& status) {
  Json out =
      *parse_json(R"({"metadata":{"name":")" + app + R"(-x","creationTimestamp":"2026-01-01T00:00:00Z"},
                             "spec":{"nodeName":"n1"}})");
  set(out, {"metadata", "labels", "app"}, app);
  set(out, {"status"}, *parse_json(status));
  return out;
}
Shared share(Json object) {
  return std::make_shared<const Json>(std::move(object));
}
Shared shared_pod(const std::string& app, const std::string& status) {
  return share(pod(app, status));
}

Objects all_ready() {
  Objects out;
  for (const char* app : {"nvidia-container-toolkit-daemonset", kValidator, "nvidia-device-plugin-daemonset",
                          "gpu-feature-discovery", "nvidia-dcgm-exporter"})
    out.push_back(shared_pod(app, kReady));
  return out;
}
Objects without(Objects pods, const std::string& app) {
  std::erase_if(pods, [&app](const Shared& each) { return kube::label(*each, "app") == app; });
  return pods;
}

Json noted(const hardware::ValidationNote& note) {
  Json out = pod(kValidator, kRunning);
  set(out, {"metadata", "annotations", hardware::kValidationAnnotation},
      hardware::format_validation_note(note));
  return out;
}

Stage stage_of(const NodeChain& chain, const std::string& name) {
  for (const Stage& stage : chain.stages)
    if (stage.name == name) return stage;
  ADD_FAILURE() << "no stage " << name;
  return {};
}

std::string link_of(const NodeChain& chain) {
  const auto link = chain.broken_link();
  return link ? link->text() : "";
}

// Young pods of other operands, that have passed their own checks, are no evidence against it.
TEST(fleet_explain, a_validator_says_which_of_its_steps_fails) {
  Objects pods = all_ready();
  pods[0] = shared_pod("nvidia-container-toolkit-daemonset", kReady);
  Json cuda = pod("nvidia-cuda-validator", R"({"phase":"Succeeded"})");
  pods.push_back(share(cuda));
  pods[1] = share(noted({"driver", true, "run nvidia-smi of the host: it ended with code 9: no devices"}));
  const NodeChain chain = chain_of(gpu_node(), pods, {{"driver"}, {}});
  EXPECT_EQ(
      link_of(chain),
      "driver: pod nvidia-operator-validator-x: run nvidia-smi of the host: it ended with code 9: no "
      "devices; run nvidia-smi on node n1 and mend the driver that is installed there, or let the policy "
      "bring one (driver.enabled)");
  EXPECT_TRUE(chain.broken_link()->failed);
  // A step that only takes its time is named too.
  pods[1] = share(noted({"cuda", false, ""}));
  EXPECT_EQ(link_of(chain_of(gpu_node(), pods)), "cuda: being validated");
  // What it said before it ended is older than the message that it left.
  Json ended = noted({"driver", true, "x"});
  set(ended, {"status"},
      *parse_json(R"({"containerStatuses":[{"name":"nvidia-operator-validator","restartCount":3,
      "state":{"waiting":{"reason":"CrashLoopBackOff"}},
      "lastState":{"terminated":{"exitCode":1,"message":"toolkit: nvidia-smi is not in PATH"}}}]})"));
  pods[1] = share(ended);
  EXPECT_EQ(chain_of(gpu_node(), pods).first_broken()->name, "toolkit");
}

TEST(fleet_explain, a_driver_that_nothing_brings_is_a_fault) {
  const hardware::ValidationNote note{"driver", false, "wait for the driver container: 'f' is not there yet"};
  const Objects pods{share(noted(note))};
  EXPECT_FALSE(chain_of(gpu_node(), pods).broken_link()->failed) << "its pod is on its way";
  const NodeChain off = chain_of(with_label("driver", "false"), pods);
  EXPECT_TRUE(off.broken_link()->failed);
  EXPECT_EQ(
      link_of(off),
      "driver: pod nvidia-operator-validator-x waits: wait for the driver container: 'f' is not there "
      "yet; the driver is switched off on this node by its label nvidia.com/gpu.deploy.driver=false; to "
      "have it here: kubectl label node n1 nvidia.com/gpu.deploy.driver=true --overwrite");
}

TEST(fleet_explain, a_preinstalled_driver_that_fails_is_to_be_mended) {
  const Objects pods{share(noted({"driver", true, "nvidia-smi ended with code 9"}))};
  EXPECT_EQ(
      link_of(chain_of(with_label("driver", "pre-installed"), pods)),
      "driver: pod nvidia-operator-validator-x: nvidia-smi ended with code 9; run nvidia-smi on node n1 and "
      "mend the driver that is installed there");
}

TEST(fleet_explain, a_workload_of_the_validation_that_cannot_run_is_the_evidence) {
  Objects pods = all_ready();
  pods[1] = share(noted({"cuda", false, ""}));
  pods.push_back(shared_pod("nvidia-cuda-validator",
                            R"({"phase":"Pending","initContainerStatuses":[{"name":"cuda-validation",
      "state":{"waiting":{"reason":"ErrImagePull","message":"not found"}}}]})"));
  const NodeChain chain = chain_of(gpu_node(), pods);
  EXPECT_EQ(chain.first_broken()->name, "cuda");
  EXPECT_EQ(chain.first_broken()->detail,
            "pod nvidia-cuda-validator-x: container cuda-validation: ErrImagePull: not found");
}

// --- of an earlier life

constexpr const char* kEnded =
    R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
        {"name":"c","ready":false,"restartCount":1,"state":{"running":{}},
         "lastState":{"terminated":{"exitCode":143,"reason":"Error","finishedAt":"2026-01-01T10:00:00Z"}}}]})";

TEST(fleet_explain, what_ended_before_the_node_came_up_is_no_fault_of_now) {
  Objects pods = all_ready();
  pods[0] = shared_pod("nvidia-container-toolkit-daemonset", kEnded);
  pods[1] = shared_pod(kValidator, kRunning);
  Json node = gpu_node();
  const auto up = [&node](const char* since) {
    set(node, {"status", "conditions"},
        JsonArray{JsonObject{{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", since}}});
  };
  up("2026-01-01T09:00:00Z");
  EXPECT_TRUE(stage_of(chain_of(node, pods), "toolkit").stuck == false);
  EXPECT_EQ(stage_of(chain_of(node, pods), "toolkit").state, StageState::kFailed);
  up("2026-01-01T10:00:01Z");
  EXPECT_NE(stage_of(chain_of(node, pods), "toolkit").state, StageState::kFailed);
}

// A validator is started before the toolkit has done its work in this boot, and tries again.
TEST(fleet_explain, a_validation_that_fails_as_the_node_comes_up_is_tried_again) {
  Objects pods = all_ready();
  pods[1] = shared_pod(kValidator, R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}],
      "containerStatuses":[{"name":"nvidia-operator-validator","restartCount":5,
      "state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":1,
      "message":"toolkit: nvidia-smi is not in PATH","finishedAt":"2026-01-01T10:00:05Z"}}}]})");
  Json node = gpu_node();
  for (const auto& [since, failed] :
       {std::pair{"2026-01-01T10:00:00Z", false}, {"2026-01-01T09:59:00Z", true}}) {
    set(node, {"status", "conditions"},
        JsonArray{JsonObject{{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", since}}});
    const auto link = chain_of(node, pods).broken_link();
    ASSERT_TRUE(link);
    EXPECT_EQ(link->reason, failed ? "ToolkitFailed" : "ToolkitNotReady");
    EXPECT_NE(link->evidence.find("nvidia-smi is not in PATH"), std::string::npos) << link->evidence;
  }
}

TEST(fleet_explain, an_end_that_nobody_saw_is_no_fault) {
  // As containerd and the kubelet say it behind a boot; the sandbox is gone in the second.
  for (const char* status :
       {R"({"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":255,"reason":"Unknown"}}}]})",
        R"({"containerStatuses":[{"name":"c","state":{"running":{}},"ready":false,
            "lastState":{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown"}}}]})",
        R"({"phase":"Running","conditions":[{"type":"PodReadyToStartContainers","status":"False"}],
            "containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":255,"reason":"Error"}}}]})",
        R"({"phase":"Failed","reason":"Terminated","message":"in response to imminent node shutdown",
            "containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":143}}}]})"})
    EXPECT_FALSE(fault_of(pod("a", status))) << status;
}

TEST(fleet_explain, ends_say_why) {
  const auto killed = fault_of(pod("a", R"({"containerStatuses":[{"name":"c",
      "state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]})"));
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->text, "container c ended with code 137 (OOMKilled)");
  EXPECT_EQ(killed->cure, "raise the memory limit in the operand's resources of the policy");
  const auto evicted =
      fault_of(pod("a", R"({"phase":"Failed","reason":"Evicted","message":"low on ephemeral-storage"})"));
  ASSERT_TRUE(evicted);
  EXPECT_EQ(evicted->text, "Evicted: low on ephemeral-storage");
}

// --- what is wanted

TEST(fleet_explain, a_device_plugin_that_the_policy_switches_off_is_not_waited_for) {
  const auto policy =
      share(*parse_json(R"({"metadata":{"name":"p"},"spec":{"devicePlugin":{"enabled":false}}})"));
  const ChainFacts facts{switched_off({policy}), {}};
  Json node = gpu_node();
  // A kubelet keeps a resource whose plugin is gone, with none of it allocatable.
  set(node, {"status", "allocatable", "nvidia.com/gpu"}, "0");
  const NodeChain chain = chain_of(node, without(all_ready(), "nvidia-device-plugin-daemonset"), facts);
  EXPECT_EQ(stage_of(chain, "plugin").state, StageState::kOff);
  EXPECT_TRUE(chain.ready) << link_of(chain);
  // gpuctl asks for no more of a policy than these.
  const auto fields = policy_fields();
  for (const char* operand : {"driver", "toolkit", "devicePlugin", "gfd", "dcgmExporter"})
    EXPECT_NE(std::ranges::find(fields, std::string("spec.") + operand + ".enabled"), fields.end())
        << operand;
}

TEST(fleet_explain, operands_that_a_label_switches_off_are_said_to_be) {
  const std::map<std::string, std::string> stages{
      {"device-plugin", "plugin"}, {"gpu-feature-discovery", "labels"}, {"dcgm-exporter", "telemetry"}};
  const std::map<std::string, std::string> apps{{"device-plugin", "nvidia-device-plugin-daemonset"},
                                                {"gpu-feature-discovery", "gpu-feature-discovery"},
                                                {"dcgm-exporter", "nvidia-dcgm-exporter"}};
  for (const auto& [operand, name] : stages) {
    const Json node = with_label(operand, "false");
    const NodeChain chain = chain_of(node, without(all_ready(), apps.at(operand)));
    EXPECT_EQ(stage_of(chain, name).state, StageState::kOff);
    EXPECT_TRUE(chain.ready) << link_of(chain);
    const std::string why =
        "switched off on this node by its label nvidia.com/gpu.deploy." + operand + "=false";
    EXPECT_EQ(stage_of(chain, name).detail, why);
    const auto policy = share(*parse_json(R"({"metadata":{"name":"p"}})"));
    const std::string text =
        render(cluster_chain({{policy}, {share(node)}, without(all_ready(), apps.at(operand)), {}, {}, {}}));
    EXPECT_NE(text.find("      " + name + ": " + why + "\n"), std::string::npos) << text;
  }
}

TEST(fleet_explain, without_its_validator_a_node_is_judged_by_its_operands) {
  const Objects pods = without(all_ready(), kValidator);
  NodeChain chain = chain_of(with_label("operator-validator", "false"), pods, {{"driver"}, {}});
  EXPECT_TRUE(chain.ready) << link_of(chain);
  EXPECT_EQ(stage_of(chain, "toolkit").state, StageState::kDone);
  EXPECT_EQ(stage_of(chain, "plugin").state, StageState::kDone);
  EXPECT_EQ(stage_of(chain, "cuda").detail,
            "not validated: nvidia-operator-validator is switched off on this node by its label "
            "nvidia.com/gpu.deploy.operator-validator=false");
  // The plugin waits for a gate that nobody opens now.
  Objects waiting = without(pods, "nvidia-device-plugin-daemonset");
  waiting.push_back(shared_pod("nvidia-device-plugin-daemonset",
                               R"({"phase":"Pending","initContainerStatuses":[
      {"name":"toolkit-validation","state":{"running":{}}}]})"));
  EXPECT_EQ(
      link_of(chain_of(with_label("operator-validator", "false"), waiting, {{"driver"}, {}})),
      "plugin: pod nvidia-device-plugin-daemonset-x waits for nvidia-operator-validator, which is switched "
      "off on this node by its label nvidia.com/gpu.deploy.operator-validator=false; to have it here: "
      "kubectl label node n1 nvidia.com/gpu.deploy.operator-validator=true --overwrite");
}

TEST(fleet_explain, without_its_validator_a_node_whose_gpus_are_gone_is_not_ready) {
  const Objects pods = without(all_ready(), kValidator);
  Json node = with_label("operator-validator", "false");
  set(node, {"status", "allocatable", "nvidia.com/gpu"}, "0");
  const NodeChain chain = chain_of(node, pods, {{"driver"}, {}});
  EXPECT_FALSE(chain.ready);
  EXPECT_EQ(chain.first_broken()->detail, "nvidia.com/gpu: 0 of 1 allocatable");
  for (const char* stage : {"toolkit", "labels", "telemetry"})
    EXPECT_EQ(stage_of(chain, stage).state, StageState::kDone) << stage;
  EXPECT_EQ(chain.plugin_pod, "nvidia-device-plugin-daemonset-x") << "its log tells of XIDs";
}

// Every gate that an upstream image waits at, not the plugin's alone.
TEST(fleet_explain, without_its_validator_a_pod_at_its_gate_says_so) {
  Objects pods = without(without(all_ready(), kValidator), "nvidia-container-toolkit-daemonset");
  pods.push_back(shared_pod("nvidia-container-toolkit-daemonset",
                            R"({"phase":"Pending","initContainerStatuses":[
      {"name":"driver-validation","state":{"running":{}}}]})"));
  const std::string text =
      link_of(chain_of(with_label("operator-validator", "false"), pods, {{"driver"}, {}}));
  EXPECT_EQ(text.substr(0, text.find(", which")),
            "toolkit: pod nvidia-container-toolkit-daemonset-x waits for nvidia-operator-validator");
}

TEST(fleet_explain, a_validator_that_cannot_start_for_want_of_a_toolkit_says_so) {
  const Objects pods{shared_pod(kValidator, R"({"phase":"Pending","containerStatuses":[
      {"name":"nvidia-operator-validator","state":{"waiting":{"reason":"ContainerCreating"}}}]})")};
  EXPECT_EQ(
      stage_of(chain_of(with_label("container-toolkit", "false"), pods), "driver").detail,
      "pod nvidia-operator-validator-x is not started yet; the container toolkit, whose runtime it needs, "
      "is switched off on this node by its label nvidia.com/gpu.deploy.container-toolkit=false");
}

TEST(fleet_explain, paused_operands_are_waited_for) {
  const Json node = with_label("device-plugin", "paused-for-driver-upgrade");
  const NodeChain chain = chain_of(node, without(all_ready(), "nvidia-device-plugin-daemonset"));
  EXPECT_EQ(chain.first_broken()->name, "plugin");
  EXPECT_EQ(chain.first_broken()->detail,
            "paused on this node by its label nvidia.com/gpu.deploy.device-plugin=paused-for-driver-upgrade");
}

TEST(fleet_explain, a_node_that_is_to_get_nothing_is_neither_ready_nor_not) {
  Json node = gpu_node();
  JsonObject& labels = find_mutable(node, {"metadata", "labels"})->as_object();
  for (const char* operand : {"driver", "container-toolkit", "operator-validator", "device-plugin",
                              "gpu-feature-discovery", "dcgm-exporter"})
    labels.erase(std::string("nvidia.com/gpu.deploy.") + operand);
  labels["nvidia.com/gpu.deploy.operands"] = "false";
  const auto policy = share(*parse_json(R"({"metadata":{"name":"p"}})"));
  const std::string text = render(cluster_chain({{policy}, {share(node)}, {}, {}, {}, {}}));
  EXPECT_NE(text.find("\nn1    off    done"), std::string::npos) << text;
  EXPECT_NE(text.find("switched off on this node by its label nvidia.com/gpu.deploy.operands=false"),
            std::string::npos)
      << text;
}

// --- what keeps an operand away

Shared daemonset(const std::string& app, const std::string& label, const JsonArray& tolerations) {
  Json out =
      *parse_json(R"({"metadata":{"name":")" + app +
                  R"(","ownerReferences":[{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","name":"p",
                             "controller":true}]}})");
  set(out, {"spec", "template", "metadata", "labels", "app"}, app);
  set(out, {"spec", "template", "spec", "nodeSelector", "nvidia.com/gpu.deploy." + label}, "true");
  set(out, {"spec", "template", "spec", "tolerations"}, tolerations);
  return share(out);
}
JsonArray tolerating(const std::string& key) {
  return JsonArray{JsonObject{{"key", key}, {"operator", "Exists"}, {"effect", "NoSchedule"}}};
}

TEST(fleet_explain, a_taint_that_keeps_operands_off_is_the_first_broken_link) {
  Json node = gpu_node();
  set(node, {"spec", "taints"},
      JsonArray{JsonObject{{"key", "nvidia.com/gpu"}, {"effect", "NoSchedule"}},
                JsonObject{{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}},
                JsonObject{{"key", "dedicated"}, {"value", "ml"}, {"effect", "NoExecute"}}});
  const Objects sets{
      daemonset("nvidia-container-toolkit-daemonset", "container-toolkit", tolerating("nvidia.com/gpu")),
      daemonset(kValidator, "operator-validator", tolerating("nvidia.com/gpu"))};
  const NodeChain chain = chain_of(node, {}, {{"driver"}, sets});
  EXPECT_EQ(
      link_of(chain),
      "driver: taint dedicated=ml:NoExecute of the node is not tolerated by DaemonSets "
      "nvidia-operator-validator, nvidia-container-toolkit-daemonset; add {key: dedicated, operator: Equal, "
      "value: \"ml\", effect: NoExecute} to daemonsets.tolerations of the policy (that list replaces the "
      "default: keep {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule} in it), or take the taint "
      "off: kubectl taint node n1 dedicated=ml:NoExecute-");
  // A driver that runs under the policy's list is not replaced by itself.
  Json driver = *daemonset("nvidia-driver-daemonset", "driver", tolerating("dedicated"));
  set(driver, {"spec", "updateStrategy", "type"}, "OnDelete");
  set(driver, {"status", "currentNumberScheduled"}, 2);
  Objects more = sets;
  more.push_back(share(driver));
  EXPECT_NE(link_of(chain_of(node, {}, {{"driver"}, more}))
                .find("; take the taint off: kubectl taint node n1 dedicated=ml:NoExecute-, or add {key: "
                      "dedicated, operator: Equal, value: \"ml\", effect: NoExecute} to "
                      "daemonsets.tolerations of the policy (that list replaces the default: keep {key: "
                      "nvidia.com/gpu, operator: Exists, effect: NoSchedule} in it), which changes DaemonSet "
                      "nvidia-driver-daemonset too: its pods are replaced only when they are deleted "
                      "(OnDelete), and the policy is notReady until they are; on each of its nodes end the "
                      "pods that use GPUs, then delete the driver's pod"),
            std::string::npos)
      << link_of(chain_of(node, {}, {{"driver"}, more}));
  // Without it the pods are only not there yet.
  set(node, {"spec", "taints"}, JsonArray{});
  EXPECT_EQ(
      link_of(chain_of(node, {}, {{"driver"}, sets})),
      "driver: pod of nvidia-operator-validator is not there yet; see why its DaemonSet makes none: kubectl "
      "describe daemonset nvidia-operator-validator");
}

TEST(fleet_explain, what_nobody_can_reach_is_explained_without_commands) {
  ClusterChain chain;
  chain.policy = "p";
  chain.policy_state = "notReady";
  chain.message = "node n: stage labels: no label; read its log: kubectl logs x; check the image";
  chain.operator_fault = "no operator leads";
  NodeChain node;
  node.name = "n";
  node.gpu = true;
  node.stages.push_back(
      {.name = "driver", .state = StageState::kFailed, .detail = "pod d: kubectl failed; so"});
  node.stages[0].cure =
      "take the taint off: kubectl taint node n a-, or add {key: a} to the policy; run nvidia-smi on node n, "
      "or reboot the node; see kubectl describe pod d";
  node.warnings = {"feature discovery: pod f: it failed; kubectl describe pod f"};
  chain.nodes.push_back(node);
  const ClusterChain out = without_commands(chain);
  EXPECT_EQ(out.message, "node n: stage labels: no label; check the image");
  EXPECT_EQ(out.nodes[0].stages[0].detail, "pod d: kubectl failed; so") << "evidence stays";
  EXPECT_EQ(out.nodes[0].stages[0].cure, "add {key: a} to the policy; reboot the node");
  EXPECT_EQ(out.nodes[0].warnings, std::vector<std::string>{"feature discovery: pod f: it failed"});
  EXPECT_TRUE(
      render(out).starts_with("OPERATOR: no operator leads\nClusterPolicy p: notReady, as last told  ("))
      << render(out);
  NodeChain lost = node;
  lost.node_fault = "the node is not ready";
  chain.nodes = {lost};
  EXPECT_EQ(chain.nodes[0].broken_link()->cure,
            "look at the kubelet on the node; nothing of its GPUs is known meanwhile");
  EXPECT_EQ(without_commands(chain).nodes[0].broken_link()->cure, "nothing of its GPUs is known meanwhile");
}

// Its DaemonSet lacks nothing then, nor do the others: what was proven before does not make the node ready.
TEST(fleet_explain, an_operand_that_lost_its_pod_to_a_taint_or_a_selector_is_not_done) {
  Json moved = *daemonset("nvidia-device-plugin-daemonset", "device-plugin", {});
  set(moved, {"metadata", "namespace"}, "gpu-operator");
  set(moved, {"spec", "template", "spec", "nodeSelector", "foo"}, "bar");
  NodeChain chain = chain_of(gpu_node(), without(all_ready(), "nvidia-device-plugin-daemonset"),
                             {{"driver"}, {share(moved)}});
  EXPECT_EQ(
      link_of(chain),
      "plugin: DaemonSet nvidia-device-plugin-daemonset is not for this node: its nodeSelector asks for "
      "the label foo=bar, which the node has not; label the node so, or take what was added off the "
      "DaemonSet: kubectl -n gpu-operator edit daemonset nvidia-device-plugin-daemonset");
  EXPECT_TRUE(chain.broken_link()->kept_off);

  for (const char* effect : {"NoSchedule", "NoExecute"}) {
    Json node = gpu_node();
    set(node, {"spec", "taints"}, JsonArray{JsonObject{{"key", "team"}, {"value", "x"}, {"effect", effect}}});
    for (const auto& [app, label, stage] :
         {std::tuple{"nvidia-container-toolkit-daemonset", "container-toolkit", "toolkit"},
          {"nvidia-device-plugin-daemonset", "device-plugin", "plugin"},
          {"gpu-feature-discovery", "gpu-feature-discovery", "labels"},
          {"nvidia-dcgm-exporter", "dcgm-exporter", "telemetry"},
          {kValidator, "operator-validator", "driver"}}) {
      const Objects sets{daemonset(app, label, tolerating("nvidia.com/gpu"))};
      EXPECT_TRUE(chain_of(node, all_ready(), {{"driver"}, sets}).ready) << "its pod runs: " << app;
      chain = chain_of(node, without(all_ready(), app), {{"driver"}, sets});
      ASSERT_TRUE(chain.broken_link()) << app;
      EXPECT_EQ(chain.broken_link()->stage, stage);
      EXPECT_TRUE(chain.broken_link()->kept_off) << app;
      EXPECT_EQ(chain.broken_link()->evidence,
                "taint team=x:" + std::string(effect) + " of the node is not tolerated by DaemonSet " + app);
    }
  }
}

// A DaemonSet for each kernel: that of another one is no reason.
TEST(fleet_explain, drivers_of_other_nodes_do_not_keep_a_driver_off) {
  Json other = *daemonset("nvidia-driver-daemonset", "driver", {});
  set(other, {"spec", "template", "spec", "nodeSelector", "kernel"}, "6.9");
  EXPECT_TRUE(chain_of(gpu_node(), all_ready(), {{}, {share(other)}}).ready);
}

// --- what comes right by itself

TEST(fleet_explain, an_old_pod_that_is_ending_is_waited_for) {
  Objects pods = all_ready();
  Json old = pod("nvidia-driver-daemonset", kReady);
  set(old, {"metadata", "deletionTimestamp"}, "2026-01-01T00:01:00Z");
  pods.push_back(share(old));
  pods[2] = shared_pod("nvidia-device-plugin-daemonset", R"({"containerStatuses":[{"name":"d",
      "restartCount":1,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]})");
  NodeChain chain = chain_of(gpu_node(), pods);
  EXPECT_EQ(link_of(chain),
            "driver: the old pod nvidia-driver-daemonset-x is ending, and another comes when it is gone");
  EXPECT_FALSE(chain.broken_link()->failed);
  EXPECT_EQ(stage_of(chain, "plugin").state, StageState::kWaiting);
  // Also of a validation that fails meanwhile.
  pods[1] = share(noted({"driver", true, "nvidia-smi ended with code 9"}));
  EXPECT_FALSE(chain_of(gpu_node(), pods).broken_link()->failed);
  // With its successor there is nothing to wait for.
  Json next = pod("nvidia-driver-daemonset", kReady);
  pods.push_back(share(next));
  pods[1] = shared_pod(kValidator, kReady);
  EXPECT_EQ(chain_of(gpu_node(), pods).broken_link()->stage, "plugin");
  EXPECT_TRUE(chain_of(gpu_node(), pods).broken_link()->failed);
}

// The validator needs the toolkit's runtime, and only waits.
TEST(fleet_explain, an_image_that_cannot_be_pulled_is_named_before_who_waits_for_it) {
  for (const char* validator :
       {R"({"phase":"Pending","containerStatuses":[{"name":"nvidia-operator-validator",
            "state":{"waiting":{"reason":"ContainerCreating"}}}]})",
        R"({"phase":"Pending","initContainerStatuses":[{"name":"driver-validation",
            "state":{"waiting":{"reason":"PodInitializing"}}}]})"}) {
    const Objects pods{shared_pod(kValidator, validator),
                       shared_pod("nvidia-container-toolkit-daemonset", R"({"containerStatuses":[{"name":"t",
            "state":{"waiting":{"reason":"ImagePullBackOff","message":"not found"}}}]})")};
    EXPECT_EQ(link_of(chain_of(gpu_node(), pods, {{"driver"}, {}})),
              "toolkit: pod nvidia-container-toolkit-daemonset-x: container t: ImagePullBackOff: not found; "
              "check the image's repository, name, version and pull secrets in the policy");
    EXPECT_EQ(stage_of(chain_of(gpu_node(), {pods.front()}, {{"driver"}, {}}), "driver").pod,
              "nvidia-operator-validator-x");
  }
}

TEST(fleet_explain, cures_name_the_namespace) {
  Json validator = pod(kValidator, kReady);
  set(validator, {"metadata", "namespace"}, "gpus");
  const NodeChain chain = chain_of(gpu_node(), {share(validator)});
  EXPECT_NE(link_of(chain).find("kubectl -n gpus describe daemonset gpu-feature-discovery"),
            std::string::npos)
      << link_of(chain);
}

TEST(fleet_explain, a_definition_that_is_not_installed_is_told) {
  for (const char* answer : {"list clusterpolicies: 404 page not found",
                             "list clusterpolicies: the server could not find the requested resource"})
    EXPECT_EQ(definition_fault(answer).substr(0, 62),
              "the definition clusterpolicies.nvidia.com is not installed; in")
        << answer;
  EXPECT_EQ(definition_fault("list clusterpolicies: forbidden"), "");
  EXPECT_EQ(definition_fault(""), "");
}

TEST(fleet_explain, a_selector_that_excludes_the_node_is_named) {
  Json set_of = *daemonset(kValidator, "operator-validator", {});
  set(set_of, {"spec", "template", "spec", "nodeSelector", "zone"}, "a");
  const Missing why = why_missing(gpu_node(), {{}, {share(set_of)}}, kValidator);
  EXPECT_TRUE(why.certain);
  EXPECT_EQ(why.detail,
            "DaemonSet nvidia-operator-validator is not for this node: its nodeSelector asks for the label "
            "zone=a, which the node has not");
}

TEST(fleet_explain, a_node_that_feature_discovery_cannot_reach_is_told) {
  Json bare =
      *parse_json(R"({"metadata":{"name":"n"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}})");
  Json worker = *daemonset("nfd", "x", {});
  set(worker, {"spec", "template"},
      *parse_json(
          R"({"metadata":{"labels":{"role":"worker","app.kubernetes.io/name":"node-feature-discovery"}},
                      "spec":{}})"));
  const auto warnings = chain_of(bare, {}, {{}, {share(worker)}}).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings.front().find("taint a:NoSchedule is not tolerated"), std::string::npos);
}

// --- of the cluster

TEST(fleet_explain, other_resources_have_their_line) {
  const auto resource = [](const std::string& name, const std::string& state, const char* since) {
    return share(*parse_json(R"({"metadata":{"name":")" + name + R"(","creationTimestamp":")" + since +
                             R"("},"status":{"state":")" + state +
                             R"(","conditions":[{"type":"Error","status":"True","message":"why"}]}})"));
  };
  const auto old = resource("a", "notReady", "2026-01-01T00:00:00Z");
  const auto young = resource("b", "ignored", "2026-01-02T00:00:00Z");
  const auto cluster = resource("gc", "notReady", "2026-01-01T00:00:00Z");
  const std::string text = render(cluster_chain({{young, old}, {}, {}, {}, {cluster}, {}}));
  EXPECT_EQ(
      text.substr(0, text.find("NODE")),
      "ClusterPolicy a: notReady  (why)\nClusterPolicy b: ignored  (why)\nGPUCluster gc: notReady  (why)\n");
  const auto alone = cluster_chain({{}, {}, {}, {}, {cluster}, {}});
  EXPECT_EQ(render(alone).substr(0, 32), "GPUCluster gc: notReady  (why)\nN");
  EXPECT_EQ(first_broken_link(alone), "GPUCluster gc is notReady: why");
}

TEST(fleet_explain, notes_of_a_validation_come_back_as_they_were_written) {
  const hardware::ValidationNote note{"driver", true, "it \"ended\"\nwith 9"};
  EXPECT_EQ(hardware::parse_validation_note(hardware::format_validation_note(note)), note);
  for (const char* bad : {"", "x", "{}", R"({"step":1})", "{"})
    EXPECT_FALSE(hardware::parse_validation_note(bad)) << bad;
  const auto longest = hardware::parse_validation_note(
      hardware::format_validation_note({"driver", false, std::string(5000, 'x')}));
  EXPECT_LT(longest->message.size(), 1100u);
}

}  // namespace
}  // namespace gpuop::fleet
