// Server-side apply and the record of who set which field (kubernetes-api.md §9).
#include <algorithm>

#include "base/text.h"
#include "base/yaml.h"
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
  for (const Owner& owner : owners) {
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

// What nobody owns.
FieldSet tracked(FieldSet fields) {
  fields.children.erase("f:apiVersion");
  fields.children.erase("f:kind");
  auto meta = fields.children.find("f:metadata");
  if (meta == fields.children.end()) return fields;
  for (std::string_view name :
       {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink",
        "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "generateName"})
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

Answer<Json> applied_body(Server& server, Call& call) {
  const ResourceType& type = *call.type;
  Result<YamlDocument> document = parse_yaml_one(call.http.body, "body");
  if (!document) return bad_request("error decoding YAML: " + document.error().text());
  const Json& raw = document->value;
  if (!raw.is_object()) return bad_request("error decoding YAML: the body is not an object");
  for (std::string_view key : {"apiVersion", "kind"})
    if (get_string(raw, {key}).empty())
      return bad_request("invalid object type: Object '" +
                         std::string(key == "kind" ? "Kind" : "apiVersion") + "' is missing");
  std::string_view name = get_string(raw, {"metadata", "name"});
  if (!name.empty() && name != call.name)
    return bad_request("the name of the object (" + str(name) + ") does not match the name on the URL (" +
                       call.name + ")");
  if (has(raw, {"metadata", "managedFields"})) return bad_request("metadata.managedFields must be nil");
  Json object = TRY(server.read_object(call, type, raw));
  set(object, {"metadata", "name"}, Json(call.name));
  return object;
}

}  // namespace

Answer<ObjectPtr> Server::apply_request(Call& call) {
  if (call.param("fieldManager").empty())
    return bad_options(required("fieldManager", "is required for apply patch"));
  if (call.param("fieldManager").size() > 128) return bad_options(too_long("fieldManager", 128));
  const ResourceType& type = *call.type;
  Json applied = TRY(applied_body(*this, call));
  Form form = Form::of_type(type);
  FieldSet wanted = part_of(call, tracked(fields_of(applied, form)));
  std::string api = type.api_version();
  ObjectPtr before = stored(type, call.ns, call.name);
  if (!before) {
    if (!get_string(applied, {"metadata", "uid"}).empty())
      return conflict(type, call.name,
                      "uid mismatch: the provided object specified uid " +
                          str(get_string(applied, {"metadata", "uid"})) +
                          ", and no existing object was found");
    if (call.sub == "status") return not_found(type, call.name);
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
                        tracked(fields_of(current, form))});
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

    if (mine == owners.end()) {
      owners.push_back({call.manager, "Apply", api, now_text(), call.sub, wanted});
    } else if (mine->fields.json() != wanted.json() || mine->api_version != api) {
      mine->fields = wanted;
      mine->api_version = api;
      mine->time = now_text();
    }
    call.managed = managed_fields(owners);
    FieldValidation asked = std::exchange(call.validation, FieldValidation::kIgnore);
    Answer<Json> read = read_object(call, type, merged);
    call.validation = asked;
    return read;
  });
}

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
  Form form = Form::of_type(type);
  static const Json nothing = JsonObject();
  FieldChanges changes = compare(before == nullptr ? nothing : *before, after, form);
  FieldSet changed = part_of(call, tracked(std::move(changes.changed)));
  FieldSet removed = tracked(std::move(changes.removed));
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
