// Fault plans made from a seed, for chaos runs: anything may go wrong for a while, and in the end everything
// that a person would have to repair has been repaired.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/faults/faults.h"

namespace gpuop::cluster {

struct ChaosNode {
  std::string name;
  int gpus = 0;
};
// Every fault is over within about five minutes. The same arguments give the same plan.
FaultPlan chaos_plan(std::uint64_t seed, const std::vector<ChaosNode>& nodes);

}  // namespace gpuop::cluster
