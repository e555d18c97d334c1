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

constexpr std::string_view kDnsRule =
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

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

// A Service's name becomes a DNS name of its own, which begins with a letter.
void check_label(const ResourceType& type, std::string_view name, const std::string& field,
                 FieldErrors& errors) {
  bool dns = type.store == "/services";
  if (name.size() > 63) errors.push_back(invalid(field, Json(name), "must be no more than 63 characters"));
  bool good = is_dns_label(name.substr(0, 63));
  if (dns) {
    if (!good || (name[0] >= '0' && name[0] <= '9')) errors.push_back(invalid(field, Json(name), kDnsRule));
  } else if (!good) {
    errors.push_back(invalid(
        field, Json(name), is_dns_subdomain(name) ? std::string_view("must not contain dots") : kLabelRule));
  }
}

void check_qualified(const std::string& field, std::string_view shown, std::string_view text,
                     FieldErrors& errors) {
  for (const std::string& fault : qualified_name_faults(text))
    errors.push_back(invalid(field, Json(shown), fault));
}

void check_name(const ResourceType& type, std::string_view name, const std::string& field,
                FieldErrors& errors) {
  if (type.name_rule == NameRule::kPath) {
    for (std::string_view whole : {".", ".."})
      if (name == whole) errors.push_back(invalid(field, Json(name), "may not be '" + str(whole) + "'"));
    for (std::string_view part : {"/", "%"})
      if (name.find(part) != std::string_view::npos)
        errors.push_back(invalid(field, Json(name), "may not contain '" + str(part) + "'"));
  } else if (type.name_rule == NameRule::kLabel) {
    check_label(type, name, field, errors);
  } else {
    if (name.size() > 253)
      errors.push_back(invalid(field, Json(name), "must be no more than 253 characters"));
    if (!is_dns_subdomain(name.substr(0, 253))) errors.push_back(invalid(field, Json(name), kSubdomainRule));
  }
}

void check_labels(const Json& object, FieldErrors& errors) {
  for (const auto& [key, value] : get_object(object, {"metadata", "labels"})) {
    check_qualified("metadata.labels", key, key, errors);
    if (std::string fault = label_value_fault(as_text(value)); !fault.empty())
      errors.push_back(invalid("metadata.labels", value, fault));
  }
}

void check_annotations(const Json& object, FieldErrors& errors) {
  std::size_t total = 0;
  for (const auto& [key, value] : get_object(object, {"metadata", "annotations"})) {
    total += key.size() + as_text(value).size();
    check_qualified("metadata.annotations", key, to_lower(std::string_view(key)), errors);
  }
  if (total > kAnnotationsLimit) errors.push_back(too_long("metadata.annotations", kAnnotationsLimit));
}

void check_owners(const Json& object, FieldErrors& errors) {
  const std::string path = "metadata.ownerReferences";
  const JsonArray& owners = get_array(object, {"metadata", "ownerReferences"});
  std::string controller;
  for (const Json& owner : owners) {
    std::string_view api = get_string(owner, {"apiVersion"});
    std::string_view kind = get_string(owner, {"kind"});
    if (api.empty() || std::count(api.begin(), api.end(), '/') > 1)
      errors.push_back(invalid(path + ".apiVersion", Json(api), "version must not be empty"));
    for (std::string_view field : {"kind", "name", "uid"})
      if (get_string(owner, {field}).empty())
        errors.push_back(invalid(path + "." + str(field), Json(""), "must not be empty"));
    if (kind == "Event" && (api == "v1" || api == "events.k8s.io/v1"))
      errors.push_back(invalid(
          path, owner, (api == "v1" ? "/v1" : str(api)) + ", Kind=Event is disallowed from being an owner"));
    if (!get_bool(owner, {"controller"})) continue;
    std::string which = str(kind) + "/" + str(get_string(owner, {"name"}));
    if (!controller.empty())
      errors.push_back(invalid(path, Json(owners),
                               "Only one reference can have Controller set to true. Found \"true\" in "
                               "references for " +
                                   controller + " and " + which));
    controller = which;
  }
}

void check_finalizers(const Json& object, FieldErrors& errors) {
  for (const Json& entry : get_array(object, {"metadata", "finalizers"}))
    check_qualified("metadata.finalizers", as_text(entry), as_text(entry), errors);
}

// Built-in types want their finalizers known or with a domain.
void check_domains(const ResourceType& type, const Json& object, FieldErrors& errors) {
  if (type.custom || type.group == "apiextensions.k8s.io") return;
  const JsonArray& finalizers = get_array(object, {"metadata", "finalizers"});
  for (std::size_t i = 0; i < finalizers.size(); ++i) {
    std::string_view name = as_text(finalizers[i]);
    std::string field = "metadata.finalizers[" + std::to_string(i) + "]";
    bool known = name == "foregroundDeletion" || name == "orphan" || name == "kubernetes";
    if (!known && name.find('/') == std::string_view::npos)
      errors.push_back(invalid(field, finalizers[i],
                               "name is neither a standard finalizer name nor is it fully qualified"));
  }
}

}  // namespace

std::vector<std::string> qualified_name_faults(std::string_view text) {
  std::vector<std::string> faults;
  std::vector<std::string> parts = split(text, '/');
  if (parts.size() > 2)
    return {std::string("a qualified name ") + std::string(kQualifiedRule.substr(10)) +
            " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"};
  if (parts.size() == 2) {
    if (parts[0].empty()) {
      faults.emplace_back("prefix part must be non-empty");
    } else if (!is_dns_subdomain(parts[0])) {
      faults.push_back("prefix part " + std::string(kSubdomainRule));
    }
  }
  const std::string& name = parts.back();
  if (name.empty()) faults.emplace_back("name part must be non-empty");
  if (name.size() > 63) faults.emplace_back("name part must be no more than 63 bytes");
  if (!is_name_part(std::string_view(name).substr(0, 63))) faults.emplace_back(kQualifiedRule);
  return faults;
}

std::string label_value_fault(std::string_view text) {
  if (text.size() > 63) return "must be no more than 63 characters";
  return text.empty() || is_name_part(text) ? std::string() : std::string(kValueRule);
}

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
  check_domains(type, object, errors);
  return errors;
}

FieldErrors validate_metadata_update(const Json& old, const Json& object) {
  FieldErrors errors;
  for (std::string_view key : {"uid", "deletionTimestamp", "deletionGracePeriodSeconds"}) {
    const Json* before = find(old, {"metadata", key});
    const Json* after = find(object, {"metadata", key});
    if (after != nullptr && (before == nullptr || *before != *after))
      errors.push_back(invalid("metadata." + str(key), *after, "field is immutable"));
  }
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
