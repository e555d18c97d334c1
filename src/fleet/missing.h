// Why an operand has no pod on a node, told from the node and the operand's DaemonSets. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "fleet/chain.h"

namespace gpuop::fleet {

// The first taint of the node that keeps a DaemonSet's pod of this template off it; null when there is none.
// Those that the DaemonSet controller has every pod tolerate are none; of network-unavailable that holds for
// pods in the host's network alone.
const Json* taint_keeping_off(const Json& node, const Json& pod_spec);

// The node that a pod runs on, or that its DaemonSet made it for where it is not scheduled yet: such a pod
// names it by an affinity to metadata.name. "" when there is none.
std::string_view target_node(const Json& pod);

struct Missing {
  std::string detail;  // "taint dedicated=ml:NoSchedule of the node is not tolerated by …"
  std::string cure;
  bool certain = false;  // something keeps it away: not only that its pod has not been made yet
  // Certain, and nothing that a policy asks for: a taint, or a change of the DaemonSet by hand. Drivers have
  // a DaemonSet for each kernel and each NVIDIADriver, which leave nodes to each other.
  bool kept_off = false;
  bool refused = false;  // certain: the API server does not take its pod
};

// Of an operand: `app` is the label of its pods; the driver's is "nvidia-driver-daemonset", whatever its
// DaemonSets are called. `ns`: the operator's namespace, "" where it is not known.
Missing why_missing(const Json& node, const ChainFacts& facts, std::string_view app,
                    std::string_view ns = "");
// Of a DaemonSet that is wanted on the node.
Missing why_no_pod(const Json& node, const ChainFacts& facts, const Json& set);
// Whether the operator wants a pod of its DaemonSet on the node: by labels of its own and of feature
// discovery. Somebody else may have narrowed it; an NVIDIADriver's is as its user has it.
bool wanted_on(const Json& node, const Json& set);

// A taint that keeps feature discovery's worker from a node that has no labels of it; "" when there is none.
std::string undiscovered(const Json& node, const Objects& daemonsets);

}  // namespace gpuop::fleet
