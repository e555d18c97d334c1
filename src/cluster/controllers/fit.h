// Whether a pod fits a node, and why not, in the scheduler's own words (kubernetes-api.md §14.3). Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop::cluster {

using Amounts = std::map<std::string, __int128, std::less<>>;  // in thousandths

// max(sum of containers and restartable init containers, largest init container) + overhead; limits stand in
// for requests that are absent.
Amounts pod_requests(const Json& pod);
// "TCP/9400" for each port of the node that the pod takes.
std::vector<std::string> host_ports(const Json& pod);

// What a node has, and what its pods take.
struct NodeRoom {
  Amounts allocatable;
  Amounts used;
  int pods = 0;
  std::map<std::string, int> ports;
};
Amounts node_allocatable(const Json& node);

struct Misfit {
  std::vector<std::string> reasons;  // empty: it fits
  bool resolvable = false;           // other pods' end could help
};
// The first check that fails gives the reasons, as in the scheduler: unschedulable, name, taints, affinity,
// ports, resources.
Misfit check_fit(const Json& pod, const Amounts& requests, const Json& node, const NodeRoom& room);

// "0/3 nodes are available: 1 node(s) …, 2 Insufficient nvidia.com/gpu. preemption: …"
std::string misfit_message(std::size_t nodes, const std::map<std::string, int>& reasons, int resolvable);

// How good a node is among those that fit; higher is better.
double node_score(const Json& pod, const Amounts& requests, const Json& node, const NodeRoom& room);

}  // namespace gpuop::cluster
