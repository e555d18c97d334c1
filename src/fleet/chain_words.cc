// The words of chains: links, the cluster's chain, the table.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "fleet/chain.h"
#include "fleet/missing.h"
#include "fleet/refusals.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::array kColumns = {"discovered", "driver", "toolkit", "cuda", "plugin", "labels", "telemetry"};

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

// What was written of an earlier generation says nothing of this one.
bool is_seen(const Json& object) {
  const auto generation = get_int(object, {"metadata", "generation"});
  return get_int(object, {"status", "observedGeneration"}, generation) >= generation;
}

// The condition whose message tells most; null when none has one.
const Json* telling_condition(const Json& object) {
  if (!is_seen(object)) return nullptr;
  for (const char* type : {"Error", "Ready"}) {
    const Json* condition = kube::condition(object, type);
    if (condition && !get_string(*condition, {"message"}).empty()) return condition;
  }
  return nullptr;
}

OtherResource resource_of(const Json& object, std::string kind) {
  const Json* condition = telling_condition(object);
  return {std::move(kind), std::string(kube::name_of(object)),
          is_seen(object) ? std::string(get_string(object, {"status", "state"})) : "",
          condition ? std::string(get_string(*condition, {"message"})) : ""};
}

// The policy in force: the oldest that is not ignored (operator.md §1.3).
const Json* active_of(const Objects& policies) {
  const auto rank = [](const Json& policy) {
    return std::tuple(get_string(policy, {"status", "state"}) == "ignored",
                      get_string(policy, {"metadata", "creationTimestamp"}), kube::name_of(policy));
  };
  const Json* found = nullptr;
  for (const auto& policy : policies)
    if (!found || rank(*policy) < rank(*found)) found = policy.get();
  return found;
}

std::string line_of(const OtherResource& resource) {
  return resource.kind + " " + resource.name + ": " +
         (resource.state.empty() ? "not seen by the operator yet" : resource.state) +
         (resource.message.empty() ? "" : "  (" + resource.message + ")") + "\n";
}

const OtherResource* gpu_cluster_of(const ClusterChain& chain) {
  const auto found = std::ranges::find(chain.others, "GPUCluster", &OtherResource::kind);
  return found == chain.others.end() ? nullptr : &*found;
}

std::string pad(std::string text, std::size_t size) {
  // Counts characters, not bytes.
  std::size_t shown = 0;
  for (const unsigned char c : text) shown += (c & 0xc0U) != 0x80U ? 1 : 0;
  if (shown < size) text.append(size - shown, ' ');
  return text;
}

std::string render_node(const NodeChain& node, std::size_t width, bool served) {
  const std::string_view ready = !node.gpu ? "-" : node.unserved ? "off" : node.ready ? "yes" : "no";
  std::string out = pad(node.name, width) + "  " + pad(std::string(ready), 5) + "  ";
  for (std::size_t i = 0; i < std::min(node.stages.size(), kColumns.size()); ++i)
    out += pad(std::string(state_name(node.stages[i].state)), 12);
  out += node.gpu ? node.product : "no NVIDIA GPU";
  while (out.ends_with(' ')) out.pop_back();
  out += "\n";
  const std::string start = pad("", width) + "  ";
  // Without a policy nothing is on its way.
  if (const auto broken = node.broken_link(); broken && served) out += start + broken->text() + "\n";
  // What is off on this node alone; several by one label are one line.
  std::map<std::string, std::vector<std::string>> off;
  for (const auto& stage : node.stages)
    if (stage.state == StageState::kOff && stage.here) off[stage.detail].push_back(stage.name);
  for (const auto& [why, stages] : off) out += start + join(stages, ", ") + ": " + why + "\n";
  for (const auto& warning : node.warnings) out += start + "! " + warning + "\n";
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
  static const std::set<std::string_view> kGates = {"driver", "toolkit", "cuda", "plugin"};
  const Stage* first = nullptr;
  for (const auto& stage : stages) {
    if (stage.state == StageState::kDone || stage.state == StageState::kOff) continue;
    if (!first) first = &stage;
    // A toolkit whose image cannot be pulled keeps a validator from starting, which says nothing of it.
    const bool blamed = first->state == StageState::kFailed || first->kept_off;
    if (!blamed && stage.by_itself && kGates.contains(stage.name)) return &stage;
  }
  return first;
}

bool NodeChain::usable() const {
  static const std::set<std::string_view> kNeeded = {"discovered", "driver", "toolkit",
                                                     "cuda",       "plugin", "nvidia-sandbox-validator"};
  return gpu && node_fault.empty() && std::ranges::all_of(stages, [](const Stage& stage) {
           return !kNeeded.contains(stage.name) || stage.state == StageState::kDone ||
                  stage.state == StageState::kOff;
         });
}

std::vector<std::string> policy_fields() {
  return {"spec.driver.enabled",
          "spec.driver.useNvidiaDriverCRD",
          "spec.toolkit.enabled",
          "spec.devicePlugin.enabled",
          "spec.gfd.enabled",
          "spec.dcgmExporter.enabled",
          "status"};
}
std::vector<std::string> node_fields() {
  return {"spec.taints", "status.allocatable", "status.capacity", "status.conditions"};
}
std::vector<std::string> pod_fields() {
  return {"spec.nodeName",
          "spec.affinity!spec.nodeName",
          "status.phase",
          "status.reason",
          "status.message",
          "status.conditions",
          "status.containerStatuses",
          "status.initContainerStatuses"};
}
std::vector<std::string> daemonset_fields() {
  return {"spec.template.metadata.labels",  "spec.template.spec.nodeSelector", "spec.template.spec.affinity",
          "spec.template.spec.tolerations", "spec.template.spec.hostNetwork",  "spec.updateStrategy.type",
          "status.desiredNumberScheduled",  "status.currentNumberScheduled"};
}

std::string BrokenLink::text() const {
  return stage + ": " + evidence + (cure.empty() ? "" : "; " + cure);
}

std::optional<BrokenLink> NodeChain::broken_link() const {
  if (!gpu || ready) return std::nullopt;
  BrokenLink link;
  if (!node_fault.empty()) {
    link = {"node", {}, node_fault, node_cure, true};
  } else if (const Stage* stage = first_broken()) {
    link = {stage->name,
            {},
            stage->detail.empty() ? "in progress" : stage->detail,
            stage->cure,
            stage->state == StageState::kFailed,
            stage->kept_off};
  } else {
    return std::nullopt;
  }
  link.reason = camel_case(link.stage) + (link.failed ? "Failed" : "NotReady");
  return link;
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

ClusterChain cluster_chain(const ClusterObjects& objects) {
  ClusterChain chain;
  const Json* active = active_of(objects.policies);
  if (active) {
    const OtherResource policy = resource_of(*active, "ClusterPolicy");
    chain.policy = policy.name;
    chain.policy_state = policy.state;
    if (const Json* condition = telling_condition(*active)) {
      chain.message = get_string(*condition, {"message"});
      chain.reason = get_string(*condition, {"reason"});
    }
  }
  for (const auto& policy : objects.policies)
    if (policy.get() != active) chain.others.push_back(resource_of(*policy, "ClusterPolicy"));
  for (const auto& each : objects.gpu_clusters) chain.others.push_back(resource_of(*each, "GPUCluster"));
  for (const auto& each : objects.drivers) chain.others.push_back(resource_of(*each, "NVIDIADriver"));
  std::map<std::string_view, Objects> by_node;
  for (const auto& pod : objects.pods) by_node[target_node(*pod)].push_back(pod);
  const ChainFacts facts{switched_off(objects.policies), objects.daemonsets, refused_pods(objects.events)};
  for (const auto& node : objects.nodes)
    chain.nodes.push_back(chain_of(*node, by_node[kube::name_of(*node)], facts));
  std::ranges::sort(chain.nodes, {}, &NodeChain::name);
  return chain;
}

std::string first_broken_link(const ClusterChain& chain) {
  const OtherResource* cluster = gpu_cluster_of(chain);
  if (chain.policy.empty() && cluster)
    return "GPUCluster " + cluster->name + " is " +
           (cluster->state.empty() ? "not seen by the operator" : cluster->state) +
           (cluster->message.empty() ? "" : ": " + cluster->message);
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
  // Who would say otherwise does not work.
  const std::string old = chain.operator_fault.empty() || chain.policy_state.empty() ? "" : ", as last told";
  if (!chain.policy.empty())
    out += line_of({"ClusterPolicy", chain.policy, chain.policy_state + old, chain.message});
  else if (!gpu_cluster_of(chain))
    out += "No ClusterPolicy: nothing is deployed until one is created.\n";
  for (const auto& other : chain.others) out += line_of(other);
  std::size_t width = 4;
  for (const auto& node : chain.nodes) width = std::max(width, node.name.size());
  out += pad("NODE", width) + "  READY  ";
  for (const char* name : kColumns) out += pad(name, 12);
  out += "GPUS\n";
  for (const auto& node : chain.nodes) out += render_node(node, width, !chain.policy.empty());
  return out;
}

}  // namespace gpuop::fleet
