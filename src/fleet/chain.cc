#include "fleet/chain.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "fleet/faults.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kValidator = "nvidia-operator-validator";

// The pod of an operand on this node: the newest that is not being deleted.
const Json* pod_of(const Objects& pods, std::string_view app) {
  const Json* found = nullptr;
  for (const auto& pod : pods) {
    if (kube::label(*pod, "app") != app || has(*pod, {"metadata", "deletionTimestamp"})) continue;
    if (!found || get_string(*pod, {"metadata", "creationTimestamp"}) >
                      get_string(*found, {"metadata", "creationTimestamp"})) {
      found = pod.get();
    }
  }
  return found;
}

const Json* status_of(const Json& pod, std::string_view container) {
  for (std::string_view list : {"initContainerStatuses", "containerStatuses"}) {
    for (const auto& status : get_array(pod, {"status", list})) {
      if (get_string(status, {"name"}) == container) return &status;
    }
  }
  return nullptr;
}

bool completed(const Json* status) {
  return status && has(*status, {"state", "terminated"}) &&
         get_int(*status, {"state", "terminated", "exitCode"}, -1) == 0;
}

std::string deploy_label(const Json& node, std::string_view operand) {
  return std::string(kube::label(node, "nvidia.com/gpu.deploy." + std::string(operand)));
}

void failed(Stage& stage, const Json& pod, const Fault& fault) {
  stage.state = StageState::kFailed;
  stage.pod = kube::name_of(pod);
  stage.detail = "pod " + stage.pod + ": " + fault.text;
  stage.log = fault.log;
  stage.stuck = fault.stuck;
}

void not_ready(Stage& stage, const Json& pod) {
  stage.pod = kube::name_of(pod);
  stage.detail = "pod " + stage.pod + " is not ready yet";
}

Stage new_stage(std::string name) {
  Stage stage;
  stage.name = std::move(name);
  stage.state = StageState::kWorking;
  return stage;
}

Stage discovered(const Json& node) {
  Stage stage = new_stage("discovered");
  const bool present = kube::label(node, "nvidia.com/gpu.present") == "true";
  const bool labelled = !deploy_label(node, "operator-validator").empty() ||
                        !deploy_label(node, "device-plugin").empty() ||
                        kube::label(node, "nvidia.com/gpu.deploy.operands") == "false";
  if (present && labelled)
    stage.state = StageState::kDone;
  else
    stage.detail = present ? "the operator has not assigned operands yet"
                           : "waiting for the operator's label nvidia.com/gpu.present";
  return stage;
}

// A stage that an init container of the validator's pod proves.
Stage validated(const std::string& name, const std::string& init, const Json* validator, const Json* worker) {
  Stage stage = new_stage(name);
  if (validator) {
    const Json* status = status_of(*validator, init);
    if (completed(status) || pod_ready(*validator)) {
      stage.state = StageState::kDone;
      // What was proven once need not hold any more.
      if (worker && !pod_ready(*worker)) {
        stage.state = StageState::kWorking;
        not_ready(stage, *worker);
        if (auto fault = fault_of(*worker)) failed(stage, *worker, *fault);
      }
      return stage;
    }
    if (status && has(*status, {"state", "running"})) stage.detail = "being validated";
    if (status) {
      if (auto fault = container_fault(kube::name_of(*validator), *status)) failed(stage, *validator, *fault);
    }
  } else {
    stage.detail = "pod of " + std::string(kValidator) + " is not there yet";
  }
  // The operand's own fault explains more than the validator that waits for it.
  if (worker) {
    if (auto fault = fault_of(*worker)) {
      failed(stage, *worker, *fault);
    } else if (!pod_ready(*worker) && stage.detail.empty()) {
      not_ready(stage, *worker);
    }
  }
  return stage;
}

Stage operand(const std::string& name, const Json* pod, bool wanted) {
  Stage stage = new_stage(name);
  if (!pod) {
    stage.state = wanted ? StageState::kWorking : StageState::kOff;
    if (wanted) stage.detail = "its pod is not there yet";
    return stage;
  }
  if (pod_ready(*pod)) {
    stage.state = StageState::kDone;
  } else if (auto fault = fault_of(*pod)) {
    failed(stage, *pod, *fault);
  } else {
    not_ready(stage, *pod);
  }
  return stage;
}

bool is_gpu_resource(std::string_view name) {
  return name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
}

// `short_of`: resources that are not allocatable in whole.
Stage advertised(const Json& node, const std::map<std::string, std::int64_t>& allocatable,
                 const std::vector<std::string>& short_of, const Json* validator, const Json* plugin) {
  Stage stage = validated("plugin", "plugin-validation", validator, plugin);
  if (stage.state != StageState::kDone) return stage;
  const bool any =
      std::any_of(allocatable.begin(), allocatable.end(), [](const auto& r) { return r.second > 0; });
  if (any) {
    std::vector<std::string> parts;
    for (const auto& [name, count] : allocatable) parts.push_back(name + "=" + std::to_string(count));
    stage.detail = join(parts, ", ");
    return stage;
  }
  // A policy without a device plugin has no validation of one either.
  const bool none = allocatable.empty() && !plugin && !status_of(*validator, "plugin-validation");
  if (deploy_label(node, "device-plugin") == "false" || none) {
    stage.state = StageState::kOff;
    return stage;
  }
  stage.state = StageState::kWorking;
  stage.detail = short_of.empty() ? "no GPU is advertised" : join(short_of, ", ");
  return stage;
}

void describe_driver(Stage& stage, const Json& node, const Json* driver_pod) {
  if (stage.state != StageState::kDone) return;
  stage.detail = driver_pod && pod_ready(*driver_pod) ? "driver container" : "preinstalled";
  const auto major = kube::label(node, "nvidia.com/cuda.driver-version.full");
  if (!major.empty()) stage.detail = std::string(major) + ", " + stage.detail;
}

// Without feature discovery's worker a node's labels are old, or it has none and its GPUs are unknown.
std::vector<std::string> discovery_faults(const Objects& pods) {
  std::vector<std::string> out;
  for (const auto& pod : pods) {
    if (kube::label(*pod, "role") != "worker" ||
        kube::label(*pod, "app.kubernetes.io/name") != "node-feature-discovery")
      continue;
    if (auto fault = fault_of(*pod))
      out.push_back("feature discovery: pod " + std::string(kube::name_of(*pod)) + ": " + fault->text);
  }
  return out;
}

// Operands without a stage of their own are shown where they are not ready: their policy is not either.
std::vector<Stage> others(const Objects& pods) {
  static const std::set<std::string_view> kShown = {kValidator,
                                                    "nvidia-driver-daemonset",
                                                    "nvidia-container-toolkit-daemonset",
                                                    "nvidia-device-plugin-daemonset",
                                                    "gpu-feature-discovery",
                                                    "nvidia-dcgm-exporter"};
  std::map<std::string_view, const Json*> by_app;
  for (const auto& pod : pods) {
    const Json* owner = kube::controller_of(*pod);
    const auto app = kube::label(*pod, "app");
    if (!owner || get_string(*owner, {"kind"}) != "DaemonSet" || app.empty() || kShown.contains(app))
      continue;
    by_app[app] = pod_of(pods, app);
  }
  std::vector<Stage> out;
  for (const auto& [app, pod] : by_app) {
    if (pod && !pod_ready(*pod)) out.push_back(operand(std::string(app), pod, true));
  }
  return out;
}

}  // namespace

std::string_view state_name(StageState state) {
  switch (state) {
    case StageState::kDone:
      return "done";
    case StageState::kWorking:
      return "working";
    case StageState::kWaiting:
      return "waiting";
    case StageState::kFailed:
      return "failed";
    case StageState::kOff:
      return "off";
  }
  return "";
}

const Stage* NodeChain::first_broken() const {
  for (const auto& stage : stages) {
    if (stage.state != StageState::kDone && stage.state != StageState::kOff) return &stage;
  }
  return nullptr;
}

NodeChain chain_of(const Json& node, const Objects& pods) {
  NodeChain chain;
  chain.name = kube::name_of(node);
  for (const auto& [key, value] : get_object(node, {"metadata", "labels"})) {
    const std::string_view name = key;
    if (name.starts_with("feature.node.kubernetes.io/pci-") && name.find("10de") != std::string_view::npos &&
        name.ends_with(".present") && as_text(value) == "true") {
      chain.gpu = true;
    }
  }
  chain.gpu = chain.gpu || kube::label(node, "nvidia.com/gpu.present") == "true";
  chain.warnings = discovery_faults(pods);
  if (!chain.gpu) return chain;
  const auto product = kube::label(node, "nvidia.com/gpu.product");
  if (!product.empty()) {
    chain.product = std::string(kube::label(node, "nvidia.com/gpu.count")) + " × " + std::string(product);
  }
  for (const auto& [name, quantity] : get_object(node, {"status", "allocatable"})) {
    if (is_gpu_resource(name))
      chain.allocatable[std::string(name)] = kube::parse_quantity(quantity).value_or(0);
  }
  std::vector<std::string> short_of;  // "nvidia.com/gpu: 7 of 8 allocatable"
  for (const auto& [name, quantity] : get_object(node, {"status", "capacity"})) {
    const auto all = kube::parse_quantity(quantity).value_or(0);
    const auto found = chain.allocatable.find(std::string(name));
    if (!is_gpu_resource(name) || found == chain.allocatable.end() || found->second >= all) continue;
    short_of.push_back(found->first + ": " + std::to_string(found->second) + " of " + std::to_string(all) +
                       " allocatable");
  }
  std::sort(short_of.begin(), short_of.end());

  const Json* validator = pod_of(pods, kValidator);
  const Json* driver = pod_of(pods, "nvidia-driver-daemonset");
  const Json* toolkit = pod_of(pods, "nvidia-container-toolkit-daemonset");
  const Json* plugin = pod_of(pods, "nvidia-device-plugin-daemonset");
  chain.stages.push_back(discovered(node));
  chain.stages.push_back(validated("driver", "driver-validation", validator, driver));
  describe_driver(chain.stages.back(), node, driver);
  chain.stages.push_back(validated("toolkit", "toolkit-validation", validator, toolkit));
  chain.stages.push_back(validated("cuda", "cuda-validation", validator, nullptr));
  chain.stages.push_back(advertised(node, chain.allocatable, short_of, validator, plugin));
  const bool any = std::any_of(chain.allocatable.begin(), chain.allocatable.end(),
                               [](const auto& r) { return r.second > 0; });
  if (any) chain.warnings.insert(chain.warnings.end(), short_of.begin(), short_of.end());
  if (plugin && pod_ready(*plugin)) chain.plugin_pod = kube::name_of(*plugin);
  chain.stages.push_back(operand("labels", pod_of(pods, "gpu-feature-discovery"),
                                 deploy_label(node, "gpu-feature-discovery") == "true" && validator));
  if (chain.stages.back().state == StageState::kDone && product.empty()) {
    chain.stages.back().state = StageState::kWorking;
    chain.stages.back().detail = "the node has no label nvidia.com/gpu.product yet";
  }
  chain.stages.push_back(operand("telemetry", pod_of(pods, "nvidia-dcgm-exporter"),
                                 deploy_label(node, "dcgm-exporter") == "true" && validator));

  for (Stage& stage : others(pods)) chain.stages.push_back(std::move(stage));

  // What stands behind an unfinished stage waits for it, unless it says otherwise itself.
  bool open = true;
  for (auto& stage : chain.stages) {
    if (!open && stage.state == StageState::kWorking) {
      stage.state = StageState::kWaiting;
      stage.detail.clear();
    }
    if (stage.state != StageState::kDone && stage.state != StageState::kOff) open = false;
  }
  chain.ready = open;
  return chain;
}

bool ClusterChain::ready() const {
  bool any = false;
  for (const auto& node : nodes) {
    if (!node.gpu) continue;
    any = true;
    if (!node.ready) return false;
  }
  return any && policy_state == "ready" && operator_fault.empty();
}

ClusterChain cluster_chain(const Objects& policies, const Objects& nodes, const Objects& pods) {
  ClusterChain chain;
  for (const auto& policy : policies) {
    const auto state = get_string(*policy, {"status", "state"});
    if (!chain.policy.empty() && state == "ignored") continue;
    chain.policy = kube::name_of(*policy);
    chain.policy_state = state;
    chain.message.clear();
    chain.reason.clear();
    for (const char* type : {"Error", "Ready"}) {
      const Json* condition = kube::condition(*policy, type);
      if (condition && !get_string(*condition, {"message"}).empty()) {
        chain.message = get_string(*condition, {"message"});
        chain.reason = get_string(*condition, {"reason"});
        break;
      }
    }
  }
  std::map<std::string_view, Objects> by_node;
  for (const auto& pod : pods) by_node[get_string(*pod, {"spec", "nodeName"})].push_back(pod);
  for (const auto& node : nodes) chain.nodes.push_back(chain_of(*node, by_node[kube::name_of(*node)]));
  std::sort(chain.nodes.begin(), chain.nodes.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return chain;
}

std::string first_broken_link(const ClusterChain& chain) {
  for (const auto& node : chain.nodes) {
    const auto* broken = node.gpu ? node.first_broken() : nullptr;
    if (broken) {
      return "node " + node.name + ", stage " + broken->name + ": " +
             (broken->detail.empty() ? std::string("not finished") : broken->detail);
    }
  }
  const bool any =
      std::any_of(chain.nodes.begin(), chain.nodes.end(), [](const auto& node) { return node.gpu; });
  if (!any) return "no node was recognized as having NVIDIA GPUs";
  return "ClusterPolicy " + chain.policy + " is " +
         (chain.policy_state.empty() ? "not seen by the operator" : chain.policy_state) +
         (chain.message.empty() ? "" : ": " + chain.message);
}

std::string render(const ClusterChain& chain) {
  std::string out;
  if (!chain.operator_fault.empty()) out += "OPERATOR: " + chain.operator_fault + "\n";
  if (chain.policy.empty()) {
    out += "No ClusterPolicy: nothing is deployed until one is created.\n";
  } else {
    out += "ClusterPolicy " + chain.policy + ": " +
           (chain.policy_state.empty() ? "not seen by the operator yet" : chain.policy_state);
    if (!chain.message.empty()) out += "  (" + chain.message + ")";
    out += "\n";
  }
  std::size_t width = 4;
  for (const auto& node : chain.nodes) width = std::max(width, node.name.size());
  const auto pad = [](std::string text, std::size_t size) {
    // Counts characters, not bytes.
    std::size_t shown = 0;
    for (unsigned char c : text) shown += (c & 0xc0) != 0x80;
    if (shown < size) text.append(size - shown, ' ');
    return text;
  };
  out += pad("NODE", width) + "  READY  ";
  constexpr std::array kColumns = {"discovered", "driver", "toolkit",  "cuda",
                                   "plugin",     "labels", "telemetry"};
  for (const char* name : kColumns) out += pad(name, 12);
  out += "GPUS\n";
  for (const auto& node : chain.nodes) {
    out += pad(node.name, width) + "  " + pad(!node.gpu ? "-" : node.ready ? "yes" : "no", 5) + "  ";
    for (std::size_t i = 0; i < std::min(node.stages.size(), kColumns.size()); ++i)
      out += pad(std::string(state_name(node.stages[i].state)), 12);
    if (!node.gpu)
      out += "no NVIDIA GPU";
    else
      out += node.product;
    while (out.ends_with(' ')) out.pop_back();
    out += "\n";
    if (const Stage* broken = node.first_broken(); broken && node.gpu) {
      out += pad("", width) + "  " + broken->name + ": " +
             (broken->detail.empty() ? "in progress" : broken->detail) + "\n";
    }
    for (const auto& warning : node.warnings) out += pad("", width) + "  ! " + warning + "\n";
  }
  return out;
}

}  // namespace gpuop::fleet
