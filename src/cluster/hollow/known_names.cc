#include "cluster/hollow/known_names.h"

#include <set>

#include "base/text.h"
#include "cluster/apiserver/types.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kDefinition = "CustomResourceDefinition";

void add_custom(const Json& definition, std::vector<FaultNames::Resource>& out) {
  static const std::vector<std::string> kVerbs{"create", "delete", "deletecollection", "get",
                                               "list",   "patch",  "update",           "watch"};
  FaultNames::Resource whole;
  whole.name = str(get_string(definition, {"spec", "names", "plural"}));
  whole.verbs = kVerbs;
  whole.namespaced = get_string(definition, {"spec", "scope"}) != "Cluster";
  whole.also = {to_lower(get_string(definition, {"spec", "names", "kind"})),
                str(get_string(definition, {"spec", "names", "singular"}))};
  for (const Json& name : get_array(definition, {"spec", "names", "shortNames"}))
    whole.also.emplace_back(as_text(name));
  std::set<std::string> subresources;
  for (const Json& version : get_array(definition, {"spec", "versions"})) {
    for (const auto& sub : get_object(version, {"subresources"})) subresources.insert(str(sub.key()));
  }
  for (const std::string& sub : subresources)
    out.push_back({whole.name + "/" + sub, {"get", "patch", "update"}, whole.namespaced, {}});
  out.push_back(std::move(whole));
}

void find_containers(const Json& value, std::set<std::string>& out) {
  if (value.is_array()) {
    for (const Json& item : value.get_array()) find_containers(item, out);
  }
  if (!value.is_object()) return;
  for (const auto& [key, child] : value.get_object()) {
    if ((key == "containers" || key == "initContainers") && child.is_array()) {
      for (const Json& container : child.get_array()) {
        if (const auto name = get_string(container, {"name"}); !name.empty()) out.insert(str(name));
      }
    } else {
      find_containers(child, out);
    }
  }
}

}  // namespace

std::vector<FaultNames::Resource> known_resources(const std::vector<Json>& objects) {
  std::vector<FaultNames::Resource> out;
  for (const api::TypePtr& type : api::builtin_types()) {
    FaultNames::Resource whole{type->plural, type->verbs, type->namespaced, type->short_names};
    whole.also.push_back(type->singular);
    for (const api::Subresource& sub : type->subresources)
      out.push_back({type->plural + "/" + sub.name, sub.verbs, type->namespaced, {}});
    out.push_back(std::move(whole));
  }
  for (const Json& object : objects) {
    if (get_string(object, {"kind"}) == kDefinition) add_custom(object, out);
  }
  return out;
}

std::vector<FaultNames::Node> known_nodes(const Fleet& fleet) {
  std::vector<FaultNames::Node> out;
  out.reserve(fleet.nodes.size());
  for (const FleetNode& node : fleet.nodes) out.push_back({node.name, node.gpu_count, node.light});
  return out;
}

std::vector<std::string> known_containers(const op::Assets& assets, const std::vector<Json>& objects) {
  std::set<std::string> names;
  for (const auto& [state, manifests] : assets.states) {
    for (const op::Manifest& manifest : manifests) find_containers(manifest.object, names);
  }
  for (const Json& object : objects) {
    if (get_string(object, {"kind"}) != kDefinition) find_containers(object, names);
  }
  return {names.begin(), names.end()};
}

}  // namespace gpuop::cluster
