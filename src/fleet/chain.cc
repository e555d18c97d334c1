#include "fleet/chain.h"

#include <algorithm>
#include <array>
#include <cctype>
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

// The driver's pod: its app differs with the way it is deployed (one for all, by kernel, by NVIDIADriver).
const Json* driver_pod(const Objects& pods) {
  Objects drivers;
  for (const auto& pod : pods) {
    if (kube::label(*pod, "app") == "nvidia-driver-daemonset" ||
        kube::label(*pod, "app.kubernetes.io/component") == "nvidia-driver")
      drivers.push_back(pod);
  }
  return drivers.empty() ? nullptr : pod_of(drivers, kube::label(*drivers.back(), "app"));
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
  stage.cure = fault.cure;
}

constexpr const char* kAskDaemonSet = "see why its DaemonSet makes none: kubectl describe daemonset ";

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
                        !deploy_label(node, "sandbox-validator").empty() ||
                        kube::label(node, "nvidia.com/gpu.deploy.operands") == "false";
  if (present && labelled)
    stage.state = StageState::kDone;
  else
    stage.detail = present ? "the operator has not assigned operands yet"
                           : "waiting for the operator's label nvidia.com/gpu.present";
  if (stage.state != StageState::kDone)
    stage.cure = "check that a ClusterPolicy exists and that the operator runs and leads";
  return stage;
}

// What the validator does, in its order.
constexpr std::array<std::string_view, 4> kSteps = {"driver", "toolkit", "cuda", "plugin"};

// The step at which a container that does all of them failed last, by the message that it left; the end where
// it left none.
auto failed_step(const Json& status) {
  for (std::string_view state : {"state", "lastState"}) {
    const auto message = get_string(status, {state, "terminated", "message"});
    const auto step = std::ranges::find(kSteps, message.substr(0, message.find(": ")));
    if (step != kSteps.end()) return step;
  }
  return kSteps.end();
}

// The status of the validator's container that proves `name`: an init container for it, as upstream has them,
// or our one for all. `passed`: that the step is behind it; of ours this shows by the step at which it failed
// or, as long as none did, by what else was `seen`.
const Json* proving(const Json& validator, std::string_view name, bool seen, bool& passed) {
  if (!get_array(validator, {"status", "initContainerStatuses"}).empty()) {
    const Json* status = status_of(validator, std::string(name) + "-validation");
    passed = completed(status);
    return status;
  }
  const Json* status = status_of(validator, kValidator);
  if (status == nullptr) return nullptr;
  const auto step = failed_step(*status);
  passed = step == kSteps.end() && seen;
  if (step == kSteps.end() || *step == name) return status;
  passed = std::ranges::find(kSteps, name) < step;
  return nullptr;
}

// A stage that the validator's pod proves. `seen`: something else shows that it has.
Stage validated(const std::string& name, const Json* validator, const Json* worker, bool seen) {
  Stage stage = new_stage(name);
  if (validator) {
    bool passed = false;
    const Json* status = proving(*validator, name, seen, passed);
    if (passed || pod_ready(*validator)) {
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
      if (auto fault = container_fault(*validator, *status)) failed(stage, *validator, *fault);
    }
  } else {
    stage.detail = "pod of " + std::string(kValidator) + " is not there yet";
    stage.cure = kAskDaemonSet + std::string(kValidator);
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

bool any_allocatable(const std::map<std::string, std::int64_t>& allocatable) {
  return std::ranges::any_of(allocatable, [](const auto& resource) { return resource.second > 0; });
}

std::string allocatable_of(std::string_view resource, std::int64_t have, std::int64_t all) {
  return std::string(resource) + ": " + std::to_string(have) + " of " + std::to_string(all) + " allocatable";
}

// Why none of the vendor's resources is allocatable (MIG profiles, shared GPUs and names that a plugin's
// configuration gave count too); "" when one is.
std::string no_resource(const Json& node) {
  const auto ours = [](std::string_view name) { return name.starts_with("nvidia.com/"); };
  const auto count = [](const Json& quantity) { return kube::parse_quantity(quantity).value_or(0); };
  for (const auto& [name, quantity] : get_object(node, {"status", "allocatable"})) {
    if (ours(name) && count(quantity) > 0) return {};
  }
  std::vector<std::string> none;
  for (const auto& [name, quantity] : get_object(node, {"status", "capacity"})) {
    if (ours(name)) none.push_back(allocatable_of(name, 0, count(quantity)));
  }
  std::ranges::sort(none);
  return none.empty() ? "no GPU is advertised" : join(none, ", ");
}

Stage advertised(const Json& node, const std::map<std::string, std::int64_t>& allocatable,
                 const Json* validator, const Json* plugin, const std::set<std::string>& off) {
  Stage stage = validated("plugin", validator, plugin, false);
  if (stage.state != StageState::kDone) return stage;
  if (any_allocatable(allocatable)) {
    std::vector<std::string> parts;
    parts.reserve(allocatable.size());
    for (const auto& [name, count] : allocatable) parts.push_back(name + "=" + std::to_string(count));
    stage.detail = join(parts, ", ");
    return stage;
  }
  const bool none = !plugin && off.contains("plugin");
  if (deploy_label(node, "device-plugin") == "false" || none) {
    stage.state = StageState::kOff;
    return stage;
  }
  stage.detail = no_resource(node);
  if (stage.detail.empty()) return stage;  // resources that a plugin's configuration renamed
  stage.state = StageState::kWorking;
  if (plugin) {
    stage.cure = "run nvidia-smi on the node, and read what the device plugin says: kubectl logs " +
                 std::string(kube::name_of(*plugin));
  }
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
    if (!owner || get_string(*owner, {"kind"}) != "DaemonSet" || app.empty() || kShown.contains(app) ||
        kube::label(*pod, "app.kubernetes.io/component") == "nvidia-driver")
      continue;
    by_app[app] = pod_of(pods, app);
  }
  std::vector<Stage> out;
  for (const auto& [app, pod] : by_app) {
    if (pod && !pod_ready(*pod)) out.push_back(operand(std::string(app), pod, true));
  }
  return out;
}

constexpr std::array kColumns = {"discovered", "driver", "toolkit", "cuda", "plugin", "labels", "telemetry"};

bool has_gpu(const Json& node) {
  if (kube::label(node, "nvidia.com/gpu.present") == "true") return true;
  const auto& labels = get_object(node, {"metadata", "labels"});
  return std::ranges::any_of(labels, [](const auto& label) {
    const std::string_view name = label.key();
    return name.starts_with("feature.node.kubernetes.io/pci-") &&
           name.find("10de") != std::string_view::npos && name.ends_with(".present") &&
           as_text(label.value()) == "true";
  });
}

// Fills in the GPU resources and answers those of which not all are allocatable:
// "nvidia.com/gpu: 7 of 8 allocatable".
std::vector<std::string> count_gpus(const Json& node, std::map<std::string, std::int64_t>& allocatable) {
  for (const auto& [name, quantity] : get_object(node, {"status", "allocatable"})) {
    if (is_gpu_resource(name)) allocatable[std::string(name)] = kube::parse_quantity(quantity).value_or(0);
  }
  std::vector<std::string> short_of;
  for (const auto& [name, quantity] : get_object(node, {"status", "capacity"})) {
    const auto all = kube::parse_quantity(quantity).value_or(0);
    const auto found = allocatable.find(std::string(name));
    if (!is_gpu_resource(name) || found == allocatable.end() || found->second >= all) continue;
    short_of.push_back(allocatable_of(found->first, found->second, all));
  }
  std::ranges::sort(short_of);
  return short_of;
}

// "nvidia-mig-manager" "NvidiaMigManager"
std::string camel_case(std::string_view text) {
  std::string out;
  bool upper = true;
  for (const char c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = !letter;
  }
  return out;
}

// What other pods show of the steps that the validator's pod has behind it: each waits for one of them.
struct Seen {
  bool driver = false, toolkit = false, cuda = false;
};

// Pods of one roll-out are made within this. What is older tells of an earlier validation.
constexpr Duration kTogether = 60s;

Seen seen_of(const Objects& pods, const Json* validator, const Json* toolkit, const Json* plugin) {
  const auto created = [](const Json& pod) {
    return parse_time(get_string(pod, {"metadata", "creationTimestamp"})).value_or(Time{});
  };
  const auto counts = [&](const Json* pod) {
    return pod && created(*pod) + kTogether >= created(*validator);
  };
  Seen seen;
  if (!validator) return seen;
  const Json* cuda = pod_of(pods, "nvidia-cuda-validator");
  seen.cuda = counts(cuda) && get_string(*cuda, {"status", "phase"}) == "Succeeded";
  seen.toolkit = seen.cuda || (counts(plugin) && completed(status_of(*plugin, "toolkit-validation")));
  seen.driver = seen.toolkit || (counts(toolkit) && pod_ready(*toolkit));
  return seen;
}

// The stages of a node whose GPUs containers use.
void container_stages(NodeChain& chain, const Json& node, const Objects& pods,
                      const std::set<std::string>& off) {
  const Json* validator = pod_of(pods, kValidator);
  const Json* driver = driver_pod(pods);
  const Json* toolkit = pod_of(pods, "nvidia-container-toolkit-daemonset");
  const Json* plugin = pod_of(pods, "nvidia-device-plugin-daemonset");
  const Seen seen = seen_of(pods, validator, toolkit, plugin);
  chain.stages.push_back(validated("driver", validator, driver, seen.driver));
  describe_driver(chain.stages.back(), node, driver);
  chain.stages.push_back(validated("toolkit", validator, toolkit, seen.toolkit));
  chain.stages.push_back(validated("cuda", validator, nullptr, seen.cuda));
  chain.stages.push_back(advertised(node, chain.allocatable, validator, plugin, off));
  if (plugin && pod_ready(*plugin)) chain.plugin_pod = kube::name_of(*plugin);
  const auto wanted = [&](const char* stage, std::string_view label) {
    return deploy_label(node, label) == "true" && validator && !off.contains(stage);
  };
  chain.stages.push_back(
      operand("labels", pod_of(pods, "gpu-feature-discovery"), wanted("labels", "gpu-feature-discovery")));
  if (chain.stages.back().state == StageState::kDone && kube::label(node, "nvidia.com/gpu.product").empty()) {
    chain.stages.back().state = StageState::kWorking;
    chain.stages.back().detail = "the node has no label nvidia.com/gpu.product yet";
  }
  chain.stages.push_back(
      operand("telemetry", pod_of(pods, "nvidia-dcgm-exporter"), wanted("telemetry", "dcgm-exporter")));
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

bool NodeChain::usable() const {
  static const std::set<std::string_view> kNeeded = {"discovered", "driver", "toolkit",
                                                     "cuda",       "plugin", "nvidia-sandbox-validator"};
  return gpu && node_fault.empty() && std::ranges::all_of(stages, [](const Stage& stage) {
           return !kNeeded.contains(stage.name) || stage.state == StageState::kDone ||
                  stage.state == StageState::kOff;
         });
}

std::string BrokenLink::text() const {
  return stage + ": " + evidence + (cure.empty() ? "" : "; " + cure);
}

std::optional<BrokenLink> NodeChain::broken_link() const {
  if (!gpu || ready) return std::nullopt;
  BrokenLink link;
  if (!node_fault.empty()) {
    link = {"node",
            {},
            node_fault,
            "look at the kubelet on the node; nothing of its GPUs is known meanwhile",
            true};
  } else if (const Stage* stage = first_broken()) {
    link = {stage->name,
            {},
            stage->detail.empty() ? "in progress" : stage->detail,
            stage->cure,
            stage->state == StageState::kFailed};
  } else {
    return std::nullopt;
  }
  link.reason = camel_case(link.stage) + (link.failed ? "Failed" : "NotReady");
  return link;
}

// A node that does not say whether it is ready is none of a kubelet's, or brand new.
std::string node_fault(const Json& node) {
  const Json* ready = kube::condition(node, "Ready");
  if (!ready || get_string(*ready, {"status"}) == "True") return {};
  const std::string message(get_string(*ready, {"message"}));
  return "the node is not ready" + (message.empty() ? "" : ": " + message);
}

std::string not_allocatable(const Json& node) {
  if (deploy_label(node, "device-plugin") != "true" || has(node, {"metadata", "deletionTimestamp"}))
    return {};
  return no_resource(node);
}

std::set<std::string> switched_off(const Objects& policies) {
  std::set<std::string> out;
  for (const auto& policy : policies) {
    if (get_string(*policy, {"status", "state"}) == "ignored") continue;
    if (!get_bool(*policy, {"spec", "devicePlugin", "enabled"}, true)) out.emplace("plugin");
    if (!get_bool(*policy, {"spec", "gfd", "enabled"}, true)) out.emplace("labels");
    if (!get_bool(*policy, {"spec", "dcgmExporter", "enabled"}, true)) out.emplace("telemetry");
  }
  return out;
}

NodeChain chain_of(const Json& node, const Objects& pods, const std::set<std::string>& off) {
  NodeChain chain;
  chain.name = kube::name_of(node);
  chain.gpu = has_gpu(node);
  chain.warnings = discovery_faults(pods);
  if (!chain.gpu) return chain;
  chain.node_fault = node_fault(node);
  const auto product = kube::label(node, "nvidia.com/gpu.product");
  if (!product.empty()) {
    chain.product = std::string(kube::label(node, "nvidia.com/gpu.count")) + " × " + std::string(product);
  }
  const std::vector<std::string> short_of = count_gpus(node, chain.allocatable);
  chain.stages.push_back(discovered(node));
  const auto wanted = deploy_label(node, "operator-validator");
  if (pod_of(pods, kValidator) || chain.stages.back().state != StageState::kDone ||
      (!wanted.empty() && wanted != "false")) {
    container_stages(chain, node, pods, off);
  } else {
    // No containers get GPUs here: virtual machines do, or nobody.
    for (const char* name : kColumns) {
      if (std::string_view(name) == "discovered") continue;
      chain.stages.push_back(new_stage(name));
      chain.stages.back().state = StageState::kOff;
    }
    if (deploy_label(node, "sandbox-validator") == "true")
      chain.stages.push_back(
          operand("nvidia-sandbox-validator", pod_of(pods, "nvidia-sandbox-validator"), true));
  }
  if (any_allocatable(chain.allocatable))
    chain.warnings.insert(chain.warnings.end(), short_of.begin(), short_of.end());
  for (Stage& stage : others(pods)) chain.stages.push_back(std::move(stage));

  // What stands behind an unfinished stage waits for it, unless it says otherwise itself.
  bool open = true;
  for (auto& stage : chain.stages) {
    if (!open && stage.state == StageState::kWorking) {
      stage.state = StageState::kWaiting;
      stage.detail.clear();
      stage.cure.clear();
    }
    if (stage.state != StageState::kDone && stage.state != StageState::kOff) open = false;
  }
  chain.ready = open && chain.node_fault.empty();
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
    // A state that was written of an earlier generation says nothing of this one.
    const auto generation = get_int(*policy, {"metadata", "generation"});
    const bool seen = get_int(*policy, {"status", "observedGeneration"}, generation) >= generation;
    chain.policy_state = seen ? state : std::string_view();
    chain.message.clear();
    chain.reason.clear();
    if (!seen) continue;
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
  const std::set<std::string> off = switched_off(policies);
  for (const auto& node : nodes) chain.nodes.push_back(chain_of(*node, by_node[kube::name_of(*node)], off));
  std::sort(chain.nodes.begin(), chain.nodes.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return chain;
}

std::string first_broken_link(const ClusterChain& chain) {
  if (chain.policy.empty()) return "there is no ClusterPolicy: nothing is deployed until one is created";
  if (!chain.operator_fault.empty()) return "operator: " + chain.operator_fault;
  for (const auto& node : chain.nodes) {
    if (const auto broken = node.broken_link()) return "node " + node.name + ", stage " + broken->text();
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
    // Without a policy nothing is on its way.
    if (const auto broken = node.broken_link(); broken && !chain.policy.empty())
      out += pad("", width) + "  " + broken->text() + "\n";
    for (const auto& warning : node.warnings) out += pad("", width) + "  ! " + warning + "\n";
  }
  return out;
}

}  // namespace gpuop::fleet
