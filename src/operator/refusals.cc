#include "operator/refusals.h"

namespace gpuop::op {
namespace {

const Json* version_of(const Json& crd, std::string_view name) {
  for (const auto& version : get_array(crd, {"spec", "versions"})) {
    if (get_string(version, {"name"}) == name) return find(version, {"schema", "openAPIV3Schema"});
  }
  return nullptr;
}

void compare(const Json& live, const Json& wanted, const std::string& path, std::vector<std::string>& out) {
  if (get_bool(live, {"x-kubernetes-preserve-unknown-fields"})) return;
  for (const auto& [name, schema] : get_object(wanted, {"properties"})) {
    const Json* there = find(live, {"properties", name});
    const std::string at = path.empty() ? std::string(name) : path + "." + std::string(name);
    if (!there)
      out.push_back(at);
    else
      compare(*there, schema, at, out);
  }
  const Json* items = find(wanted, {"items"});
  const Json* live_items = find(live, {"items"});
  if (items && live_items) compare(*live_items, *items, path + "[]", out);
}

}  // namespace

std::vector<std::string> dropped_fields(const Json& live, const Json& wanted, std::string_view version) {
  std::vector<std::string> out;
  const Json* ours = version_of(wanted, version);
  const Json* theirs = version_of(live, version);
  if (ours && theirs) compare(*theirs, *ours, "", out);
  return out;
}

}  // namespace gpuop::op
