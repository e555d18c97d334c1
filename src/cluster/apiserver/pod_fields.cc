#include "cluster/apiserver/pod_fields.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {
namespace {

constexpr std::string_view kSubdomainText =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
constexpr std::string_view kVariableText =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

void check_label(std::string_view key, const Json& value, const std::string& field, FieldErrors& errors) {
  for (const std::string& fault : qualified_name_faults(key))
    errors.push_back(invalid(field, Json(key), fault));
  if (std::string fault = label_value_fault(as_text(value)); !fault.empty())
    errors.push_back(invalid(field, value, fault));
}

void check_toleration(const Json& toleration, const std::string& here, FieldErrors& errors) {
  const std::string_view key = get_string(toleration, {"key"});
  const std::string_view op = get_string(toleration, {"operator"}, "Equal");
  const std::string_view value = get_string(toleration, {"value"});
  const std::string_view effect = get_string(toleration, {"effect"});
  if (!key.empty()) {
    for (const std::string& fault : qualified_name_faults(key))
      errors.push_back(invalid(here + ".key", Json(key), fault));
  } else if (op != "Exists") {
    errors.push_back(invalid(
        here + ".operator", Json(op),
        "operator must be Exists when `key` is empty, which means \"match all values and all keys\""));
  }
  if (has(toleration, {"tolerationSeconds"}) && effect != "NoExecute")
    errors.push_back(invalid(here + ".effect", Json(effect),
                             "effect must be 'NoExecute' when `tolerationSeconds` is set"));
  if (op == "Equal") {
    if (std::string fault = label_value_fault(value); !fault.empty())
      errors.push_back(invalid(here + ".operator", Json(value), fault));
  } else if (op != "Exists") {
    errors.push_back(unsupported(here + ".operator", Json(op), {"Equal", "Exists"}));
  } else if (!value.empty()) {
    errors.push_back(
        invalid(here + ".operator", Json(value), "value must be empty when `operator` is 'Exists'"));
  }
  static const std::vector<std::string> kEffects = {"NoSchedule", "PreferNoSchedule", "NoExecute"};
  if (!effect.empty() && std::ranges::find(kEffects, effect) == kEffects.end())
    errors.push_back(unsupported(here + ".effect", Json(effect), kEffects));
}

}  // namespace

void check_tolerations(const Json& spec, const std::string& path, FieldErrors& errors) {
  std::size_t i = 0;
  for (const Json& toleration : get_array(spec, {"tolerations"}))
    check_toleration(toleration, path + ".tolerations[" + std::to_string(i++) + "]", errors);
}

void check_node_selector(const Json& spec, const std::string& path, FieldErrors& errors) {
  for (const auto& [key, value] : get_object(spec, {"nodeSelector"}))
    check_label(key, value, path + ".nodeSelector", errors);
}

void check_security_context(const Json& owner, const std::string& path, FieldErrors& errors) {
  for (std::string_view id : {"runAsUser", "runAsGroup", "fsGroup"}) {
    const std::int64_t number = get_int(owner, {"securityContext", id});
    if (number < 0 || number > 2147483647)
      errors.push_back(invalid(path + ".securityContext." + str(id), number,
                               "must be between 0 and 2147483647, inclusive"));
  }
  static const std::vector<std::string> kTypes = {"Localhost", "RuntimeDefault", "Unconfined"};
  for (std::string_view profile : {"seccompProfile", "appArmorProfile"}) {
    if (!has(owner, {"securityContext", profile})) continue;
    const std::string field = path + ".securityContext." + str(profile) + ".type";
    const std::string_view type = get_string(owner, {"securityContext", profile, "type"});
    if (type.empty())
      errors.push_back(required(field, "type is required when " + str(profile) + " is set"));
    else if (std::ranges::find(kTypes, type) == kTypes.end())
      errors.push_back(unsupported(field, Json(type), kTypes));
  }
}

void check_priority_class_name(const Json& spec, const std::string& path, FieldErrors& errors) {
  const std::string_view name = get_string(spec, {"priorityClassName"});
  if (!name.empty() && !is_dns_subdomain(name))
    errors.push_back(invalid(path + ".priorityClassName", Json(name), kSubdomainText));
}

void check_host_path(const Json& volume, const std::string& path, FieldErrors& errors) {
  const std::string_view target = get_string(volume, {"hostPath", "path"});
  const auto parts = split(target, '/');
  if (std::ranges::find(parts, "..") != parts.end())
    errors.push_back(invalid(path + ".hostPath.path", Json(target), "must not contain '..'"));
}

void check_env_names(const Json& container, const std::string& path, FieldErrors& errors) {
  std::size_t i = 0;
  for (const Json& variable : get_array(container, {"env"})) {
    const std::string field = path + ".env[" + std::to_string(i++) + "].name";
    const std::string_view name = get_string(variable, {"name"});
    if (name.empty())
      errors.push_back(required(field));
    else if (!std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~' && c != '='; }))
      errors.push_back(invalid(field, Json(name), kVariableText));
  }
}

void check_resource_name(std::string_view name, const std::string& field, FieldErrors& errors) {
  static constexpr std::array<std::string_view, 3> kOwn = {"cpu", "memory", "ephemeral-storage"};
  const auto faults = qualified_name_faults(name);
  for (const std::string& fault : faults) errors.push_back(invalid(field, Json(name), fault));
  if (!faults.empty() || name.find('/') != std::string_view::npos || name.starts_with("hugepages-") ||
      std::ranges::find(kOwn, name) != kOwn.end())
    return;
  errors.push_back(invalid(field, Json(name), "must be a standard resource type or fully qualified"));
  errors.push_back(invalid(field, Json(name), "must be a standard resource for containers"));
}

void check_template_metadata(const Json& object, FieldErrors& errors) {
  for (const auto& [key, value] : get_object(object, {"spec", "template", "metadata", "labels"}))
    check_label(key, value, "spec.template.labels", errors);
  for (const auto& [key, value] : get_object(object, {"spec", "template", "metadata", "annotations"})) {
    for (const std::string& fault : qualified_name_faults(to_lower(std::string_view(key))))
      errors.push_back(invalid("spec.template.annotations", Json(key), fault));
  }
}

}  // namespace gpuop::cluster::api
