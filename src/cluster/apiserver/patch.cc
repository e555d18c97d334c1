// JSON, merge and strategic patches (kubernetes-api.md §8).
#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kMaxOperations = 10000;

Answer<Json> patch_body(const Call& call) {
  Result<Json> body = parse_json(call.http.body);
  if (!body) return bad_request("error decoding patch: " + body.error().text());
  return std::move(*body);
}

Refusal unprocessable(const Call& call, std::string why) {
  Status status = refuse(422, "Invalid", std::move(why)).error();
  status.name = call.name;
  status.group = call.type->group;
  status.kind = call.type->kind;
  return std::unexpected(std::move(status));
}

Answer<> json_patch(const Call& call, Json& object) {
  Json patch = TRY(patch_body(call));
  if (!patch.is_array())
    return bad_request(
        "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch");
  if (patch.get_array().size() > kMaxOperations)
    return refuse(413, "RequestEntityTooLarge",
                  "The allowed maximum operations in a JSON patch is 10000, got " +
                      std::to_string(patch.get_array().size()));
  Result<> done = kube::json_patch_apply(object, patch);
  if (!done)
    return unprocessable(
        call, "the server rejected our request due to an error in our request: " + done.error().text());
  return {};
}

Answer<> merge_patch(const Call& call, Json& object) {
  Json patch = TRY(patch_body(call));
  if (!patch.is_object()) return bad_request("error decoding patch: a merge patch must be an object");
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
  if (!patch.is_object())
    return bad_request("error decoding patch: a strategic merge patch must be an object");
  static const Message none;
  std::expected<Json, MergeFault> merged =
      strategic_merge(object, patch, type.message != nullptr ? *type.message : none);
  if (!merged)
    return merged.error().code == 422 ? unprocessable(call, merged.error().text)
                                      : bad_request(merged.error().text);
  object = std::move(*merged);
  return {};
}

}  // namespace

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
    return refuse(415, "UnsupportedMediaType",
                  "the body of the request was in an unknown format - accepted media types include: "
                  "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, "
                  "application/strategic-merge-patch+json");
  }
  return read_object(call, *call.type, object);
}

}  // namespace gpuop::cluster::api
