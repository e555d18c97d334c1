// Request bodies: media types, decoding, unknown fields (kubernetes-api.md §4, §6).
#include "base/text.h"
#include "base/yaml.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"
#include "cluster/apiserver/shape.h"

namespace gpuop::cluster::api {

namespace {

std::string media_type(const Call& call) {
  std::string_view text = call.http.header("Content-Type");
  return to_lower(trim(text.substr(0, text.find(';'))));
}

Refusal unknown_format() {
  return refuse(
      415, "UnsupportedMediaType",
      "the body of the request was in an unknown format - accepted media types include: application/json, "
      "application/yaml, application/vnd.kubernetes.protobuf");
}

Refusal cannot_handle(const ResourceType& type, std::string_view why) {
  return bad_request(type.kind + " in version \"" + type.version + "\" cannot be handled as a " + type.kind +
                     ": " + std::string(why));
}

Refusal unreadable(const ResourceType& type, std::string_view why) {
  return bad_request("the object provided is unrecognized (must be of type " + type.kind +
                     "): couldn't get version/kind; " + std::string(why));
}

Answer<> take_unknown(Call& call, const ResourceType& type, const std::vector<std::string>& faults) {
  if (faults.empty() || call.validation == FieldValidation::kIgnore) return {};
  if (call.validation == FieldValidation::kWarn) {
    for (const std::string& fault : faults) call.warnings.push_back(fault);
    return {};
  }
  return cannot_handle(type, "strict decoding error: " + join(faults, ", "));
}

Answer<Json> yaml_value(Call& call, const ResourceType& type) {
  Result<YamlDocument> document = parse_yaml_one(call.http.body, "body");
  if (!document) return unreadable(type, "yaml parse error: " + document.error().text());
  for (const std::string& key : document->duplicate_keys)
    call.body_faults.push_back("duplicate field \"" + key + "\"");
  return std::move(document->value);
}

}  // namespace

Answer<Json> Server::body_value(Call& call, const ResourceType& type) {
  call.body_faults.clear();
  std::string media = media_type(call);
  const std::string& body = call.http.body;
  if (media.empty() || media == "application/json" || media == "text/json") {
    if (body.empty()) return unreadable(type, "the body is empty");
    Result<Json> value = parse_json(body);
    if (!value) return unreadable(type, "json parse error: " + value.error().text());
    return std::move(*value);
  }
  if (media == "application/yaml" || media == "application/x-yaml") return yaml_value(call, type);
  if (media == "application/vnd.kubernetes.protobuf") {
    ProtobufBody read = TRY(decode_protobuf(
        body, type.group.empty() ? "core" : type.group.substr(0, type.group.find('.')), type.message));
    if (!read.api_version.empty()) set(read.value, {"apiVersion"}, Json(read.api_version));
    if (!read.kind.empty()) set(read.value, {"kind"}, Json(read.kind));
    return std::move(read.value);
  }
  return unknown_format();
}

Answer<Json> Server::read_object(Call& call, const ResourceType& type, const Json& raw) {
  if (!raw.is_object()) return unreadable(type, "the body is not an object");
  std::string_view api = get_string(raw, {"apiVersion"});
  std::string_view kind = get_string(raw, {"kind"});
  if (!api.empty() && api != type.api_version())
    return bad_request("the API version in the data (" + str(api) +
                       ") does not match the expected API version (" + type.api_version() + ")");
  if (!kind.empty() && kind != type.kind)
    return bad_request("the kind in the data (" + str(kind) + ") does not match the expected kind (" +
                       type.kind + ")");
  ShapeReport report;
  Json read = type.message != nullptr && !type.custom ? normalize(raw, *type.message, report)
                                                      : normalize_open(raw, report);
  if (type.custom && report.fault.empty()) {
    const Json* metadata = find(read, {"metadata"});
    Json kept = metadata == nullptr ? Json(nullptr) : *metadata;
    read = raw;  // nulls may mean something here
    if (!kept.is_null()) set(read, {"metadata"}, std::move(kept));
    type.custom->schema().prune(read, "", true, report.unknown);
  }
  if (!report.fault.empty()) return cannot_handle(type, report.fault);
  std::vector<std::string> faults = std::move(call.body_faults);
  call.body_faults.clear();
  for (const std::string& path : report.unknown) faults.push_back("unknown field \"" + path + "\"");
  TRY(take_unknown(call, type, faults));
  JsonObject ordered{{"apiVersion", type.api_version()}, {"kind", type.kind}};
  ordered["metadata"] = JsonObject();
  for (auto& [key, value] : read.get_object())
    if (key != "apiVersion" && key != "kind" && (key != "metadata" || value.is_object()))
      ordered[key] = std::move(value);
  return Json(std::move(ordered));
}

Answer<DeleteOptions> Server::delete_options(Call& call) {
  DeleteOptions options;
  options.dry_run = call.dry_run;
  Json body = JsonObject();
  if (!call.http.body.empty()) {
    ResourceType type;
    type.kind = "DeleteOptions";
    type.version = "v1";
    type.message = find_message("meta", "DeleteOptions");
    body = TRY(body_value(call, type));
    if (!body.is_object()) return unreadable(type, "the body is not an object");
  }
  if (const Json* grace = find(body, {"gracePeriodSeconds"}); grace != nullptr && grace->is_int64())
    options.grace = grace->get_int64();
  if (!call.param("gracePeriodSeconds").empty()) options.grace = parse_int(call.param("gracePeriodSeconds"));
  options.propagation = str(get_string(body, {"propagationPolicy"}, call.param("propagationPolicy")));
  if (get_bool(body, {"orphanDependents"}) || call.flag("orphanDependents")) options.propagation = "Orphan";
  options.uid = str(get_string(body, {"preconditions", "uid"}));
  options.version = str(get_string(body, {"preconditions", "resourceVersion"}));
  for (const Json& word : get_array(body, {"dryRun"})) {
    if (as_text(word) != "All")
      return invalid_object("meta.k8s.io", "DeleteOptions", "", {unsupported("dryRun", word, {"All"})});
    options.dry_run = true;
  }
  const std::string& policy = options.propagation;
  if (!policy.empty() && policy != "Background" && policy != "Foreground" && policy != "Orphan")
    return invalid_object(
        "meta.k8s.io", "DeleteOptions", "",
        {unsupported("propagationPolicy", Json(policy), {"Foreground", "Background", "Orphan", "nil"})});
  return options;
}

}  // namespace gpuop::cluster::api
