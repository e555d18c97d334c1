// The names that a cluster has, against which the selectors of a faults file are checked before a run; and
// what is told after it of faults that did nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster/faults/faults.h"

namespace gpuop::cluster {

struct FaultNames {
  struct Node {
    std::string name;
    int gpus = 0;
    bool light = false;  // nothing happens on it
  };
  struct Resource {
    std::string name;  // "nodes", "nodes/status"
    std::vector<std::string> verbs;
    bool namespaced = true;
    std::vector<std::string> also;  // other names that people know it by: kind, singular, short names
  };
  // Empty ones are not known, and not checked.
  std::vector<Node> nodes;
  std::vector<Resource> resources;
  bool more_resources = false;  // there may be others, whose definitions are not at hand
  std::vector<std::string> containers;
};

// kInvalid: a selector fits none of the names, or never a request; the message has file, line, path, what was
// expected and the nearest right name. kUnsupported: a fault of a light node.
Result<> check_faults(const FaultPlan& plan, const FaultNames& names);

// What a fault has met in a run.
struct FaultRecord {
  std::uint64_t fitted = 0;  // requests, nodes or pulls that it was for while it was on
  std::uint64_t struck = 0;
  // Where nothing fitted: requests that an earlier fault had refused, and of those that one key alone kept
  // from it (of a container crash: of what ran instead), the values that they had there, by that key.
  std::uint64_t taken = 0;
  std::map<std::string, std::set<std::string>> misses;
};

struct IdleFault {
  std::size_t index = 0;  // in the plan
  bool late = false;      // the run ended before it began
  std::string text;       // "FILE:4: fault 'slow operator': …"
};
// Every fault that struck nothing in a run that ended at `ended`, in the plan's order. `records`: one a
// fault.
std::vector<IdleFault> idle_faults(const FaultPlan& plan, const std::vector<FaultRecord>& records,
                                   Duration ended);

// Every fault that is still on when a run ends at `ended`, since it has no end and was met: "FILE:4: fault
// 'slow operator': has no end, and is still on".
std::vector<std::string> endless_faults(const FaultPlan& plan, const std::vector<FaultRecord>& records,
                                        Duration ended);

}  // namespace gpuop::cluster
