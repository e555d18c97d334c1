// What a container is told about its pod: environment variables and downward fields. Pure.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cluster/kubelet/objects.h"

namespace gpuop::cluster {

// What the node adds to a pod's own facts.
struct NodeView {
  std::string node_ip;
  std::string service_host, service_port;
  std::int64_t cpus = 0, memory_bytes = 0, ephemeral_bytes = 0;
};

// A fieldRef: metadata.{name,namespace,uid}, metadata.labels['k'], metadata.annotations['k'], whole labels
// and annotations (volumes), spec.{nodeName,serviceAccountName}, status.{hostIP,hostIPs,podIP,podIPs}.
// kInvalid: no other.
Result<std::string> pod_field(const Json& pod, const NodeView& node, std::string_view path);
// A resourceFieldRef, in units of `divisor`, rounded up; an unset limit is the node's.
Result<std::string> resource_field(const Json& container, const NodeView& node, std::string_view resource,
                                   const Json* divisor);

// "$(NAME)" replaced where NAME is known, "$$" is "$", anything else stays.
std::string expand(std::string_view text, const std::map<std::string, std::string>& values);

// The ConfigMaps and Secrets that a container's environment refers to.
std::vector<ObjectRef> env_objects(const Json& container);

struct EnvFacts {
  const Json& pod;
  const Json& container;
  const NodeView& node;
  std::function<ObjectView(ObjectKind kind, const std::string& name)> object;
};
// In order: services, envFrom, env; a later one replaces an earlier one in place. An error's text is the
// message of CreateContainerConfigError.
Result<std::vector<std::pair<std::string, std::string>>> build_env(const EnvFacts& facts);

// The container of that name in any list of the pod; null when there is none.
const Json* find_container(const Json& pod, std::string_view name);

}  // namespace gpuop::cluster
