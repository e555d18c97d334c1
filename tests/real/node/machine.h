// The two processes of a node: outside, the way in and out of its network; inside, the first process of its
// PID namespace, which keeps containerd and the kubelet running. The end of the outer one is the end of
// everything.
#pragma once

#include "base/result.h"
#include "node/options.h"

namespace gpuop::real {

// Runs the node until it is told to end (SIGTERM, SIGINT) or its first process ends. Logs go to
// CLUSTER/log/NAME-*.log. The calling process must have one thread.
Result<> run_node(const NodeOptions& options);

}  // namespace gpuop::real
