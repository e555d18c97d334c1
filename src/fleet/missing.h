// Why an operand has no pod on a node, told from the node and the operand's DaemonSets. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "fleet/chain.h"

namespace gpuop::fleet {

struct Missing {
  std::string detail;  // "taint dedicated=ml:NoSchedule of the node is not tolerated by …"
  std::string cure;
  bool certain = false;  // something keeps it away: not only that its pod has not been made yet
};

// `app`: the label of its pods; the driver's is "nvidia-driver-daemonset", whatever its DaemonSets are
// called. `daemonsets`: of the operator's namespace; empty where they are not known.
Missing why_missing(const Json& node, const Objects& daemonsets, std::string_view app);

// A taint that keeps feature discovery's worker from a node that has no labels of it; "" when there is none.
std::string undiscovered(const Json& node, const Objects& daemonsets);

}  // namespace gpuop::fleet
