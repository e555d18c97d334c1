// The names that a cluster of the simulator has, for the check of a faults file.
#pragma once

#include <vector>

#include "base/json.h"
#include "cluster/faults/names.h"
#include "cluster/fleet/fleet.h"
#include "operator/render.h"

namespace gpuop::cluster {

// Those of the embedded API server, and of the custom resource definitions among `objects`.
std::vector<FaultNames::Resource> known_resources(const std::vector<Json>& objects);
std::vector<FaultNames::Node> known_nodes(const Fleet& fleet);
// Containers of pods, and of templates of pods, in the operands' manifests and in `objects`; sorted.
std::vector<std::string> known_containers(const op::Assets& assets, const std::vector<Json>& objects);

}  // namespace gpuop::cluster
