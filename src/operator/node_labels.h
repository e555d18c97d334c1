// Which labels and annotations a node gets (operator.md §4). Pure: node in, patch out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "operator/node_choices.h"
#include "operator/taints.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {

// What of the active policy decides node labels.
struct LabelRules {
  bool sandbox = false;  // spec.sandboxWorkloads.enabled
  std::string default_workload = "container";
  std::string sandbox_mode = "kubevirt";     // or "kata"
  bool mig_manager = true;                   // spec.migManager.enabled
  std::string mig_default = "all-disabled";  // spec.migManager.config.default
  bool auto_upgrade = false;                 // driver.enabled, autoUpgrade, and no sandbox workloads (§4.5)
  // With NVIDIADriver resources each of them decides for the nodes that it owns: its name to its autoUpgrade.
  std::optional<std::map<std::string, bool>> auto_upgrade_by_owner;
  TaintRules taints;
  std::vector<Choice> choices;
  bool operator==(const LabelRules&) const = default;
};
LabelRules label_rules(const policy::ClusterPolicySpec& spec);

// How long a node whose GPU label vanished keeps what it has: feature discovery restarting drops its labels
// for a moment, and a driver torn down for that would take every workload with it (§4.1, ours).
inline constexpr Duration kVanishGrace = 60s;

struct NodeChange {
  // nullopt removes. Empty maps: nothing to write.
  std::map<std::string, std::optional<std::string>> labels;
  std::map<std::string, std::optional<std::string>> annotations;
  bool gpu = false;                   // the node has GPUs, or had them less than the grace ago
  std::optional<Duration> wait;       // decide again after this: the grace is running
  std::vector<std::string> warnings;  // for the log and the node's events
  std::vector<std::string> reasons;   // why, for explanations
  bool empty() const { return labels.empty() && annotations.empty(); }
};

// `vanished_for`: how long the node, still labelled gpu.present=true, has been seen without a GPU label by
// feature discovery; nullopt when it has one.
NodeChange decide_node(const JsonObject& labels, const JsonObject& annotations, const LabelRules& rules,
                       std::optional<Duration> vanished_for);

// Whether a change of a node's labels has all of them decided anew (§3.5). Deploy labels that come, go or
// change do not, but for the one of all operands.
bool concerns_labels(const JsonObject& before, const JsonObject& now);

// What of a node's labels and annotations goes when the operator is uninstalled: its own, with the values
// that it and the operands write. A label that the user set to "false", or to anything else, stays.
NodeChange decide_leave(const JsonObject& labels, const JsonObject& annotations);

// Feature discovery found an NVIDIA display controller (§4.1, the wider key pattern included).
bool has_gpu_feature(const JsonObject& labels);
// Any feature.node.kubernetes.io/ label.
bool has_feature_labels(const JsonObject& labels);
// "container", "vm-passthrough" or "vm-vgpu"; a bad value of the node's label adds a warning.
std::string workload_of(const JsonObject& labels, const LabelRules& rules,
                        std::vector<std::string>& warnings);
bool mig_capable(const JsonObject& labels);

// The merge patch that carries out `change`.
Json node_patch(const NodeChange& change);

}  // namespace gpuop::op
