#include "cluster/apiserver/crd.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

std::string group_of(const Json& crd) {
  return str(get_string(crd, {"spec", "group"}));
}
std::string plural_of(const Json& crd) {
  return str(get_string(crd, {"spec", "names", "plural"}));
}

bool protected_group(std::string_view group) {
  for (std::string_view suffix : {"k8s.io", "kubernetes.io"})
    if (group == suffix || group.ends_with("." + std::string(suffix))) return true;
  return false;
}

std::vector<std::string> texts(const Json& root, Keys keys) {
  std::vector<std::string> all;
  for (const Json& item : get_array(root, keys)) all.push_back(str(as_text(item)));
  return all;
}

void set_default(Json& root, Keys keys, Json value) {
  if (!has(root, keys)) set(root, keys, std::move(value));
}

void check_versions(const Json& crd, FieldErrors& errors) {
  const JsonArray& versions = get_array(crd, {"spec", "versions"});
  int storage = 0;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    std::string path = "spec.versions[" + std::to_string(i) + "]";
    const Json& version = versions[i];
    if (get_string(version, {"name"}).empty()) errors.push_back(required(path + ".name"));
    if (get_bool(version, {"storage"})) ++storage;
    // One schema for all versions is told of as the definition's.
    std::string below =
        (versions.size() == 1 && has(version, {"schema"}) ? "spec.validation" : path + ".schema") +
        std::string(".openAPIV3Schema");
    const Json* schema = find(version, {"schema", "openAPIV3Schema"});
    if (schema == nullptr) {
      errors.push_back(required(below));
      continue;
    }
    if (get_string(*schema, {"type"}) != "object")
      errors.push_back(
          get_string(*schema, {"type"}).empty()
              ? required(below + ".type", "must not be empty at the root")
              : invalid(below + ".type", Json(get_string(*schema, {"type"})), "must be object at the root"));
    Schema::compile(*schema, below, errors);
  }
  if (storage != 1)
    errors.push_back({"spec.versions", "FieldValueInvalid",
                      "Invalid value: " + (versions.empty() ? "null" : to_text(Json(versions))) +
                          ": must have exactly one version marked as storage version"});
}

// `old`: what is said of a version that is deprecated.
std::shared_ptr<const CustomType> custom_type(const Json& version, const std::string& old) {
  FieldErrors ignored;  // they were refused when the definition was written
  const Json* source = find(version, {"schema", "openAPIV3Schema"});
  return std::make_shared<CustomType>(
      Schema::compile(source == nullptr ? Json(JsonObject()) : *source, "", ignored), version, old);
}

// "; use example.com/v1 Thing", where there is a version that is not deprecated.
std::string better_version(const Json& crd, const ResourceType& type) {
  std::string best;
  for (const Json& version : get_array(crd, {"spec", "versions"})) {
    const std::string name = str(get_string(version, {"name"}));
    if (!get_bool(version, {"served"}) || get_bool(version, {"deprecated"})) continue;
    if (best.empty() || version_rank(name) > version_rank(best)) best = name;
  }
  if (best.empty() || version_rank(best) < version_rank(type.version)) return "";
  return "; use " + type.group + "/" + best + " " + type.kind;
}

TypePtr type_of_version(const Json& crd, const Json& version) {
  auto type = std::make_shared<ResourceType>();
  type->group = group_of(crd);
  type->version = str(get_string(version, {"name"}));
  type->plural = plural_of(crd);
  type->singular = str(get_string(crd, {"spec", "names", "singular"}));
  type->kind = str(get_string(crd, {"spec", "names", "kind"}));
  type->list_kind = str(get_string(crd, {"spec", "names", "listKind"}));
  type->namespaced = get_string(crd, {"spec", "scope"}) == "Namespaced";
  type->short_names = texts(crd, {"spec", "names", "shortNames"});
  type->categories = texts(crd, {"spec", "names", "categories"});
  type->verbs = {"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"};
  type->has_status = has(version, {"subresources", "status"});
  type->has_scale = has(version, {"subresources", "scale"});
  type->has_generation = true;
  if (type->has_status)
    type->subresources.push_back(
        {"status", type->group, type->version, type->kind, {"get", "patch", "update"}});
  if (type->has_scale)
    type->subresources.push_back({"scale", "autoscaling", "v1", "Scale", {"get", "patch", "update"}});
  type->custom = custom_type(
      version, type->api_version() + " " + type->kind + " is deprecated" + better_version(crd, *type));
  type->store = type->group + "/" + type->plural;
  return type;
}

// One step of a path: a key, an index, or a filter on the items of a list.
const Json* step_into(const Json* at, std::string_view key) {
  if (at == nullptr) return nullptr;
  const JsonObject* map = at->if_object();
  return map == nullptr ? nullptr : map->if_contains(key);
}

std::string_view unquoted(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\''))
    return text.substr(1, text.size() - 2);
  return text;
}

const Json* step_bracket(const Json* at, std::string_view inside) {
  if (at == nullptr) return nullptr;
  inside = trim(inside);
  if (inside.starts_with("?(") && inside.ends_with(")")) {
    std::string_view test = inside.substr(2, inside.size() - 3);
    std::size_t equals = test.find("==");
    const JsonArray* list = at->if_array();
    if (equals == std::string_view::npos || list == nullptr) return nullptr;
    std::string_view left = trim(test.substr(0, equals));
    if (left.starts_with("@")) left.remove_prefix(1);
    std::string_view right = unquoted(test.substr(equals + 2));
    for (const Json& item : *list) {
      const Json* seen = by_json_path(item, left);
      if (seen != nullptr && (seen->is_string() ? as_text(*seen) == right : to_text(*seen) == right))
        return &item;
    }
    return nullptr;
  }
  if (std::optional<std::int64_t> index = parse_int(inside)) {
    const JsonArray* list = at->if_array();
    if (list == nullptr) return nullptr;
    std::int64_t n = *index < 0 ? *index + static_cast<std::int64_t>(list->size()) : *index;
    return n >= 0 && n < static_cast<std::int64_t>(list->size()) ? &(*list)[static_cast<std::size_t>(n)]
                                                                 : nullptr;
  }
  if (inside == "*") {
    const JsonArray* list = at->if_array();
    return list == nullptr || list->empty() ? nullptr : &(*list)[0];
  }
  return step_into(at, unquoted(inside));
}

}  // namespace

namespace {

std::string description_of(const Json& column) {
  std::string_view given = get_string(column, {"description"});
  if (!given.empty()) return str(given);
  return "Custom resource definition column (in JSONPath format): " + str(get_string(column, {"jsonPath"}));
}

}  // namespace

CustomType::CustomType(std::shared_ptr<const Schema> schema, const Json& version, const std::string& old)
    : schema_(std::move(schema)) {
  if (get_bool(version, {"deprecated"}))
    warnings_.push_back(str(get_string(version, {"deprecationWarning"}, old)));
  for (const Json& column : get_array(version, {"additionalPrinterColumns"}))
    columns_.push_back({str(get_string(column, {"name"})), str(get_string(column, {"type"})),
                        str(get_string(column, {"format"})), description_of(column),
                        static_cast<int>(get_int(column, {"priority"})),
                        str(get_string(column, {"jsonPath"}))});
  for (const Json& field : get_array(version, {"selectableFields"})) {
    std::string_view path = get_string(field, {"jsonPath"});
    selectable_.emplace_back(path.starts_with(".") ? path.substr(1) : path);
  }
  if (const Json* source = find(version, {"schema", "openAPIV3Schema"})) source_ = *source;
  spec_replicas = str(get_string(version, {"subresources", "scale", "specReplicasPath"}));
  status_replicas = str(get_string(version, {"subresources", "scale", "statusReplicasPath"}));
  label_selector = str(get_string(version, {"subresources", "scale", "labelSelectorPath"}));
}

bool CustomType::selectable(std::string_view field) const {
  return std::find(selectable_.begin(), selectable_.end(), field) != selectable_.end();
}

const Schema& ResourceType::custom_schema() const {
  return custom->schema();
}

void default_crd(Json& crd) {
  std::string kind = str(get_string(crd, {"spec", "names", "kind"}));
  if (get_string(crd, {"spec", "names", "listKind"}).empty() && !kind.empty())
    set(crd, {"spec", "names", "listKind"}, Json(kind + "List"));
  if (get_string(crd, {"spec", "names", "singular"}).empty() && !kind.empty())
    set(crd, {"spec", "names", "singular"}, Json(to_lower(kind)));
  set_default(crd, {"spec", "conversion"}, JsonObject{{"strategy", "None"}});
  if (!get_bool(crd, {"spec", "preserveUnknownFields"})) remove(crd, {"spec", "preserveUnknownFields"});
}

FieldErrors validate_crd(const Json& crd) {
  FieldErrors errors;
  std::string group = group_of(crd);
  std::string plural = plural_of(crd);
  if (kube::name_of(crd) != plural + "." + group)
    errors.push_back(
        invalid("metadata.name", Json(kube::name_of(crd)), "must be spec.names.plural+\".\"+spec.group"));
  if (group.empty()) errors.push_back(required("spec.group"));
  std::string_view scope = get_string(crd, {"spec", "scope"});
  if (scope.empty()) {
    errors.push_back(required("spec.scope"));
  } else if (scope != "Cluster" && scope != "Namespaced") {
    errors.push_back(unsupported("spec.scope", Json(scope), {"Cluster", "Namespaced"}));
  }
  if (protected_group(group) && kube::annotation(crd, "api-approved.kubernetes.io").empty() &&
      group != "nfd.k8s-sigs.io")
    errors.push_back(
        required("metadata.annotations[api-approved.kubernetes.io]",
                 "protected groups must have approval annotation \"api-approved.kubernetes.io\", see "
                 "https://github.com/kubernetes/enhancements/pull/1111"));
  if (get_bool(crd, {"spec", "preserveUnknownFields"}))
    errors.push_back(invalid(
        "spec.preserveUnknownFields", true,
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
        "instead"));
  std::string_view strategy = get_string(crd, {"spec", "conversion", "strategy"});
  if (strategy == "Webhook") {
    errors.push_back(
        forbidden_field("spec.conversion.strategy", "conversion webhooks are not supported by this server"));
  } else if (strategy != "None") {
    errors.push_back(unsupported("spec.conversion.strategy", Json(strategy), {"None", "Webhook"}));
  }
  check_versions(crd, errors);
  for (std::string_view name : {"plural", "singular", "kind", "listKind"})
    if (get_string(crd, {"spec", "names", name}).empty())
      errors.push_back(required("spec.names." + str(name)));
  const JsonArray& versions = get_array(crd, {"spec", "versions"});
  if (std::none_of(versions.begin(), versions.end(), [](const Json& v) { return get_bool(v, {"storage"}); }))
    errors.push_back(
        invalid("status.storedVersions", Json(nullptr), "must have at least one stored version"));
  return errors;
}

namespace {

struct NameConflict {
  std::string reason, message;
};

// Gives the definition the names that are free; what the last one that is not was.
NameConflict accept_names(Json& crd, const std::vector<Json>& others) {
  std::set<std::string> resources;  // plurals, singulars and short names are looked up alike
  std::set<std::string> kinds;
  for (const Json& other : others) {
    for (std::string_view key : {"plural", "singular"})
      resources.insert(str(get_string(other, {"status", "acceptedNames", key})));
    for (const Json& name : get_array(other, {"status", "acceptedNames", "shortNames"}))
      resources.insert(str(as_text(name)));
    for (std::string_view key : {"kind", "listKind"})
      kinds.insert(str(get_string(other, {"status", "acceptedNames", key})));
  }
  NameConflict conflict;
  JsonObject accepted{{"plural", ""}, {"kind", ""}};
  auto take = [&](std::string_view key, const std::set<std::string>& used, std::string_view reason) {
    std::string name = str(get_string(crd, {"spec", "names", key}));
    if (used.contains(name)) {
      conflict = {str(reason), to_text(Json(name)) + " is already in use"};
    } else if (!name.empty()) {
      accepted[key] = name;
    }
  };
  take("plural", resources, "PluralConflict");
  take("singular", resources, "SingularConflict");
  bool free = true;
  for (const Json& name : get_array(crd, {"spec", "names", "shortNames"}))
    if (resources.contains(str(as_text(name)))) {
      conflict = {"ShortNamesConflict", to_text(name) + " is already in use"};
      free = false;
    }
  for (std::string_view key : {"shortNames", "categories"})
    if (const Json* list = find(crd, {"spec", "names", key});
        list != nullptr && (free || key == "categories"))
      accepted[key] = *list;
  take("kind", kinds, "KindConflict");
  take("listKind", kinds, "ListKindConflict");
  if (!conflict.reason.empty()) set(crd, {"status", "acceptedNames"}, std::move(accepted));
  return conflict;
}

}  // namespace

void establish_crd(Json& crd, const std::vector<Json>& others, std::string_view now_text) {
  NameConflict conflict = accept_names(crd, others);
  if (conflict.reason.empty()) {
    set(crd, {"status", "acceptedNames"}, *find(crd, {"spec", "names"}));
    kube::set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now_text);
    kube::set_condition(crd, "Established", "True", "InitialNamesAccepted",
                        "the initial names have been accepted", now_text);
  } else {
    kube::set_condition(crd, "NamesAccepted", "False", conflict.reason, conflict.message, now_text);
    if (kube::condition(crd, "Established") == nullptr)
      kube::set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now_text);
  }
  JsonArray stored = get_array(crd, {"status", "storedVersions"});
  for (const Json& version : get_array(crd, {"spec", "versions"})) {
    Json name(get_string(version, {"name"}));
    if (get_bool(version, {"storage"}) && std::find(stored.begin(), stored.end(), name) == stored.end())
      stored.push_back(name);
  }
  set(crd, {"status", "storedVersions"}, std::move(stored));
}

std::vector<TypePtr> types_of_crd(const Json& crd) {
  std::vector<TypePtr> types;
  const Json* established = kube::condition(crd, "Established");
  if (established == nullptr || get_string(*established, {"status"}) != "True") return types;
  for (const Json& version : get_array(crd, {"spec", "versions"}))
    if (get_bool(version, {"served"})) types.push_back(type_of_version(crd, version));
  return types;
}

const Json* by_json_path(const Json& object, std::string_view path) {
  path = trim(path);
  if (path.starts_with("{") && path.ends_with("}")) path = path.substr(1, path.size() - 2);
  if (path.starts_with("$")) path.remove_prefix(1);
  const Json* at = &object;
  while (!path.empty() && at != nullptr) {
    if (path[0] == '[') {
      std::size_t close = path.find(']');
      if (close == std::string_view::npos) return nullptr;
      at = step_bracket(at, path.substr(1, close - 1));
      path.remove_prefix(close + 1);
      continue;
    }
    if (path[0] == '.') path.remove_prefix(1);
    std::string key;
    while (!path.empty() && path[0] != '.' && path[0] != '[') {
      if (path[0] == '\\' && path.size() > 1) path.remove_prefix(1);
      key.push_back(path[0]);
      path.remove_prefix(1);
    }
    if (!key.empty()) at = step_into(at, key);
  }
  return at;
}

}  // namespace gpuop::cluster::api
