#include "operator/refusals.h"

#include <optional>

#include "base/text.h"

namespace gpuop::op {
namespace {

// The text between `before` and the next `after` behind it.
std::optional<std::string> between(std::string_view text, std::string_view before, std::string_view after) {
  const auto at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const auto start = at + before.size();
  const auto end = text.find(after, start);
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(start, end - start));
}

// 'configmaps is forbidden: User "U" cannot create resource "configmaps" in API group "" in the namespace
// "N"'
std::string missing_right(std::string_view message) {
  const auto verb = between(message, "\" cannot ", " resource \"");
  const auto resource = between(message, " resource \"", "\"");
  const auto group = between(message, " in API group \"", "\"");
  if (!verb || !resource || !group) return {};
  const auto ns = between(message, " in the namespace \"", "\"");
  const auto user = between(message, "User \"", "\"");
  return "; give " + (user ? *user : "the operator") + " this right in " +
         (ns ? "a Role of namespace '" + *ns + "'" : std::string("a ClusterRole")) + ": apiGroups: [\"" +
         *group + "\"], resources: [\"" + *resource + "\"], verbs: [\"" + *verb + "\"]";
}

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

std::string cure_of_refusal(std::string_view message) {
  if (message.find(" is forbidden: User \"") != std::string_view::npos) return missing_right(message);
  if (const auto quota = between(message, "exceeded quota: ", ","))
    return "; raise ResourceQuota '" + *quota + "' of the operator's namespace, or allow its operands there";
  if (const auto webhook = between(message, "admission webhook \"", "\" denied the request"))
    return "; exempt the operator's namespace from webhook '" + *webhook +
           "', or change in the policy what it complains about";
  if (const auto webhook = between(message, "failed calling webhook \"", "\""))
    return "; webhook '" + *webhook + "' does not answer: bring it up, or exempt the operator's namespace";
  if (message.find("violates PodSecurity") != std::string_view::npos)
    return "; label the operator's namespace pod-security.kubernetes.io/enforce=privileged";
  return {};
}

std::vector<std::string> dropped_fields(const Json& live, const Json& wanted, std::string_view version) {
  std::vector<std::string> out;
  const Json* ours = version_of(wanted, version);
  const Json* theirs = version_of(live, version);
  if (ours && theirs) compare(*theirs, *ours, "", out);
  return out;
}

}  // namespace gpuop::op
