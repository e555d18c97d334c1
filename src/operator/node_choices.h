// Labels by which an administrator chooses something for a node, and values that choose nothing: a
// configuration of the device plugin that its ConfigMap does not have, a MIG configuration that nobody
// described. Pure but for a memory of files that were read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "operator/gpu_nodes.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {

// What may be chosen with a label.
struct Choice {
  std::string label;            // "nvidia.com/device-plugin.config"
  std::string from;             // "ConfigMap 'plugin-config' has no key '": what a wrong value lacks
  std::set<std::string> names;  // the right values
  bool operator==(const Choice&) const = default;
};

class NodeChoices {
 public:
  // A ConfigMap of the operator's namespace; null where it does not exist.
  using ConfigMap = std::function<std::shared_ptr<const Json>(const std::string& name)>;

  // What nodes may choose under a policy. A file that cannot be read offers no choice: its operand says why.
  std::vector<Choice> of(const policy::ClusterPolicySpec& spec, const ConfigMap& config_map);
  // Of MIG configurations those that a node's MIG manager made for it (ConfigMap NODE-mig-config).
  std::set<std::string> made_for(const std::string& node, const ConfigMap& config_map);

 private:
  std::set<std::string> names_in(const Json& config_map, std::string_view list);

  // ConfigMap to its version and the names in its file.
  std::map<std::string, std::pair<std::string, std::set<std::string>>> read_;
};

// "label nvidia.com/mig.config=all-1g: …" where the value is none of those that it may have; "" else.
std::string wrong_choice(const Label& label, const std::vector<Choice>& choices);
// Of the policy's own defaults those that choose nothing.
std::vector<std::string> wrong_defaults(const policy::ClusterPolicySpec& spec,
                                        const std::vector<Choice>& choices);

}  // namespace gpuop::op
