// What a node's objects say (kubernetes-api.md §14.4). Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "cluster/kubelet/kubelet.h"

namespace gpuop::cluster {

struct NodeStatusFacts {
  const KubeletOptions& options;
  std::string runtime_version;
  std::uint16_t port = 0;  // daemonEndpoints; 0: none
  std::map<std::string, DeviceCounts> devices;
  bool ready = true;
  std::string not_ready_message;
  Time now{};
};

// The Node as it is first registered, with its status.
Json build_node(const NodeStatusFacts& facts);
Json build_node_status(const NodeStatusFacts& facts);
// Labels that the kubelet owns and that `node` lacks or has otherwise; a merge patch, empty when there are
// none.
Json node_label_patch(const KubeletOptions& options, const Json& node);
// The strategic merge patch from `observed` to `desired`; heartbeat times alone make no difference unless
// `heartbeat`. Transition times are kept where the status stays. An empty object: nothing to say.
Json node_status_patch(const Json& observed, const Json& desired, bool heartbeat);
// Extended resources of a node's capacity: what device plugins and people have put there. A kubelet without a
// device checkpoint, of a node that was installed anew, shows 0 of each until a plugin registers.
std::vector<std::string> extended_resources(const Json& status);
Json build_lease(const std::string& node_name, const std::string& node_uid, Time now);

}  // namespace gpuop::cluster
