// Create, update and delete (kubernetes-api.md §6, §10).
#include <algorithm>
#include <set>

#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kObjectLimit = 1536UL * 1024;
constexpr int kNameTries = 8;
constexpr std::int64_t kLongestGrace = 10ll * 365 * 86400;  // seconds; the clock holds no more than centuries

JsonObject& metadata_of(Json& object) {
  return ensure(object, {"metadata"}).get_object();
}

// The order in which a client expects to read metadata.
void set_identity(Json& object, std::string_view uid, std::string_view created) {
  JsonObject& metadata = metadata_of(object);
  metadata["uid"] = uid;
  metadata["creationTimestamp"] = created;
}

void append(FieldErrors& into, FieldErrors more) {
  into.insert(into.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Whether a change counts for metadata.generation.
bool content_differs(const ResourceType& type, const Json& old, const Json& object) {
  static const JsonObject none;
  if (type.store == "apps/deployments" &&
      get_object(old, {"metadata", "annotations"}) != get_object(object, {"metadata", "annotations"}))
    return true;
  bool ignore_status = !type.custom || type.has_status;
  auto same_but_status = [&](const JsonObject& a, const JsonObject& b) {
    for (const auto& [key, value] : a) {
      if (key == "metadata" || (key == "status" && ignore_status)) continue;
      const Json* other = b.if_contains(key);
      if (other == nullptr || *other != value) return false;
    }
    return true;
  };
  return !same_but_status(old.get_object(), object.get_object()) ||
         !same_but_status(object.get_object(), old.get_object());
}

void copy_or_erase(JsonObject& to, const JsonObject& from, std::string_view key) {
  const Json* value = from.if_contains(key);
  if (value != nullptr) {
    to[key] = *value;
  } else {
    to.erase(key);
  }
}

bool has_finalizers(const Json& object) {
  return !get_array(object, {"metadata", "finalizers"}).empty() ||
         (get_string(object, {"kind"}) == "Namespace" && !get_array(object, {"spec", "finalizers"}).empty());
}

Answer<> check_size(const Json& object) {
  // Cheap for the many small ones: only texts can be long.
  if (to_text(object).size() <= kObjectLimit) return {};
  return refuse(500, "", "etcdserver: request is too large");
}

FieldErrors validate_content(const ResourceType& type, const Json& object, const Json* old) {
  FieldErrors errors;
  if (type.custom) {
    const Schema& schema = type.custom->schema();
    schema.validate(object, old, "", true, errors);
    // Rules are evaluated over what is at least of the right shape.
    static const std::set<std::string_view> shapeless = {"FieldValueTypeInvalid", "FieldValueRequired",
                                                         "FieldValueTooLong", "FieldValueTooMany",
                                                         "FieldValueNotSupported"};
    bool blocked = std::any_of(errors.begin(), errors.end(),
                               [&](const FieldError& error) { return shapeless.contains(error.reason); });
    if (!blocked) {
      schema.check_rules(object, old, "", errors);
    } else if (schema.has_rules()) {
      errors.push_back(
          invalid("<nil>", Json(nullptr),
                  "some validation rules were not checked because the object was invalid; correct "
                  "the existing errors to complete validation"));
    }
  } else if (old == nullptr) {
    errors = validate_object(type, object);
  } else {
    errors = validate_update(type, *old, object);
  }
  return errors;
}

Json removed_status(const ResourceType& type, const Json& object) {
  JsonObject details{{"name", kube::name_of(object)}};
  if (!type.group.empty()) details["group"] = type.group;
  details["kind"] = type.plural;
  details["uid"] = kube::uid_of(object);
  return JsonObject{{"kind", "Status"},
                    {"apiVersion", "v1"},
                    {"metadata", JsonObject()},
                    {"status", "Success"},
                    {"details", std::move(details)}};
}

// Of a deletion; these conflicts name the kind, not the resource.
Answer<> check_preconditions(const ResourceType& type, const Json& object, const DeleteOptions& options) {
  ResourceType named;
  named.group = type.group;
  named.plural = type.kind;
  if (!options.uid.empty() && options.uid != kube::uid_of(object))
    return conflict(named, kube::name_of(object),
                    "the UID in the precondition (" + options.uid + ") does not match the UID in record (" +
                        str(kube::uid_of(object)) +
                        "). The object might have been deleted and then recreated");
  std::string_view version = get_string(object, {"metadata", "resourceVersion"});
  if (!options.version.empty() && options.version != version)
    return conflict(named, kube::name_of(object),
                    "the ResourceVersion in the precondition (" + options.version +
                        ") does not match the ResourceVersion in record (" + str(version) +
                        "). The object might have been modified");
  return {};
}

// The finalizer that a propagation policy asks the garbage collector to work on.
void mark_propagation(Json& object, const std::string& policy) {
  JsonArray finalizers;
  for (const Json& entry : get_array(object, {"metadata", "finalizers"}))
    if (as_text(entry) != "orphan" && as_text(entry) != "foregroundDeletion") finalizers.push_back(entry);
  if (policy == "Orphan") finalizers.push_back("orphan");
  if (policy == "Foreground") finalizers.push_back("foregroundDeletion");
  if (finalizers.empty()) {
    gpuop::remove(object, {"metadata", "finalizers"});
  } else {
    set(object, {"metadata", "finalizers"}, std::move(finalizers));
  }
}

std::int64_t grace_of(const Json& pod, const DeleteOptions& options) {
  std::string_view phase = get_string(pod, {"status", "phase"});
  if (get_string(pod, {"spec", "nodeName"}).empty() || phase == "Succeeded" || phase == "Failed") return 0;
  std::int64_t grace = options.grace.value_or(get_int(pod, {"spec", "terminationGracePeriodSeconds"}, 30));
  return grace < 0 ? 1 : std::min(grace, kLongestGrace);
}

}  // namespace

// --- create
// ----------------------------------------------------------------------------------------------------

namespace {

Answer<> place_in_namespace(Server& server, Call& call, Json& object) {
  const ResourceType& type = *call.type;
  JsonObject& metadata = metadata_of(object);
  std::string_view given = kube::namespace_of(object);
  if (!type.namespaced) {
    metadata.erase("namespace");
    return {};
  }
  if (!given.empty() && given != call.ns)
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  metadata["namespace"] = call.ns;
  ObjectPtr space = server.store.collection("/namespaces").get(call.ns);
  if (!space) {
    ResourceType namespaces;
    namespaces.plural = "namespaces";
    return not_found(namespaces, call.ns);
  }
  if (!has(space->value(), {"metadata", "deletionTimestamp"})) return {};
  Refusal no =
      forbidden(type, kube::name_of(object),
                "unable to create new content in namespace " + call.ns + " because it is being terminated");
  no.error().causes.push_back(
      {"NamespaceTerminating", "namespace " + call.ns + " is being terminated", "metadata.namespace"});
  return no;
}

Answer<> give_name(Server& server, Call& call, Json& object) {
  JsonObject& metadata = metadata_of(object);
  std::string base = str(get_string(object, {"metadata", "generateName"}));
  if (!kube::name_of(object).empty() || base.empty()) return {};
  if (base.size() > 58) base.resize(58);
  for (int i = 0; i < kNameTries; ++i) {
    std::string name = base + server.random.suffix(5);
    if (server.stored(*call.type, call.ns, name)) continue;
    metadata["name"] = name;
    return {};
  }
  return already_exists(*call.type, base);
}

}  // namespace

Answer<ObjectPtr> Server::create(Call& call, Json object) {
  const ResourceType& type = *call.type;
  JsonObject& metadata = metadata_of(object);
  std::string_view version = get_string(object, {"metadata", "resourceVersion"});
  if (!version.empty() && version != "0")
    return refuse(500, "", "resourceVersion should not be set on objects to be created");
  for (std::string_view key : {"resourceVersion", "selfLink", "deletionTimestamp",
                               "deletionGracePeriodSeconds", "uid", "creationTimestamp"})
    metadata.erase(key);
  TRY(place_in_namespace(*this, call, object));
  TRY(give_name(*this, call, object));
  set_identity(object, random.uuid(), now_text());
  if (type.has_generation) metadata["generation"] = 1;
  // A kubelet registers its node with the status.
  if (type.has_status && type.kind != "Node") object.get_object().erase("status");
  if (type.group == "events.k8s.io") object = event_to_stored(object);
  if (type.custom) {
    type.custom->schema().apply_defaults(object);
  } else {
    default_object(type, object);
  }
  std::string name = str(kube::name_of(object));
  FieldErrors errors = validate_metadata(type, object);
  if (!errors.empty()) return invalid_object(type, name, std::move(errors));
  std::string key = make_key(type.namespaced ? call.ns : "", name);
  // Addresses are given to a service after its writer's fields are known.
  Json written = type.store == "/services" ? object : Json(nullptr);
  TRY(admit_create(call, object));
  errors = validate_content(type, object, nullptr);
  if (!errors.empty())
    return invalid_object(type.group == "events.k8s.io" ? "" : type.group, type.kind, name,
                          std::move(errors));
  if (store.collection(type.store).get(key)) return already_exists(type, name);
  if (call.http.body.size() > kObjectLimit) TRY(check_size(object));
  if (written.is_null()) {
    track_fields(call, nullptr, object);
  } else {
    track_fields(call, nullptr, written);
    if (const Json* owners = find(written, {"metadata", "managedFields"}))
      set(object, {"metadata", "managedFields"}, *owners);
  }
  if (call.dry_run) return std::make_shared<const Object>(std::move(object), 0);
  ObjectPtr made = store.put(type.store, key, std::move(object), now());
  created(type, made->value());
  return made;
}

void Server::create_request(const CallPtr& call) {
  const ResourceType& type = *call->type;
  Answer<Json> raw = body_value(*call, type);
  if (!raw) return respond_status(call, raw.error());
  Answer<Json> object = read_object(*call, type, *raw);
  if (!object) return respond_status(call, object.error());
  Answer<ObjectPtr> made = create(*call, std::move(*object));
  if (!made) return respond_status(call, made.error());
  respond_object(call, 201, *made);
}

// --- update
// ----------------------------------------------------------------------------------------------------

namespace {

// Where a real server keeps the object, as some of its messages say.
std::string registry_key(const Call& call) {
  const ResourceType& type = *call.type;
  std::string key = "/registry/" + (type.custom ? type.group + "/" : std::string()) + type.plural;
  if (type.namespaced) key += "/" + call.ns;
  return key + "/" + call.name;
}

Answer<> check_identity(const Call& call, const Json& current, const Json& object) {
  const ResourceType& type = *call.type;
  std::string_view name = kube::name_of(object);
  if (name.empty())
    return bad_request("the name of the object (" + call.name +
                       " based on URL) was undeterminable: name must be provided");
  if (name != call.name)
    return bad_request("the name of the object (" + str(name) + ") does not match the name on the URL (" +
                       call.name + ")");
  std::string_view ns = kube::namespace_of(object);
  if (type.namespaced && !ns.empty() && ns != call.ns)
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  std::string_view uid = kube::uid_of(object);
  // A patched uid is a change of a field that cannot change; a replaced one is a precondition.
  if (call.verb != "patch" && !uid.empty() && uid != kube::uid_of(current))
    return conflict(
        type, name,
        "StorageError: invalid object, Code: 4, Key: " + registry_key(call) +
            ", ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: " +
            str(uid) + ", UID in object meta: " + str(kube::uid_of(current)));
  std::string_view version = get_string(object, {"metadata", "resourceVersion"});
  if (!version.empty() && !parse_int(version))
    return refuse(500, "", "strconv.ParseUint: parsing " + to_text(Json(version)) + ": invalid syntax");
  if (!version.empty() && version != get_string(current, {"metadata", "resourceVersion"}))
    return stale(type, name);
  return {};
}

// What no writer can change.
void keep_system_fields(const ResourceType& type, const Json& current, Json& object) {
  JsonObject& metadata = metadata_of(object);
  const JsonObject& before = get_object(current, {"metadata"});
  for (std::string_view key : {"creationTimestamp", "generation", "resourceVersion"})
    copy_or_erase(metadata, before, key);
  // Leaving these out changes nothing; changing them is refused.
  for (std::string_view key : {"uid", "deletionTimestamp", "deletionGracePeriodSeconds"})
    if (!metadata.contains(key)) copy_or_erase(metadata, before, key);
  metadata.erase("selfLink");
  if (type.namespaced) copy_or_erase(metadata, before, "namespace");
}

// A status write takes the status (built-in types: labels and the like too), any other write leaves it.
void split_status(const Call& call, const Json& current, Json& object) {
  const ResourceType& type = *call.type;
  if (!type.has_status) return;
  if (call.sub != "status") {
    copy_or_erase(object.get_object(), current.get_object(), "status");
    return;
  }
  Json next = current;
  copy_or_erase(next.get_object(), object.get_object(), "status");
  if (!type.custom) {
    copy_or_erase(next.get_object(), object.get_object(), "metadata");
  } else if (const Json* fields = find(object, {"metadata", "managedFields"})) {
    set(next, {"metadata", "managedFields"}, *fields);
  }
  object = std::move(next);
}

}  // namespace

Answer<ObjectPtr> Server::modify(Call& call, const Edit& edit) {
  const ResourceType& type = *call.type;
  ObjectPtr before = stored(type, call.ns, call.name);
  if (!before) return not_found(type, call.name);
  const Json& current = before->value();
  Json object = TRY(edit(presented_as_stored(type, current) ? current : present(type, current)));
  TRY(check_identity(call, current, object));
  if (type.group == "events.k8s.io") object = event_to_stored(object);
  keep_system_fields(type, current, object);
  split_status(call, current, object);
  if (type.custom) {
    type.custom->schema().apply_defaults(object);
  } else {
    default_object(type, object);
  }
  TRY(admit_update(call, current, object));
  // A writer that leaves the record of owners out leaves it as it is.
  if (!has(object, {"metadata", "managedFields"}))
    copy_or_erase(metadata_of(object), get_object(current, {"metadata"}), "managedFields");
  if (object == current && call.managed.is_null()) return before;
  FieldErrors errors = validate_metadata_update(current, object);
  append(errors, FieldErrors(errors));  // by the generic part and by the type's own
  if (call.sub != "status" || type.custom) append(errors, validate_content(type, object, &current));
  if (!errors.empty())
    return invalid_object(type.group == "events.k8s.io" ? "" : type.group, type.kind, call.name,
                          std::move(errors));
  if (call.http.body.size() > kObjectLimit) TRY(check_size(object));
  if (type.has_generation && call.sub != "status" && content_differs(type, current, object))
    metadata_of(object)["generation"] = get_int(current, {"metadata", "generation"}) + 1;
  track_fields(call, &current, object);
  if (object == current) return before;
  if (call.dry_run) return std::make_shared<const Object>(std::move(object), before->version());
  std::string key = make_key(type.namespaced ? call.ns : "", call.name);
  bool leaving = has(object, {"metadata", "deletionTimestamp"}) && !has_finalizers(object) &&
                 get_int(object, {"metadata", "deletionGracePeriodSeconds"}) == 0;
  if (!leaving) {
    ObjectPtr made = store.put(type.store, key, std::move(object), now());
    if (type.kind == "CustomResourceDefinition" && type.group == "apiextensions.k8s.io")
      load_crd(made->value());
    return made;
  }
  // The last finalizer went: so does the object.
  auto last = std::make_shared<const Object>(std::move(object), before->version());
  store.erase(type.store, key, now());
  erased(type, last->value());
  return last;
}

// Kinds that an update makes where there is none.
static bool made_by_update(const ResourceType& type) {
  static const std::set<std::string_view> stores = {"coordination.k8s.io/leases",
                                                    "/events",
                                                    "/endpoints",
                                                    "rbac.authorization.k8s.io/roles",
                                                    "rbac.authorization.k8s.io/clusterroles",
                                                    "rbac.authorization.k8s.io/rolebindings",
                                                    "rbac.authorization.k8s.io/clusterrolebindings"};
  return stores.contains(type.store);
}

void Server::update_request(const CallPtr& call) {
  const ResourceType& type = *call->type;
  Answer<Json> raw = body_value(*call, type);
  if (!raw) return respond_status(call, raw.error());
  Answer<Json> object = read_object(*call, type, *raw);
  if (!object) return respond_status(call, object.error());
  bool bare = get_string(*object, {"metadata", "resourceVersion"}).empty();
  if (bare && type.custom && stored(type, call->ns, call->name)) {
    FieldErrors errors{invalid("metadata.resourceVersion", 0, "must be specified for an update")};
    return respond_status(call, invalid_object(type.group, type.plural, call->name, errors).error());
  }
  if (made_by_update(type) && call->sub.empty() && !stored(type, call->ns, call->name)) {
    if (!bare) return respond_status(call, stale(type, call->name).error());
    Answer<ObjectPtr> fresh = create(*call, std::move(*object));
    if (!fresh) return respond_status(call, fresh.error());
    return respond_object(call, 201, *fresh);
  }
  Answer<ObjectPtr> made = modify(*call, [&](const Json&) -> Answer<Json> { return std::move(*object); });
  if (!made) return respond_status(call, made.error());
  respond_object(call, 200, *made);
}

void Server::patch_request(const CallPtr& call) {
  std::string_view media = call->http.header("Content-Type");
  media = trim(media.substr(0, media.find(';')));
  bool created_now = false;
  Answer<ObjectPtr> made = refuse(415, "UnsupportedMediaType", "");
  if (media == "application/apply-patch+yaml") {
    created_now = !stored(*call->type, call->ns, call->name);
    made = apply_request(*call);
  } else {
    if (call->has_param("force")) {
      FieldErrors errors{forbidden_field("force", "may not be specified for non-apply patch")};
      return respond_status(call, invalid_object("meta.k8s.io", "PatchOptions", "", errors).error());
    }
    made = modify(*call, [&](const Json& current) { return patched(*call, current); });
  }
  if (!made) return respond_status(call, made.error());
  respond_object(call, created_now ? 201 : 200, *made);
}

// --- delete
// ----------------------------------------------------------------------------------------------------

Answer<Server::Removed> Server::remove(Call& call, const DeleteOptions& options) {
  const ResourceType& type = *call.type;
  ObjectPtr before = stored(type, call.ns, call.name);
  if (!before) return not_found(type, call.name);
  TRY(check_preconditions(type, before->value(), options));
  bool pod = type.store == "/pods";
  Json object = before->value();
  std::int64_t grace = pod ? grace_of(object, options) : 0;
  if (!options.propagation.empty()) mark_propagation(object, options.propagation);
  if (type.kind == "CustomResourceDefinition" && !has(object, {"metadata", "deletionTimestamp"})) {
    ensure(object, {"metadata", "finalizers"});
    JsonArray finalizers = get_array(object, {"metadata", "finalizers"});
    finalizers.push_back("customresourcecleanup.apiextensions.k8s.io");
    set(object, {"metadata", "finalizers"}, std::move(finalizers));
    kube::set_condition(
        object, "Terminating", "True", "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon", now_text());
  }
  if (type.kind == "Namespace") {
    std::string_view name = call.name;
    if (name == "default" || name == "kube-system" || name == "kube-public")
      return forbidden(type, name, "this namespace may not be deleted");
  }
  std::string key = make_key(type.namespaced ? call.ns : "", call.name);
  bool stays = has_finalizers(object) || grace > 0;
  if (options.dry_run) return Removed{before, !stays};
  if (!stays) {
    ObjectPtr last = store.erase(type.store, key, now());
    erased(type, last->value());
    if (!pod) return Removed{last, true};
    // A pod is shown as it was on its way out.
    Json shown = last->value();
    if (!has(shown, {"metadata", "deletionTimestamp"})) {
      set(shown, {"metadata", "deletionTimestamp"}, Json(now_text()));
      set(shown, {"metadata", "generation"}, get_int(shown, {"metadata", "generation"}) + 1);
    }
    set(shown, {"metadata", "deletionGracePeriodSeconds"}, Json(std::int64_t{0}));
    return Removed{std::make_shared<const Object>(std::move(shown), last->version()), true};
  }
  JsonObject& metadata = metadata_of(object);
  bool first = !metadata.contains("deletionTimestamp");
  if (!first && grace >= get_int(object, {"metadata", "deletionGracePeriodSeconds"}) &&
      object == before->value())
    return Removed{before, false};
  bool definition = type.store == "apiextensions.k8s.io/customresourcedefinitions";
  if (first || grace < get_int(object, {"metadata", "deletionGracePeriodSeconds"})) {
    metadata["deletionTimestamp"] = format_time(now() + std::chrono::seconds(grace));
    if (!definition && type.kind != "Namespace") metadata["deletionGracePeriodSeconds"] = grace;
  }
  if (first && type.has_generation && !definition)
    metadata["generation"] = get_int(object, {"metadata", "generation"}) + 1;
  if (type.kind == "Namespace") set(object, {"status", "phase"}, "Terminating");
  ObjectPtr made = store.put(type.store, key, std::move(object), now());
  if (type.kind == "CustomResourceDefinition") {
    finish_crd(call.name);
    return Removed{made, false};  // as it was when its end began
  }
  return Removed{made, false};
}

void Server::delete_request(const CallPtr& call) {
  if (!call->sub.empty()) return respond_status(call, method_not_allowed().error());
  Answer<DeleteOptions> options = delete_options(*call);
  if (!options) return respond_status(call, options.error());
  Answer<Removed> removed = remove(*call, *options);
  if (!removed) return respond_status(call, removed.error());
  // Some kinds answer with what was deleted.
  bool shown = call->type->store == "/pods" || call->type->store == "/services" ||
               call->type->store == "/serviceaccounts" || call->type->store == "/persistentvolumeclaims";
  if (removed->gone && !shown)
    return respond_json(call, 200, removed_status(*call->type, removed->object->value()));
  respond_object(call, 200, removed->object);
}

void Server::delete_collection_request(const CallPtr& call) {
  Answer<DeleteOptions> options = delete_options(*call);
  if (!options) return respond_status(call, options.error());
  Answer<Selection> selection =
      Selection::parse(call->ns, call->param("labelSelector"), call->param("fieldSelector"), *call->type);
  if (!selection) return respond_status(call, selection.error());
  std::vector<ObjectPtr> doomed;
  for (const auto& [key, object] : store.collection(call->type->store).objects())
    if (selection->matches(*object, false)) doomed.push_back(object);
  std::string version = std::to_string(store.version());
  for (const ObjectPtr& object : doomed) {
    Call one = internal_call(call->type, kube::namespace_of(object->value()), kube::name_of(object->value()));
    Answer<Removed> removed = remove(one, *options);
    if (!removed && removed.error().code != 404) return respond_status(call, removed.error());
  }
  // The answer shows what was there.
  JsonArray items;
  for (const ObjectPtr& object : doomed)
    items.push_back(list_item(*call->type, present(*call->type, object->value())));
  JsonObject metadata{{"resourceVersion", version}};
  if (call->type->custom) metadata["continue"] = "";
  respond_json(call, 200,
               JsonObject{{"kind", call->type->list_kind},
                          {"apiVersion", call->type->api_version()},
                          {"metadata", std::move(metadata)},
                          {"items", std::move(items)}});
}

}  // namespace gpuop::cluster::api
