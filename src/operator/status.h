// ClusterPolicy.status and its conditions (operator.md §3.4). Pure.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/time.h"

namespace gpuop::op {

struct StateReport {
  std::string name;  // "state-driver"
  bool enabled = false;
  bool ready = true;   // meaningless when disabled
  std::string reason;  // the first thing that is not ready
  std::string error;   // set: the state could not be rendered or applied
  bool fault = false;  // not ready, and its pods do not tell why: time alone will not help
};

struct Outcome {
  std::string state;  // "ready", "notReady", "ignored"
  bool ready = false;
  std::string reason;  // Reconciled, OperandNotReady, ReconcileFailed, NFDLabelsMissing, NoGPUNodes, Ignored
  std::string message;
  // gpu_operator_reconciliation_status: 1, 0 or -1
  int metric = 0;
  bool on_its_way = false;  // not ready, but nothing failed: pods are coming up
};

struct ClusterView {
  bool has_feature_labels = false;
  std::size_t gpu_nodes = 0;
  std::vector<std::string> lost;  // of those that operands are wanted on: whose kubelet is not ready
  // What is said of nodes that an operand is kept from, though its DaemonSet lacks nothing.
  std::vector<std::string> kept_off;
};

// A policy that could be read: from its states.
Outcome outcome_of(const std::vector<StateReport>& states, const ClusterView& view);
// A policy that cannot be reconciled at all.
Outcome failed_outcome(const std::string& message);
// One that no state of which could even be tried: it cannot be read, or what the server is is not known.
Outcome unusable_outcome(const std::string& message);
// One that is not the active policy.
Outcome ignored_outcome(std::string_view active);
// A ClusterPolicy beside a GPUCluster: only one of the two kinds may be there.
Outcome excluded_outcome(std::string_view gpu_cluster);
// A GPUCluster: beside a ClusterPolicy ("": there is none).
Outcome gpu_cluster_outcome(std::string_view cluster_policy);
// While the first pass is under way.
Outcome reconciling_outcome();

// What is said beside the outcome, one sentence each.
struct StatusNotes {
  bool looked = true;                // false: nobody could look, and the conditions below stay as they are
  std::vector<std::string> fields;   // unknown and deprecated fields: condition FieldsIgnored
  std::vector<std::string> dropped;  // fields that a stale definition in the cluster drops: the same
  std::vector<std::string> advice;   // settings to look at: condition Advice
  std::optional<std::vector<std::string>> incompatible;  // condition Compatible; nullopt: it stays as it is
};

// The status object for `policy` (the live object): its present status with what `outcome` and `notes`
// change. Condition times move only with their status.
Json status_of(const Json& policy, const Outcome& outcome, const StatusNotes& notes, std::string_view ns,
               Time now);
// Equal but for times.
bool same_status(const Json& a, const Json& b);

// Name of the active policy among live ClusterPolicy objects: the oldest, then the lowest name; "" when none.
std::string active_policy(const std::vector<std::shared_ptr<const Json>>& policies);

}  // namespace gpuop::op
