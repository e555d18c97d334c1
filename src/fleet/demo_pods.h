// The workloads that a demo runs once its nodes are ready. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "fleet/chain.h"

namespace gpuop::fleet {

struct DemoPod {
  std::string name;
  std::string purpose;  // "one GPU"
  Json object;
  bool must_wait = false;  // it asks for more than any node has
};

// A pod on a whole GPU, one on a shared GPU, and one that cannot fit; the first two as far as some node
// offers that. `nodes`: live Node objects.
std::vector<DemoPod> demo_pods(const Objects& nodes, const std::string& image);

}  // namespace gpuop::fleet
