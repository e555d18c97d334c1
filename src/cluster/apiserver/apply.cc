// Server-side apply and the record of who set which field (kubernetes-api.md §9).
#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "base/yaml_api.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/fields.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kMaxUpdaters = 10;
constexpr std::string_view kAncient = "ancient-changes";

struct Owner {
  std::string manager, operation, api_version, time, subresource;
  FieldSet fields;

  bool is(std::string_view who, std::string_view how, std::string_view api, std::string_view sub) const {
    return manager == who && operation == how && (how == "Apply" || api_version == api) && subresource == sub;
  }
  // "kubectl" with subresource "scale" using apps/v1
  std::string shown() const {
    std::string text = to_text(Json(manager));
    if (!subresource.empty()) text += " with subresource " + to_text(Json(subresource));
    if (operation == "Update") text += " using " + api_version;
    return text;
  }
};

std::vector<Owner> owners_of(const Json& object) {
  std::vector<Owner> owners;
  for (const Json& entry : get_array(object, {"metadata", "managedFields"})) {
    Owner owner{str(get_string(entry, {"manager"})),     str(get_string(entry, {"operation"})),
                str(get_string(entry, {"apiVersion"})),  str(get_string(entry, {"time"})),
                str(get_string(entry, {"subresource"})), {}};
    if (owner.operation.empty()) continue;  // an empty entry asks for a reset
    if (const Json* fields = find(entry, {"fieldsV1"})) owner.fields = FieldSet::from_json(*fields);
    owners.push_back(std::move(owner));
  }
  return owners;
}

Json managed_fields(const std::vector<Owner>& owners) {
  JsonArray list;
  // Who applies comes first, then whoever wrote first.
  std::vector<const Owner*> sorted;
  sorted.reserve(owners.size());
  for (const Owner& owner : owners) sorted.push_back(&owner);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Owner* a, const Owner* b) {
    return std::tie(a->operation, a->time, a->manager, a->api_version, a->subresource) <
           std::tie(b->operation, b->time, b->manager, b->api_version, b->subresource);
  });
  for (const Owner* one : sorted) {
    const Owner& owner = *one;
    if (owner.fields.empty()) continue;
    JsonObject entry{
        {"manager", owner.manager}, {"operation", owner.operation}, {"apiVersion", owner.api_version}};
    if (!owner.time.empty()) entry["time"] = owner.time;
    entry["fieldsType"] = "FieldsV1";
    entry["fieldsV1"] = owner.fields.json();
    if (!owner.subresource.empty()) entry["subresource"] = owner.subresource;
    list.push_back(std::move(entry));
  }
  return list;
}

void write_owners(Json& object, const std::vector<Owner>& owners) {
  Json list = managed_fields(owners);
  if (list.get_array().empty()) {
    gpuop::remove(object, {"metadata", "managedFields"});
  } else {
    set(object, {"metadata", "managedFields"}, std::move(list));
  }
}

FieldSet brought(const ResourceType& type, const Json& object, const Form& form);

// What nobody owns.
FieldSet tracked(FieldSet fields) {
  fields.children.erase("f:apiVersion");
  fields.children.erase("f:kind");
  auto meta = fields.children.find("f:metadata");
  if (meta == fields.children.end()) return fields;
  for (std::string_view name :
       {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink",
        "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"})
    meta->second.children.erase("f:" + std::string(name));
  if (meta->second.children.empty()) fields.children.erase(meta);
  return fields;
}

// A write to the object or to its status owns only its own part.
FieldSet part_of(const Call& call, FieldSet fields) {
  if (!call.type->has_status) return fields;
  if (call.sub != "status") {
    fields.children.erase("f:status");
    return fields;
  }
  std::erase_if(fields.children, [](const auto& entry) { return entry.first != "f:status"; });
  return fields;
}

void merge_ancient(std::vector<Owner>& owners) {
  auto is_update = [](const Owner& owner) {
    return owner.operation == "Update" && owner.subresource.empty();
  };
  auto count = static_cast<std::size_t>(std::count_if(owners.begin(), owners.end(), is_update));
  while (count > kMaxUpdaters) {
    std::vector<Owner*> updates;
    for (Owner& owner : owners)
      if (is_update(owner)) updates.push_back(&owner);
    // The two oldest become one.
    auto older = [](const Owner* a, const Owner* b) { return a->time < b->time; };
    std::iter_swap(updates.begin(), std::min_element(updates.begin(), updates.end(), older));
    std::iter_swap(updates.begin() + 1, std::min_element(updates.begin() + 1, updates.end(), older));
    updates[1]->fields.add(updates[0]->fields);
    updates[1]->manager = std::string(kAncient);
    updates[0]->fields = {};
    std::erase_if(owners, [](const Owner& owner) { return owner.fields.empty(); });
    --count;
  }
}

// Objects that machines rewrite all day, and nobody applies: the record would be a fifth of their size. Their
// first apply finds everything owned by "before-first-apply", as on a server that recorded nothing before.
bool recorded(const ResourceType& type) {
  for (std::string_view busy :
       {"/pods", "/events", "/nodes", "coordination.k8s.io/leases", "apps/replicasets",
        "apps/controllerrevisions", "discovery.k8s.io/endpointslices", "/endpoints"})
    if (type.store == busy) return false;
  return true;
}

std::string conflict_message(const std::vector<std::pair<std::string, std::string>>& conflicts) {
  if (conflicts.size() == 1)
    return "Apply failed with 1 conflict: conflict with " + conflicts[0].first + ": " + conflicts[0].second;
  std::map<std::string, std::string> by_manager;
  for (const auto& [manager, path] : conflicts) by_manager[manager] += "\n- " + path;
  std::string text = "Apply failed with " + std::to_string(conflicts.size()) + " conflicts: ";
  bool first = true;
  for (const auto& [manager, paths] : by_manager) {
    text += (first ? "" : "\n") + std::string("conflicts with ") + manager + ":" + paths;
    first = false;
  }
  return text;
}

Refusal bad_options(FieldError error) {
  return invalid_object("meta.k8s.io", "PatchOptions", "", {std::move(error)});
}

// The object of an apply's body, and the body as it was given: what is owned includes empty values.
struct Applied {
  Json object, given;
};

Refusal no_typed_object(const ResourceType& type, const Json& raw, const std::vector<std::string>& faults) {
  std::string text = "failed to create typed patch object (" + str(kube::namespace_of(raw)) + "/" +
                     str(kube::name_of(raw)) + "; " + (type.group.empty() ? "/" : "") + type.api_version() +
                     ", Kind=" + type.kind + "): ";
  if (faults.size() == 1) return refuse(500, "", text + faults[0]);
  text += "errors:";
  for (const std::string& fault : faults) text += "\n  " + fault;
  return refuse(500, "", text);
}

Answer<Applied> applied_body(Server& server, Call& call) {
  const ResourceType& type = *call.type;
  Result<std::vector<YamlDocument>> documents = parse_api_yaml(call.http.body, "body");
  if (!documents) return bad_request("error decoding YAML: " + documents.error().text());
  if (documents->empty()) documents->push_back({.value = JsonObject()});
  YamlDocument* document = documents->data();
  const std::vector<std::string> twice = yaml_faults(*document, call.http.body);
  if (!twice.empty() && call.validation == FieldValidation::kStrict)
    return bad_request("error decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  " +
                       join(twice, "\n  "));
  if (call.validation == FieldValidation::kWarn)
    call.warnings.insert(call.warnings.end(), twice.begin(), twice.end());
  const Json& raw = document->value;
  if (!raw.is_object()) return bad_request("error decoding YAML: the body is not an object");
  std::string api = str(get_string(raw, {"apiVersion"}));
  std::string kind = str(get_string(raw, {"kind"}));
  if (api != type.api_version() || kind != type.kind)
    return bad_request("invalid object type: " + (api.find('/') == std::string::npos ? "/" + api : api) +
                       ", Kind=" + kind);
  std::string_view name = get_string(raw, {"metadata", "name"});
  if (!name.empty() && name != call.name)
    return bad_request("the name of the object (" + str(name) + ") does not match the name on the URL (" +
                       call.name + ")");
  if (has(raw, {"metadata", "managedFields"})) return bad_request("metadata.managedFields must be nil");
  std::vector<std::string> faults;
  find_faults(raw, Form::of_type(type), "", faults);
  std::sort(faults.begin(), faults.end());
  if (!faults.empty()) return no_typed_object(type, raw, faults);
  Json object = TRY(server.read_object(call, type, raw));
  set(object, {"metadata", "name"}, Json(call.name));
  return Applied{std::move(object), raw};
}

}  // namespace

Answer<ObjectPtr> Server::apply_request(Call& call) {
  if (call.param("fieldManager").empty())
    return bad_options(required("fieldManager", "is required for apply patch"));
  if (call.param("fieldManager").size() > 128) return bad_options(too_long("fieldManager", 128));
  const ResourceType& type = *call.type;
  Applied body_of = TRY(applied_body(*this, call));
  Json applied = std::move(body_of.object);
  Form form = Form::of_type(type);
  FieldSet wanted = part_of(call, tracked(fields_of(body_of.given, form)));
  std::string api = type.api_version();
  ObjectPtr before = stored(type, call.ns, call.name);
  if (!before) {
    if (!get_string(applied, {"metadata", "uid"}).empty())
      return conflict(type, call.name,
                      "uid mismatch: the provided object specified uid " +
                          str(get_string(applied, {"metadata", "uid"})) +
                          ", and no existing object was found");
    if (call.sub == "status") return not_found(type, call.name);
    gpuop::remove(applied, {"metadata", "resourceVersion"});
    Owner owner{call.manager, "Apply", api, now_text(), "", wanted};
    call.managed = managed_fields({owner});
    return create(call, std::move(applied));
  }
  return modify(call, [&](const Json& current) -> Answer<Json> {
    std::string_view version = get_string(applied, {"metadata", "resourceVersion"});
    if (!version.empty() && version != get_string(current, {"metadata", "resourceVersion"}))
      return stale(type, call.name);
    std::vector<Owner> owners = owners_of(current);
    if (owners.empty())
      owners.push_back({"before-first-apply", "Update", api,
                        str(get_string(current, {"metadata", "creationTimestamp"})), "",
                        tracked(brought(type, current, form))});
    auto mine = std::find_if(owners.begin(), owners.end(), [&](const Owner& owner) {
      return owner.is(call.manager, "Apply", api, call.sub);
    });
    FieldSet last = mine == owners.end() ? FieldSet{} : mine->fields;

    // Only what the body says: identity and what the server keeps come from the live object.
    Json body = applied;
    for (std::string_view key : {"resourceVersion", "uid", "creationTimestamp", "generation"})
      gpuop::remove(body, {"metadata", key});
    if (type.has_status && call.sub != "status") gpuop::remove(body, {"status"});
    Json merged = merge_by_form(current, body, form);

    FieldSet changed = tracked(compare(current, merged, form).changed);
    std::vector<std::pair<std::string, std::string>> conflicts;
    for (Owner& owner : owners) {
      if (owner.is(call.manager, "Apply", api, call.sub)) continue;
      FieldSet clash = owner.fields.common(changed);
      if (clash.empty()) continue;
      if (call.flag("force")) {
        owner.fields = owner.fields.without(clash);
        continue;
      }
      for (const std::string& path : clash.paths()) conflicts.emplace_back(owner.shown(), path);
    }
    if (!conflicts.empty()) {
      Status status = refuse(409, "Conflict", conflict_message(conflicts)).error();
      for (const auto& [manager, path] : conflicts)
        status.causes.push_back({"FieldManagerConflict", "conflict with " + manager, path});
      return std::unexpected(std::move(status));
    }

    FieldSet kept = wanted;
    for (const Owner& owner : owners)
      if (!owner.is(call.manager, "Apply", api, call.sub)) kept.add(owner.fields);
    remove_fields(merged, last.without(kept), kept, form);

    // An apply that only takes ownership has no time.
    bool content = merged != current;
    if (mine == owners.end()) {
      owners.push_back({call.manager, "Apply", api, content ? now_text() : std::string(), call.sub, wanted});
    } else if (mine->fields.json() != wanted.json() || mine->api_version != api) {
      mine->fields = wanted;
      mine->api_version = api;
      if (content) mine->time = now_text();
    }
    call.managed = managed_fields(owners);
    FieldValidation asked = std::exchange(call.validation, FieldValidation::kIgnore);
    Answer<Json> read = read_object(call, type, merged);
    call.validation = asked;
    return read;
  });
}

namespace {

// Structs that objects of built-in types always have, empty or not: nobody brings them.
Json always_there(const ResourceType& type) {
  Json out = JsonObject{{"metadata", JsonObject()}};
  if (type.custom) return out;
  if (type.store == "apiextensions.k8s.io/customresourcedefinitions") {
    set(out, {"spec", "names"}, JsonObject());
    set(out, {"status", "acceptedNames"}, JsonObject());
  }
  if (type.message == nullptr) return out;
  for (std::string_view key : {"spec", "status"})
    if (type.message->by_name.contains(key)) set(out, {key}, JsonObject());
  auto pod_template = [&](Keys at) {
    set(ensure(out, at), {"metadata"}, JsonObject());
    set(ensure(out, at), {"spec"}, JsonObject{{"containers", JsonArray()}});
  };
  const std::string& store = type.store;
  if (store == "/pods") set(out, {"spec", "containers"}, JsonArray());
  if (store.starts_with("apps/") && type.message->by_name.contains("spec"))
    pod_template({"spec", "template"});
  if (store == "batch/jobs") pod_template({"spec", "template"});
  if (store == "batch/cronjobs") pod_template({"spec", "jobTemplate", "spec", "template"});
  if (store == "apps/deployments") set(out, {"spec", "strategy"}, JsonObject());
  if (store == "apps/daemonsets" || store == "apps/statefulsets")
    set(out, {"spec", "updateStrategy"}, JsonObject());
  if (store == "/services") set(out, {"status", "loadBalancer"}, JsonObject());
  if (store == "/nodes") {
    set(out, {"status", "daemonEndpoints", "kubeletEndpoint"}, JsonObject());
    set(out, {"status", "nodeInfo"}, JsonObject());
  }
  if (store.starts_with("rbac.authorization.k8s.io/") && type.message->by_name.contains("rules"))
    set(out, {"rules"}, Json(nullptr));
  if (store == "/namespaces") set(out, {"spec", "finalizers"}, JsonArray{"kubernetes"});
  return out;
}

void fill(JsonObject& object, const JsonObject& from) {
  for (const auto& [key, value] : from) {
    Json* there = object.if_contains(key);
    if (there == nullptr) {
      object[key] = value;
    } else if (there->is_object() && value.is_object()) {
      fill(there->get_object(), value.get_object());
    }
  }
}

// What a writer owns who brought the whole object.
FieldSet brought(const ResourceType& type, const Json& object, const Form& form) {
  Json base = always_there(type);
  return compare(base, object, form).changed;
}

}  // namespace

void Server::track_fields(const Call& call, const Json* before, Json& after) {
  if (!call.managed.is_null()) {
    if (call.managed.get_array().empty()) {
      gpuop::remove(after, {"metadata", "managedFields"});
    } else {
      set(after, {"metadata", "managedFields"}, call.managed);
    }
    return;
  }
  const ResourceType& type = *call.type;
  const JsonArray& given = get_array(after, {"metadata", "managedFields"});
  bool reset = has(after, {"metadata", "managedFields"}) &&
               (given.empty() || (given.size() == 1 && get_string(given[0], {"operation"}).empty()));
  std::vector<Owner> owners = owners_of(after);
  if (owners.empty() && !reset && before != nullptr) owners = owners_of(*before);
  bool applied_once = std::any_of(owners.begin(), owners.end(),
                                  [](const Owner& owner) { return owner.operation == "Apply"; });
  if (reset || (!recorded(type) && !applied_once)) {
    gpuop::remove(after, {"metadata", "managedFields"});
    return;
  }
  if (call.user.name == "system:apiserver" && owners.empty()) return;
  // Where nothing is recorded, an update begins no record; an apply does.
  if (before != nullptr && owners.empty()) return;
  Form form = Form::of_type(type);
  Json base = before == nullptr ? Json(JsonObject()) : *before;
  Json there = always_there(type);
  fill(base.get_object(), there.get_object());
  FieldChanges changes = compare(base, after, form);
  FieldSet changed = part_of(call, tracked(std::move(changes.changed)));
  FieldSet removed = tracked(std::move(changes.removed));
  // A Scale of 0 does not have the field, so nobody owns it then.
  if (call.sub == "scale" && !type.custom && get_int(after, {"spec", "replicas"}) == 0) {
    removed.add(changed);
    changed = {};
  }
  std::string api = type.api_version();
  auto mine = std::find_if(owners.begin(), owners.end(), [&](const Owner& owner) {
    return owner.is(call.manager, "Update", api, call.sub);
  });
  if (mine == owners.end() && !changed.empty())
    mine = owners.insert(owners.end(), Owner{call.manager, "Update", api, now_text(), call.sub, {}});
  for (auto owner = owners.begin(); owner != owners.end(); ++owner) {
    owner->fields = owner->fields.without(removed);
    if (owner != mine) owner->fields = owner->fields.without(changed);
  }
  if (mine != owners.end() && !changed.empty()) {
    mine->fields.add(changed);
    mine->time = now_text();
  }
  std::erase_if(owners, [](const Owner& owner) { return owner.fields.empty(); });
  merge_ancient(owners);
  write_owners(after, owners);
}

}  // namespace gpuop::cluster::api
