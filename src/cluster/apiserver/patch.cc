// JSON, merge and strategic patches (kubernetes-api.md §8).
#include <map>

#include "base/text.h"
#include "cluster/apiserver/json_faults.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kMaxOperations = 10000;

std::string_view media_of(const Call& call) {
  std::string_view media = call.http.header("Content-Type");
  return trim(media.substr(0, media.find(';')));
}

Answer<Json> patch_body(const Call& call) {
  Result<Json> body = parse_json(call.http.body);
  if (body) return std::move(*body);
  std::string fault = json_fault(call.http.body);
  if (fault.empty()) fault = body.error().text();
  bool strategic = media_of(call) == "application/strategic-merge-patch+json";
  return bad_request((strategic ? "" : "error decoding patch: ") + fault);
}

// "replace" of an absent member of an object that is there makes it.
Json as_real(const Json& object, const Json& operation) {
  std::string path = str(get_string(operation, {"path"}));
  if (get_string(operation, {"op"}) != "replace" || path.empty()) return operation;
  Json parent_there = JsonArray{JsonObject{{"op", "add"}, {"path", path}, {"value", nullptr}}};
  Json probe = object;
  std::string last = path.substr(path.rfind('/') + 1);
  bool index = last == "-" || (!last.empty() && last.find_first_not_of("0123456789") == std::string::npos);
  if (index || !kube::json_patch_apply(probe, parent_there)) return operation;
  Json added = operation;
  set(added, {"op"}, "add");
  return added;
}

// 422 for a patch that leads to no readable object.
Refusal bad_result(const std::string& shown, const std::string& why) {
  return invalid_object("", "", "", {invalid("patch", Json(shown), why)});
}

std::string no_map(const Json& patch) {
  std::string_view word = patch.is_array() ? "array" : patch.is_string() ? "string" : "number";
  return "json: cannot unmarshal " + str(word) + " into Go value of type map[string]interface {}";
}

Answer<> json_patch(const Call& call, Json& object) {
  Json patch = TRY(patch_body(call));
  if (!patch.is_array())
    return bad_request(
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
  // Built-in objects that have a status always have one to patch.
  bool bare = !call.type->custom && call.type->has_status && !has(object, {"status"});
  if (bare) set(object, {"status"}, JsonObject());
  if (patch.get_array().size() > kMaxOperations)
    return refuse(413, "RequestEntityTooLarge",
                  "The allowed maximum operations in a JSON patch is 10000, got " +
                      std::to_string(patch.get_array().size()));
  for (const Json& operation : patch.get_array())
    if (!kube::json_patch_apply(object, JsonArray{as_real(object, operation)})) {
      Refusal rejected =
          refuse(422, "Invalid", "the server rejected our request due to an error in our request");
      rejected.error().has_details = true;
      return rejected;
    }
  return {};
}

Answer<> merge_patch(const Call& call, Json& object) {
  Json patch = TRY(patch_body(call));
  if (!patch.is_object()) return bad_request("error decoding patch: " + no_map(patch));
  kube::merge_apply(object, patch);
  return {};
}

Answer<> strategic_patch(const Call& call, Json& object) {
  const ResourceType& type = *call.type;
  if (type.custom)
    return refuse(415, "UnsupportedMediaType",
                  "the body of the request was in an unknown format - accepted media types include: "
                  "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml");
  Json patch = TRY(patch_body(call));
  if (!patch.is_object()) return bad_request(no_map(patch));
  static const Message none;
  std::expected<Json, MergeFault> merged =
      strategic_merge(object, patch, type.message != nullptr ? *type.message : none);
  if (!merged)
    return merged.error().code == 500 ? refuse(500, "", merged.error().text)
                                      : bad_request(merged.error().text);
  object = std::move(*merged);
  return {};
}

}  // namespace

std::string go_value(const Json& value) {
  if (const JsonArray* list = value.if_array()) {
    std::string out;
    for (const Json& item : *list) out += (out.empty() ? "" : " ") + go_value(item);
    return "[" + out + "]";
  }
  if (const JsonObject* map = value.if_object()) {
    std::map<std::string, std::string> sorted;
    for (const auto& [key, item] : *map) sorted[std::string(key)] = go_value(item);
    std::string out;
    for (const auto& [key, item] : sorted) out += (out.empty() ? "" : " ") + key + ":" + item;
    return "map[" + out + "]";
  }
  if (value.is_null()) return "<nil>";
  return plain_text(value);
}

Answer<Json> Server::patched(Call& call, const Json& current) {
  std::string_view media = call.http.header("Content-Type");
  media = trim(media.substr(0, media.find(';')));
  Json object = current;
  if (media == "application/json-patch+json") {
    TRY(json_patch(call, object));
  } else if (media == "application/merge-patch+json") {
    TRY(merge_patch(call, object));
  } else if (media == "application/strategic-merge-patch+json") {
    TRY(strategic_patch(call, object));
  } else {
    Refusal media_type = refuse(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    media_type.error().has_details = true;
    return media_type;
  }
  Answer<Json> read = read_object(call, *call.type, object);
  if (read || call.type->custom || read.error().code != 400) return read;
  std::string why = read.error().message;
  std::size_t reason = why.find(" cannot be handled as a ");
  if (reason != std::string::npos) why = why.substr(why.find(": ", reason) + 2);
  bool strategic = media == "application/strategic-merge-patch+json";
  // Strategic patches are read field by field, which says less.
  for (std::string_view word : {"int32", "int64", "bool"})
    if (strategic && why.starts_with("json: cannot unmarshal string ") &&
        why.ends_with(" of type " + str(word)))
      why = "unrecognized type: " + str(word);
  return bad_result(strategic ? go_value(*parse_json(call.http.body)) : to_canonical_text(object), why);
}

}  // namespace gpuop::cluster::api
