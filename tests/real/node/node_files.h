// Configuration of the real containerd and kubelet on a node, and what of the machine's kernel they need.
#pragma once

#include "base/result.h"
#include "node/options.h"

namespace gpuop::real {

// To be called on the node (after become_node).
Result<> prepare_node(const NodeOptions& options);

}  // namespace gpuop::real
