// What a chain of stages lacks words for, asked of the cluster: logs, events, the operator itself.
#pragma once

#include <string>

#include "base/loop.h"
#include "cluster_view.h"
#include "fleet/chain.h"
#include "kube/client.h"

namespace gpuop {

// Fills in, by requests that are waited for: the last words of the container behind each node's first broken
// stage, or the warning event of its pod; what device plugins say of their GPUs; and chain.operator_fault.
// What cannot be read is said in the same places. `ns`: the operator's namespace.
void explain(Loop& loop, kube::Client& client, const std::string& ns, const ClusterWatch& cluster,
             fleet::ClusterChain& chain);

}  // namespace gpuop
