// Request bodies: media types, decoding, unknown fields (kubernetes-api.md §4, §6).
#include <algorithm>

#include "base/text.h"
#include "base/yaml_api.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/json_faults.h"
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

constexpr std::string_view kNoObject =
    R"(into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" })";

std::string_view json_word(const Json& value) {
  return value.is_array() ? "array" : value.is_string() ? "string" : value.is_bool() ? "bool" : "number";
}

Refusal cannot_handle(const ResourceType& type, std::string_view why) {
  return bad_request(type.kind + " in version \"" + type.version + "\" cannot be handled as a " + type.kind +
                     ": " + std::string(why));
}

Refusal unrecognized(const ResourceType& type, std::string_view why, std::string_view body) {
  return bad_request("the object provided is unrecognized (must be of type " + type.kind +
                     "): " + std::string(why) + " (" + body_summary(body) + ")");
}
Refusal unreadable(const ResourceType& type, std::string_view why, std::string_view body) {
  return unrecognized(type, "couldn't get version/kind; json parse error: " + std::string(why), body);
}
Refusal no_object(const ResourceType& type, const Json& value, std::string_view body) {
  return unreadable(type, "json: cannot unmarshal " + str(json_word(value)) + " " + str(kNoObject), body);
}

Answer<> take_unknown(Call& call, const ResourceType& type, const std::vector<std::string>& faults) {
  if (faults.empty() || call.validation == FieldValidation::kIgnore) return {};
  if (call.validation == FieldValidation::kWarn) {
    for (const std::string& fault : faults) call.warnings.push_back(fault);
    return {};
  }
  return cannot_handle(type, "strict decoding error: " + join(faults, ", "));
}

// A key as Go prints it: text in quotes, anything else (which only YAML has) without. Which of both it was,
// its line tells: keys are text in the end.
std::string go_key(std::string_view body, int line, const std::string& key) {
  const std::vector<std::string> lines = split(body, '\n');
  const std::size_t at = static_cast<std::size_t>(std::max(line, 1)) - 1;
  const std::string quoted = "\"" + key + "\"";
  const bool plain = at < lines.size() && lines[at].find(quoted) == std::string::npos &&
                     lines[at].find("'" + key + "'") == std::string::npos;
  return plain && (key == "true" || key == "false" || parse_int(key)) ? key : quoted;
}

}  // namespace

std::vector<std::string> yaml_faults(const YamlDocument& document, std::string_view body) {
  std::vector<std::string> faults;
  for (const std::string& path : document.duplicate_keys) {
    const int line = document.line_of(path);
    faults.push_back("line " + std::to_string(line) + ": key " +
                     go_key(body, line, path.substr(path.rfind('.') + 1)) + " already set in map");
  }
  return faults;
}

namespace {

Answer<Json> yaml_value(Call& call, const ResourceType& type) {
  Result<std::vector<YamlDocument>> documents = parse_api_yaml(call.http.body, "body");
  if (!documents) return unrecognized(type, "yaml: " + documents.error().text(), call.http.body);
  if (documents->empty()) return unreadable(type, "unexpected end of JSON input", call.http.body);
  // The first one counts, whatever follows it.
  YamlDocument& document = documents->front();
  std::vector<std::string> faults = yaml_faults(document, call.http.body);
  if (call.validation == FieldValidation::kStrict && !faults.empty())
    faults = {"yaml: unmarshal errors:\n  " + join(faults, "\n  ")};
  for (std::string& fault : faults) call.body_faults.push_back(std::move(fault));
  return std::move(document.value);
}

// Custom resources say what they are in their body, and nothing else.
Answer<> check_custom_kind(const Call& call, const ResourceType& type, const Json& raw) {
  for (const char* key : {"apiVersion", "kind"}) {
    const Json* value = find(raw, {key});
    if (value != nullptr && !value->is_string() && !value->is_null())
      return unreadable(type,
                        "json: cannot unmarshal " + str(json_word(*value)) + " into Go struct field ." + key +
                            " of type string",
                        call.http.body);
  }
  const std::string api = str(get_string(raw, {"apiVersion"}));
  const std::string kind = str(get_string(raw, {"kind"}));
  const bool patched = call.http.method == "PATCH";
  if (kind.empty()) {
    if (!patched)
      return unrecognized(type, "Object 'Kind' is missing in '" + call.http.body + "'", call.http.body);
    const std::string text = to_canonical_text(raw);
    return invalid_object("", "", "",
                          {invalid("patch", Json(text), "Object 'Kind' is missing in '" + text + "'")});
  }
  if (api != type.api_version()) {
    if (patched)
      return invalid_object(type.group, kind, get_string(raw, {"metadata", "name"}),
                            {invalid("apiVersion", Json(api), "must be " + type.api_version())});
    return bad_request("the API version in the data (" + api + ") does not match the expected API version (" +
                       type.api_version() + ")");
  }
  if (kind == type.kind) return {};
  return invalid_object(type.group, kind, get_string(raw, {"metadata", "name"}),
                        {invalid("kind", Json(kind), "must be " + type.kind)});
}

// Whether apiVersion and kind, where they are given, are the resource's.
Answer<> check_kind(const Server& server, const Call& call, const ResourceType& type, const Json& raw) {
  if (type.custom) return check_custom_kind(call, type, raw);
  std::string api = str(get_string(raw, {"apiVersion"}));
  std::string kind = str(get_string(raw, {"kind"}));
  if (std::count(api.begin(), api.end(), '/') > 1)
    return unrecognized(type, "unexpected GroupVersion string: " + api, call.http.body);
  if (api.empty()) api = type.api_version();
  if (kind.empty()) kind = type.kind;
  if (api == type.api_version() && kind == type.kind) return {};
  std::size_t slash = api.find('/');
  std::string group = slash == std::string::npos ? "" : api.substr(0, slash);
  std::string version = slash == std::string::npos ? api : api.substr(slash + 1);
  TypePtr other = server.find_kind(group, kind);
  std::string_view inner = type.group.empty() ? std::string_view("core")
                                              : std::string_view(type.group).substr(0, type.group.find('.'));
  std::string why = other && other->version == version && !other->custom
                        ? "converting (" + version + "." + kind + ") to (" + str(inner) + "." + type.kind +
                              "): unknown conversion"
                        : "no kind \"" + kind + "\" is registered for version \"" + api +
                              "\" in scheme \"pkg/runtime/scheme.go:110\"";
  return bad_request(kind + " in version \"" + version + "\" cannot be handled as a " + type.kind + ": " +
                     why);
}

}  // namespace

Answer<Json> Server::body_value(Call& call, const ResourceType& type) {
  call.body_faults.clear();
  std::string media = media_type(call);
  const std::string& body = call.http.body;
  if (media.empty() || media == "application/json" || media == "text/json") {
    Result<Json> value = parse_json(body);
    if (!value) {
      std::string fault = json_fault(body);
      return unreadable(type, fault.empty() ? value.error().text() : fault, body);
    }
    // Nobody writes a key twice but by mistake: looked for only where somebody wants to know.
    if (call.validation != FieldValidation::kIgnore)
      for (const std::string& path : duplicate_keys(body))
        call.body_faults.push_back("duplicate field \"" + path + "\"");
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
  if (raw.is_null()) return read_object(call, type, JsonObject());
  if (!raw.is_object()) return no_object(type, raw, call.http.body);
  TRY(check_kind(*this, call, type, raw));
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
  // An empty record of owners asks for a new one; elsewhere an empty list is none.
  const Json* owners = find(raw, {"metadata", "managedFields"});
  if (owners != nullptr && owners->is_array() && owners->get_array().empty())
    set(read, {"metadata", "managedFields"}, JsonArray{JsonObject()});
  std::vector<std::string> faults = std::move(call.body_faults);
  call.body_faults.clear();
  if (type.custom) std::sort(report.unknown.begin(), report.unknown.end());
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
    if (!body.is_object()) return no_object(type, body, call.http.body);
  }
  if (const Json* grace = find(body, {"gracePeriodSeconds"}); grace != nullptr && grace->is_int64())
    options.grace = grace->get_int64();
  if (!call.param("gracePeriodSeconds").empty()) options.grace = parse_int(call.param("gracePeriodSeconds"));
  options.propagation = str(get_string(body, {"propagationPolicy"}, call.param("propagationPolicy")));
  if (!options.propagation.empty() && (has(body, {"orphanDependents"}) || call.has_param("orphanDependents")))
    return invalid_object("meta.k8s.io", "DeleteOptions", "",
                          {invalid("propagationPolicy", Json(options.propagation),
                                   "orphanDependents and deletionPropagation cannot be both set")});
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
