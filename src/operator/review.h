// What should be said of a ClusterPolicy that is carried out all the same: settings that do something else
// than they seem to, and what does not go together (operator.md §8.4). Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fleet/compatibility.h"
#include "operator/facts.h"
#include "operator/status.h"

namespace gpuop::op {

struct Review {
  std::vector<std::string> advice;  // one sentence each
  std::map<std::string, std::string>
      refused;  // state to why nothing of it may be applied: it would ruin nodes
  std::vector<fleet::CompatFinding> incompatible;
  std::size_t errors() const;              // of `incompatible`: what cannot work
  std::vector<std::string> lines() const;  // of `incompatible`
};

// `policy`: the live object.
Review review(const Json& policy, const ServerFacts& server, const ClusterCache& cache);

}  // namespace gpuop::op
