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

struct Missing {
  std::string detail;  // "taint dedicated=ml:NoSchedule of the node is not tolerated by …"
  std::string cure;
  bool certain = false;  // something keeps it away: not only that its pod has not been made yet
  // Certain, and nothing that a policy asks for: a taint, or a change of the DaemonSet by hand. Drivers have
  // a DaemonSet for each kernel and each NVIDIADriver, which leave nodes to each other.
  bool kept_off = false;
};

// `app`: the label of its pods; the driver's is "nvidia-driver-daemonset", whatever its DaemonSets are
// called. `daemonsets`: of the operator's namespace; empty where they are not known; `ns`: its name, "" where
// it is not.
Missing why_missing(const Json& node, const Objects& daemonsets, std::string_view app,
                    std::string_view ns = "");

// A taint that keeps feature discovery's worker from a node that has no labels of it; "" when there is none.
std::string undiscovered(const Json& node, const Objects& daemonsets);

}  // namespace gpuop::fleet
