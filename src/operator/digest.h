// The driver's configuration digest (operator.md §9): equal to upstream's, byte for byte. Private.
#pragma once

#include <map>
#include <string>

#include "base/json.h"

namespace gpuop::op {

// From the finished pod of a ClusterPolicy driver DaemonSet, before the digest variable itself is set.
std::string driver_digest(const Json& pod);

// The same from fields by name, each value with its Go type in front, e.g. {"DriverType", "(string)gpu"}.
std::string digest_of(const std::map<std::string, std::string>& fields);

}  // namespace gpuop::op
