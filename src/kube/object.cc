#include "kube/object.h"

#include <algorithm>

namespace gpuop::kube {

std::string_view name_of(const Json& object) {
  return get_string(object, {"metadata", "name"});
}
std::string_view namespace_of(const Json& object) {
  return get_string(object, {"metadata", "namespace"});
}
std::string_view uid_of(const Json& object) {
  return get_string(object, {"metadata", "uid"});
}

std::string_view label(const Json& object, std::string_view key) {
  return get_string(object, {"metadata", "labels", key});
}

std::string_view annotation(const Json& object, std::string_view key) {
  return get_string(object, {"metadata", "annotations", key});
}

const Json* controller_of(const Json& object) {
  for (const Json& owner : get_array(object, {"metadata", "ownerReferences"})) {
    if (get_bool(owner, {"controller"})) return &owner;
  }
  return nullptr;
}

Json owner_reference(const Json& owner, bool controller) {
  JsonObject out;
  out["apiVersion"] = get_string(owner, {"apiVersion"});
  out["kind"] = get_string(owner, {"kind"});
  out["name"] = name_of(owner);
  out["uid"] = uid_of(owner);
  if (controller) {
    out["controller"] = true;
    out["blockOwnerDeletion"] = true;
  }
  return out;
}

const Json* condition(const Json& object, std::string_view type) {
  for (const Json& entry : get_array(object, {"status", "conditions"})) {
    if (get_string(entry, {"type"}) == type) return &entry;
  }
  return nullptr;
}

bool set_condition(Json& object, std::string_view type, std::string_view status, std::string_view reason,
                   std::string_view message, std::string_view now_text) {
  Json& list = ensure(object, {"status", "conditions"});
  if (!list.is_array()) list = JsonArray();
  for (Json& entry : list.get_array()) {
    if (get_string(entry, {"type"}) != type) continue;
    const bool moved = get_string(entry, {"status"}) != status;
    const bool changed =
        moved || get_string(entry, {"reason"}) != reason || get_string(entry, {"message"}) != message;
    if (!changed) return false;
    set(entry, {"status"}, Json(status));
    set(entry, {"reason"}, Json(reason));
    set(entry, {"message"}, Json(message));
    if (moved) set(entry, {"lastTransitionTime"}, Json(now_text));
    return true;
  }
  JsonObject fresh;
  fresh["type"] = type;
  fresh["status"] = status;
  fresh["reason"] = reason;
  fresh["message"] = message;
  fresh["lastTransitionTime"] = now_text;
  list.get_array().push_back(std::move(fresh));
  return true;
}

}  // namespace gpuop::kube
