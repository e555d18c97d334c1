// Which taints a GPU node gets and loses (ClusterPolicy spec.fleet, an addition of ours). Pure.
//
// Two taints, both with the effect NoSchedule: the startup taint from when a node joins or starts until its
// GPUs are validated, and the dedicated-node taint on every GPU node. What the operator put on a node is
// written down in an annotation of the node, so that a taint of the same key which somebody else put there
// stays when ours goes: ours have no value. A node may also be registered with the startup taint, with
// whatever value its administrator likes; that one goes when the node is validated, as its registration means
// it, and for no other reason.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {

// The taints that the operator put on a node, or takes off it once it is validated: KEY of one of ours,
// KEY=VALUE of one that the node was registered with; joined with commas.
inline constexpr std::string_view kTaintsAnnotation = "nvidia.com/gpu-operator.taints";
// The boot in which the node's GPUs were validated: an operand that restarts later brings no startup taint
// back.
inline constexpr std::string_view kValidatedAnnotation = "nvidia.com/gpu-operator.validated-boot";

// The taints that a policy asks for; "" for none.
struct TaintRules {
  std::string startup;
  std::string dedicated;
  bool operator==(const TaintRules&) const = default;
};
TaintRules taint_rules(const policy::ClusterPolicySpec& spec);
// As core/v1 Taints, for what must tolerate them.
JsonArray own_taints(const TaintRules& rules);
// Adds a toleration for each of `taints` that the pod does not tolerate.
void tolerate(Json& pod_spec, const JsonArray& taints);

struct TaintChange {
  std::optional<JsonArray> taints;  // the node's new spec.taints
  std::map<std::string, std::optional<std::string>> annotations;
  bool empty() const { return !taints && annotations.empty(); }
};

// `gpu`: the node has GPUs; `served`: operands are to bring them up; `validated`: they have. Without rules,
// and on a node without GPUs, what the operator put there goes.
TaintChange decide_taints(const Json& node, const TaintRules& rules, bool gpu, bool served, bool validated);

// What the operator put on a node goes.
TaintChange take_taints(const Json& node);

// Puts `change` into the node's merge patch, on the condition that the node is as it was seen: a list is
// replaced whole, and must not take another's taint with it.
void add_taints(Json& patch, const TaintChange& change, const Json& node);

}  // namespace gpuop::op
