// What a DaemonSet wants on one node, and which of its old pods may go (kubernetes-api.md §14.1). Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/controllers/context.h"

namespace gpuop::cluster {

struct Eligibility {
  bool run = false;   // a pod belongs there
  bool stay = false;  // one that is there already may stay
};
Eligibility daemon_eligibility(const Json& node, const Json& pod_spec);

// The tolerations that every daemon pod has, beside its own.
void add_daemon_tolerations(Json& pod_spec);
// The pod of `daemon_set` for one node.
Json daemon_pod(const Json& daemon_set, const std::string& hash, const std::string& node);

// Whether the pod is of the current template: by its hash or, as in the real controller, by its generation.
bool is_current(const Json& daemon_set, const Json& pod, std::string_view hash);
// A rolling update may run two pods on a node.
bool allows_surge(const Json& daemon_set);

// A DaemonSet's pods by node.
using PodsByNode = std::map<std::string, std::vector<OwnedPod>, std::less<>>;

struct RollFacts {
  const Json* daemon_set;
  const PodsByNode* pods;
  std::vector<std::string> desired;  // nodes
  std::string hash;                  // of the current template
  Time now;
};
struct RollDecision {
  std::vector<Object> remove;
  std::vector<std::string>
      create_beside;  // nodes that get a new pod while the old one still serves (maxSurge)
};
RollDecision decide_roll(const RollFacts& facts);

// The whole of status but collisionCount; null where a field is omitted.
Json daemon_status(const RollFacts& facts, std::int64_t misscheduled);

}  // namespace gpuop::cluster
