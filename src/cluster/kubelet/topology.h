// The kubelet's topology manager, for devices: which NUMA nodes a container's devices are to come from
// (scope "container"). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpuop::cluster {

struct Device;

enum class TopologyPolicy { kNone, kBestEffort, kRestricted, kSingleNumaNode };
// "none", "best-effort", "restricted", "single-numa-node"; kInvalid suggests the near one.
Result<TopologyPolicy> parse_topology_policy(const std::string& text);

// A set of NUMA nodes as bits, and whether it is as narrow as the request can be met at all.
struct TopologyHint {
  std::uint64_t nodes = 0;
  bool preferred = false;
  bool operator==(const TopologyHint&) const = default;
};

// What one resource says: nullopt when its devices have no NUMA nodes (it does not care), no hints when there
// is no way.
using TopologyHints = std::optional<std::vector<TopologyHint>>;

// `all`: every device of the resource; `available`: ids that may be given; `must`: ids that are given in any
// case. `numa_nodes`: how many the machine has, at most 8.
TopologyHints device_hints(const std::vector<Device>& all, const std::set<std::string>& available,
                           const std::set<std::string>& must, std::size_t request, int numa_nodes);

struct TopologyDecision {
  bool admitted = true;
  std::uint64_t nodes = 0;  // to take devices from first; 0: any
  bool operator==(const TopologyDecision&) const = default;
};
TopologyDecision decide_topology(TopologyPolicy policy, const std::vector<TopologyHints>& resources,
                                 int numa_nodes);

}  // namespace gpuop::cluster
