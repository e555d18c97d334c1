// The two faces of events: v1 is stored, events.k8s.io/v1 is converted.
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"regarding", "involvedObject"},
    {"note", "message"},
    {"reportingController", "reportingComponent"},
    {"deprecatedSource", "source"},
    {"deprecatedFirstTimestamp", "firstTimestamp"},
    {"deprecatedLastTimestamp", "lastTimestamp"},
    {"deprecatedCount", "count"}};

Json renamed(const Json& object, bool to_stored) {
  JsonObject out;
  for (const auto& [key, value] : object.get_object()) {
    std::string_view name(key.data(), key.size());
    for (auto [newer, older] : kNames)
      if (name == (to_stored ? newer : older)) name = to_stored ? older : newer;
    bool empty = value.is_string() && value.get_string().empty();
    if (!to_stored && empty && name.starts_with("reporting")) continue;
    out[name] = value;
  }
  out["apiVersion"] = to_stored ? "v1" : "events.k8s.io/v1";
  return out;
}

}  // namespace

Json event_to_stored(const Json& object) {
  return object.is_object() ? renamed(object, true) : object;
}
Json event_from_stored(const Json& object) {
  return object.is_object() ? renamed(object, false) : object;
}

bool presented_as_stored(const ResourceType& type, const Json& stored) {
  std::string_view api = get_string(stored, {"apiVersion"});
  if (type.group.empty()) return api == type.version;
  return api.size() == type.group.size() + 1 + type.version.size() && api.starts_with(type.group) &&
         api.ends_with(type.version);
}

bool presented_as_stored(const ResourceType& type, const Object& stored) {
  return stored.has_api_version(type.group.empty() ? type.version : type.group + "/" + type.version);
}

Json present(const ResourceType& type, const Json& stored) {
  std::string_view kind = get_string(stored, {"kind"});
  if (presented_as_stored(type, stored) || kind != type.kind) return stored;
  if (type.group == "events.k8s.io") return event_from_stored(stored);
  Json out = stored;
  set(out, {"apiVersion"}, Json(type.api_version()));
  if (type.custom) {  // another version's schema may know less
    std::vector<std::string> unknown;
    type.custom->schema().prune(out, "", true, unknown);
  }
  return out;
}

}  // namespace gpuop::cluster::api
