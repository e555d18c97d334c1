// Definitions coming and going: their status, and the types that they serve (kubernetes-api.md §12).
#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::string_view kStore = "apiextensions.k8s.io/customresourcedefinitions";
constexpr std::string_view kCleanup = "customresourcecleanup.apiextensions.k8s.io";

// What a definition that is in use cannot become.
FieldErrors changed_for_good(const Json& old, const Json& crd) {
  FieldErrors errors;
  auto same = [&](Keys keys, const std::string& path) {
    if (get_string(old, keys) != get_string(crd, keys))
      errors.push_back(invalid(path, Json(get_string(crd, keys)), "field is immutable"));
  };
  const Json* established = kube::condition(old, "Established");
  if (established != nullptr && get_string(*established, {"status"}) == "True") {
    same({"spec", "scope"}, "spec.scope");
    same({"spec", "names", "kind"}, "spec.names.kind");
  }
  same({"spec", "group"}, "spec.group");
  same({"spec", "names", "plural"}, "spec.names.plural");
  return errors;
}

}  // namespace

Answer<> Server::crd_written(Call& call, Json& crd) {
  default_crd(crd);
  std::string name = str(kube::name_of(crd));
  FieldErrors errors;
  if (ObjectPtr old = store.collection(std::string(kStore)).get(name))
    errors = changed_for_good(old->value(), crd);
  if (errors.empty()) errors = validate_crd(crd);
  if (!errors.empty()) return invalid_object(*call.type, name, std::move(errors));
  // Other definitions of the group may hold some of the names.
  std::vector<Json> others;
  for (const auto& [key, other] : store.collection(std::string(kStore)).objects())
    if (key != name && get_string(other->value(), {"spec", "group"}) == get_string(crd, {"spec", "group"}))
      others.push_back(other->value());
  establish_crd(crd, others, now_text());
  return {};
}

void Server::load_crd(const Json& crd) {
  std::string group = str(get_string(crd, {"spec", "group"}));
  std::string plural = str(get_string(crd, {"spec", "names", "plural"}));
  std::erase_if(types, [&](const auto& entry) {
    return entry.second->custom && entry.first.group == group && entry.first.plural == plural;
  });
  for (const TypePtr& type : types_of_crd(crd)) types[{type->group, type->version, type->plural}] = type;
  types_changed();
}

void Server::unload_crd(const Json& crd) {
  std::string group = str(get_string(crd, {"spec", "group"}));
  std::string plural = str(get_string(crd, {"spec", "names", "plural"}));
  std::erase_if(types, [&](const auto& entry) {
    return entry.second->custom && entry.first.group == group && entry.first.plural == plural;
  });
  for (const auto& listener : store.collection(group + "/" + plural).listeners()) listener->gone();
  types_changed();
}

void Server::finish_crd(const std::string& name) {
  ObjectPtr crd = store.collection(std::string(kStore)).get(name);
  if (!crd || !has(crd->value(), {"metadata", "deletionTimestamp"})) return;
  std::vector<TypePtr> served = types_of_crd(crd->value());
  std::string collection = str(get_string(crd->value(), {"spec", "group"})) + "/" +
                           str(get_string(crd->value(), {"spec", "names", "plural"}));
  std::vector<ObjectPtr> doomed;
  for (const auto& [key, object] : store.collection(collection).objects()) doomed.push_back(object);
  for (const ObjectPtr& object : doomed) {
    if (served.empty()) {
      store.erase(collection, make_key(kube::namespace_of(object->value()), kube::name_of(object->value())),
                  now());
      continue;
    }
    if (has(object->value(), {"metadata", "deletionTimestamp"})) continue;
    Call call = internal_call(served[0], kube::namespace_of(object->value()), kube::name_of(object->value()));
    (void)remove(call, {});
  }
  if (!store.collection(collection).objects().empty())
    return;  // finalizers hold some; their last removal comes here again
  TypePtr type = find_type("apiextensions.k8s.io", "v1", "customresourcedefinitions");
  Call call = internal_call(type, "", name);
  (void)modify(call, [](const Json& current) -> Answer<Json> {
    Json next = current;
    JsonArray left;
    for (const Json& entry : get_array(current, {"metadata", "finalizers"}))
      if (as_text(entry) != kCleanup) left.push_back(entry);
    set(next, {"metadata", "finalizers"}, std::move(left));
    return next;
  });
}

}  // namespace gpuop::cluster::api
