// What a simulation starts from: the fleet, and everything that is applied to its cluster.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/version.h"
#include "cluster/fleet/fleet.h"

namespace gpuop {

inline constexpr const char* kOwnImage = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;

struct SimInput {
  cluster::Fleet fleet;
  std::vector<Json> objects;  // everything that is applied before the policy
  std::vector<Json> policy;   // the policy file's
  std::string policy_name;
  std::vector<std::string> changed;  // what --our-images changed beside images
};

// Reads and checks everything before anything is started. Empty names: the demo's. What is odd in a policy is
// told on standard error, after `program`.
Result<SimInput> read_sim_input(const std::string& fleet, const std::string& policy, bool our_images,
                                const std::string& program);

}  // namespace gpuop
