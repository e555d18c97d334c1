// Whether a pod is where it will stay when nobody does anything.
#pragma once

#include <set>
#include <string>

#include "base/json.h"

namespace gpuop::cluster {

// Why the pod will change by itself: "pod x: container y waits: CrashLoopBackOff". Empty when it will not: it
// runs or has ended, it waits for a node, or its node is not among those that are ready (`speaking`).
std::string unsettled_pod(const Json& pod, const std::set<std::string>& speaking);

}  // namespace gpuop::cluster
