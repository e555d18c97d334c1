// The driver's configuration digest (operator.md §9): equal to upstream's, byte for byte. Private.
#pragma once

#include <string>

#include "base/json.h"

namespace gpuop::op {

// From the finished pod of a ClusterPolicy driver DaemonSet, before the digest variable itself is set.
std::string driver_digest(const Json& pod);

}  // namespace gpuop::op
