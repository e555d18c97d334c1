// A cluster's objects without what differs between two runs that ended alike. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop::cluster {

// `objects`: of every kind, any order. One canonical text a line, sorted.
std::string normalise(std::vector<Json> objects);

}  // namespace gpuop::cluster
