// Rules of object metadata (kubernetes-api.md §6).
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kAnnotationsLimit = 256 * 1024;

constexpr std::string_view kLabelRule =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
constexpr std::string_view kSubdomainRule =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
constexpr std::string_view kQualifiedRule =
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
constexpr std::string_view kValueRule =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

bool lower_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool alnum(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

bool is_name_part(std::string_view text) {
  return !text.empty() && text.size() <= 63 && alnum(text.front()) && alnum(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return alnum(c) || c == '-' || c == '_' || c == '.'; });
}

void check_name(const ResourceType& type, std::string_view name, const std::string& field,
                FieldErrors& errors) {
  if (type.name_rule == NameRule::kPath) {
    if (name == "." || name == ".." || name.find('/') != std::string_view::npos ||
        name.find('%') != std::string_view::npos)
      errors.push_back(invalid(field, Json(name), "may not contain '/' or '%', or be '.' or '..'"));
  } else if (type.name_rule == NameRule::kLabel) {
    if (name.size() > 63) errors.push_back(invalid(field, Json(name), "must be no more than 63 characters"));
    if (!is_dns_label(name.substr(0, 63))) errors.push_back(invalid(field, Json(name), kLabelRule));
  } else {
    if (name.size() > 253)
      errors.push_back(invalid(field, Json(name), "must be no more than 253 characters"));
    if (!is_dns_subdomain(name.substr(0, 253))) errors.push_back(invalid(field, Json(name), kSubdomainRule));
  }
}

void check_labels(const Json& object, FieldErrors& errors) {
  for (const auto& [key, value] : get_object(object, {"metadata", "labels"})) {
    if (!is_qualified_name(std::string_view(key)))
      errors.push_back(invalid("metadata.labels", Json(key), kQualifiedRule));
    std::string_view text = as_text(value);
    if (text.size() > 63) {
      errors.push_back(invalid("metadata.labels", value, "must be no more than 63 characters"));
    } else if (!text.empty() && !is_name_part(text)) {
      errors.push_back(invalid("metadata.labels", value, kValueRule));
    }
  }
}

void check_annotations(const Json& object, FieldErrors& errors) {
  std::size_t total = 0;
  for (const auto& [key, value] : get_object(object, {"metadata", "annotations"})) {
    total += key.size() + as_text(value).size();
    if (!is_qualified_name(to_lower(std::string_view(key))))
      errors.push_back(invalid("metadata.annotations", Json(key), kQualifiedRule));
  }
  if (total > kAnnotationsLimit) errors.push_back(too_long("metadata.annotations", kAnnotationsLimit));
}

void check_owners(const Json& object, FieldErrors& errors) {
  int controllers = 0;
  const JsonArray& owners = get_array(object, {"metadata", "ownerReferences"});
  for (std::size_t i = 0; i < owners.size(); ++i) {
    std::string path = "metadata.ownerReferences[" + std::to_string(i) + "]";
    for (std::string_view field : {"apiVersion", "kind", "name", "uid"})
      if (get_string(owners[i], {field}).empty())
        errors.push_back(
            invalid(path + "." + std::string(field), Json(""), std::string(field) + " must not be empty"));
    if (get_bool(owners[i], {"controller"})) ++controllers;
  }
  if (controllers > 1)
    errors.push_back(invalid("metadata.ownerReferences", Json(owners),
                             "Only one reference can have Controller set to true"));
}

void check_finalizers(const Json& object, FieldErrors& errors) {
  for (const Json& entry : get_array(object, {"metadata", "finalizers"})) {
    std::string_view name = as_text(entry);
    bool known = name == "foregroundDeletion" || name == "orphan" || name == "kubernetes";
    if (!known && (!is_qualified_name(name) || name.find('/') == std::string_view::npos) &&
        !is_qualified_name(name))
      errors.push_back(invalid("metadata.finalizers", entry, kQualifiedRule));
  }
}

}  // namespace

bool is_dns_label(std::string_view text) {
  return !text.empty() && text.size() <= 63 && lower_alnum(text.front()) && lower_alnum(text.back()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return lower_alnum(c) || c == '-'; });
}

bool is_dns_subdomain(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  while (true) {
    std::size_t dot = text.find('.');
    std::string_view label = text.substr(0, dot);
    bool good = !label.empty() && lower_alnum(label.front()) && lower_alnum(label.back()) &&
                std::all_of(label.begin(), label.end(), [](char c) { return lower_alnum(c) || c == '-'; });
    if (!good) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool is_qualified_name(std::string_view text) {
  std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_name_part(text);
  std::string_view name = text.substr(slash + 1);
  return name.find('/') == std::string_view::npos && is_dns_subdomain(text.substr(0, slash)) &&
         is_name_part(name);
}

std::string user_agent_manager(std::string_view user_agent) {
  std::string name(user_agent.substr(0, user_agent.find('/')));
  std::erase_if(name, [](char c) { return std::isprint(static_cast<unsigned char>(c)) == 0; });
  if (name.size() > 128) name.resize(128);
  return name.empty() ? "unknown" : name;
}

FieldErrors validate_metadata(const ResourceType& type, const Json& object) {
  FieldErrors errors;
  std::string_view name = kube::name_of(object);
  std::string_view base = get_string(object, {"metadata", "generateName"});
  if (name.empty()) {
    errors.push_back(required("metadata.name", "name or generateName is required"));
  } else {
    check_name(type, name, "metadata.name", errors);
  }
  if (!base.empty() && name.empty()) check_name(type, str(base) + "x", "metadata.generateName", errors);
  check_labels(object, errors);
  check_annotations(object, errors);
  check_owners(object, errors);
  check_finalizers(object, errors);
  return errors;
}

FieldErrors validate_metadata_update(const Json& old, const Json& object) {
  FieldErrors errors;
  check_labels(object, errors);
  check_annotations(object, errors);
  check_owners(object, errors);
  check_finalizers(object, errors);
  if (has(old, {"metadata", "deletionTimestamp"})) {
    std::string added;
    const JsonArray& before = get_array(old, {"metadata", "finalizers"});
    for (const Json& entry : get_array(object, {"metadata", "finalizers"}))
      if (std::find(before.begin(), before.end(), entry) == before.end())
        added += (added.empty() ? "" : ", ") + to_text(entry);
    if (!added.empty())
      errors.push_back(forbidden_field(
          "metadata.finalizers",
          "no new finalizers can be added if the object is being deleted, found new finalizers []string{" +
              added + "}"));
  }
  return errors;
}

}  // namespace gpuop::cluster::api
