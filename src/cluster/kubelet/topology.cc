#include "cluster/kubelet/topology.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "cluster/kubelet/devices.h"

namespace gpuop::cluster {
namespace {

constexpr std::pair<const char*, TopologyPolicy> kPolicies[] = {
    {"none", TopologyPolicy::kNone},
    {"best-effort", TopologyPolicy::kBestEffort},
    {"restricted", TopologyPolicy::kRestricted},
    {"single-numa-node", TopologyPolicy::kSingleNumaNode}};

std::uint64_t all_nodes(int count) {
  return (std::uint64_t{1} << count) - 1;
}

std::uint64_t nodes_of(const Device& device) {
  std::uint64_t out = 0;
  for (const std::int64_t node : device.numa) {
    if (node >= 0 && node < 64) out |= std::uint64_t{1} << node;
  }
  return out;
}

// Fewer nodes are narrower; of as many, the lower ones.
bool narrower(std::uint64_t a, std::uint64_t b) {
  return std::popcount(a) != std::popcount(b) ? std::popcount(a) < std::popcount(b) : a < b;
}

bool better(const TopologyHint& a, const TopologyHint& b) {
  return a.preferred != b.preferred ? a.preferred : narrower(a.nodes, b.nodes);
}

// The best of all ways to take one hint of each resource.
void merge(const std::vector<std::vector<TopologyHint>>& lists, std::size_t at, TopologyHint so_far,
           TopologyHint& best) {
  if (so_far.nodes == 0) return;
  if (at == lists.size()) {
    if (better(so_far, best)) best = so_far;
    return;
  }
  for (const TopologyHint& hint : lists[at]) {
    merge(lists, at + 1, {so_far.nodes & hint.nodes, so_far.preferred && hint.preferred}, best);
  }
}

}  // namespace

Result<TopologyPolicy> parse_topology_policy(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, policy] : kPolicies) {
    if (text == name) return policy;
    names.emplace_back(name);
  }
  return fail(Code::kInvalid, "topology manager policy '" + text + "': must be one of " + join(names, ", ") +
                                  did_you_mean(text, names));
}

TopologyHints device_hints(const std::vector<Device>& all, const std::set<std::string>& available,
                           const std::set<std::string>& must, std::size_t request, int numa_nodes) {
  if (std::ranges::all_of(all, [](const Device& device) { return device.numa.empty(); })) return std::nullopt;
  std::vector<TopologyHint> out;
  int narrowest = numa_nodes;
  for (std::uint64_t mask = 1; mask <= all_nodes(numa_nodes); ++mask) {
    std::size_t there = 0, usable = 0;
    bool holds_must = true;
    for (const Device& device : all) {
      const bool inside = (nodes_of(device) & mask) != 0;
      if (inside) ++there;
      if (must.contains(device.id)) {
        holds_must = holds_must && (inside || device.numa.empty());
        if (inside) ++usable;
      } else if (inside && available.contains(device.id)) {
        ++usable;
      }
    }
    if (there >= request) narrowest = std::min(narrowest, std::popcount(mask));
    if (holds_must && usable >= request) out.push_back({mask, false});
  }
  for (TopologyHint& hint : out) hint.preferred = std::popcount(hint.nodes) == narrowest;
  return out;
}

TopologyDecision decide_topology(TopologyPolicy policy, const std::vector<TopologyHints>& resources,
                                 int numa_nodes) {
  if (policy == TopologyPolicy::kNone) return {};
  const TopologyHint anywhere{all_nodes(numa_nodes), true};
  std::vector<std::vector<TopologyHint>> lists;
  for (const TopologyHints& hints : resources) {
    if (!hints) {
      lists.push_back({anywhere});
      continue;
    }
    std::vector<TopologyHint> list = *hints;
    if (policy == TopologyPolicy::kSingleNumaNode) {
      std::erase_if(
          list, [](const TopologyHint& hint) { return std::popcount(hint.nodes) != 1 || !hint.preferred; });
    }
    if (list.empty()) list.push_back({anywhere.nodes, false});
    lists.push_back(std::move(list));
  }
  TopologyHint best{anywhere.nodes, false};
  merge(lists, 0, anywhere, best);
  TopologyDecision out;
  out.admitted = policy == TopologyPolicy::kBestEffort || best.preferred;
  if (best.nodes != anywhere.nodes) out.nodes = best.nodes;
  return out;
}

}  // namespace gpuop::cluster
