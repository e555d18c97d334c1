// /openapi/v3: what kubectl needs to let this server validate, and to explain (kubernetes-api.md §3).
#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

namespace {

std::string path_name(const ResourceType& type) {
  return type.group.empty() ? "api/" + type.version : "apis/" + type.group + "/" + type.version;
}

Json query_parameter(std::string_view name, std::string_view kind) {
  return JsonObject{{"name", name}, {"in", "query"}, {"schema", JsonObject{{"type", kind}}}};
}

JsonObject group_version_kind(const ResourceType& type) {
  return JsonObject{{"group", type.group}, {"version", type.version}, {"kind", type.kind}};
}

JsonObject path_item(const ResourceType& type, const std::string& schema) {
  JsonObject content{
      {"application/json", JsonObject{{"schema", JsonObject{{"$ref", "#/components/schemas/" + schema}}}}}};
  JsonObject ok{{"description", "OK"}, {"content", content}};
  JsonObject patch{
      {"parameters",
       JsonArray{query_parameter("fieldValidation", "string"), query_parameter("dryRun", "string"),
                 query_parameter("fieldManager", "string"), query_parameter("force", "boolean")}},
      {"responses", JsonObject{{"200", ok}}},
      {"x-kubernetes-action", "patch"},
      {"x-kubernetes-group-version-kind", group_version_kind(type)}};
  JsonObject get{{"responses", JsonObject{{"200", ok}}},
                 {"x-kubernetes-action", "get"},
                 {"x-kubernetes-group-version-kind", group_version_kind(type)}};
  return JsonObject{{"get", std::move(get)}, {"patch", std::move(patch)}};
}

constexpr const char* kIntOrString = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
constexpr const char* kFieldSet = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";

std::string message_schema(const Message& message, const ResourceType& type) {
  static const Message* meta = find_message("meta", "ObjectMeta");
  if (&message == meta) return "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
  return "io.k8s.api." +
         (type.group.empty() ? std::string("core") : type.group.substr(0, type.group.find('.'))) + "." +
         type.version + "." + message.name;
}

Json field_schema(const Field& field, const ResourceType& type, std::vector<const Message*>& wanted) {
  JsonObject one;
  switch (field.kind) {
    case FieldKind::kInt:
      one = {{"type", "integer"}, {"format", "int64"}};
      break;
    case FieldKind::kBool:
      one = {{"type", "boolean"}};
      break;
    case FieldKind::kTime:
    case FieldKind::kMicroTime:
      one = {{"type", "string"}, {"format", "date-time"}};
      break;
    case FieldKind::kBytes:
      one = {{"type", "string"}, {"format", "byte"}};
      break;
    case FieldKind::kIntOrString:
      one = {{"allOf", JsonArray{JsonObject{{"$ref", std::string("#/components/schemas/") + kIntOrString}}}}};
      break;
    case FieldKind::kMessage:
      if (field.message->name == "ExtraValue" || field.message->name == "AttestationValue") {
        one = {{"type", "array"}, {"items", JsonObject{{"type", "string"}}}};
      } else {
        wanted.push_back(field.message);
        one = {{"allOf", JsonArray{JsonObject{
                             {"$ref", "#/components/schemas/" + message_schema(*field.message, type)}}}}};
      }
      break;
    case FieldKind::kRaw:
    case FieldKind::kOpen:
      one = {{"type", "object"}};
      if (field.type_name == "FieldsV1")
        one = {{"allOf", JsonArray{JsonObject{{"$ref", std::string("#/components/schemas/") + kFieldSet}}}}};
      break;
    default:
      one = {{"type", "string"}};
  }
  if (field.shape == Shape::kList) one = {{"type", "array"}, {"items", std::move(one)}};
  if (field.shape == Shape::kMap) one = {{"type", "object"}, {"additionalProperties", std::move(one)}};
  one["description"] =
      "Field " + field.name + (field.type_name.empty() ? "" : " (" + field.type_name + ")") + ".";
  return one;
}

void add_message(const Message& message, const ResourceType& type, JsonObject& schemas) {
  std::string name = message_schema(message, type);
  if (schemas.contains(name)) return;
  schemas[name] = JsonObject();
  std::vector<const Message*> wanted;
  JsonObject properties;
  for (const auto& [key, field] : message.by_name) properties[key] = field_schema(*field, type, wanted);
  schemas[name] = JsonObject{{"description", message.name + " of " + type.api_version() + "."},
                             {"type", "object"},
                             {"properties", std::move(properties)}};
  if (message.name == "OwnerReference")
    schemas[name].get_object()["required"] = JsonArray{"apiVersion", "kind", "name", "uid"};
  if (message.name == "ManagedFieldsEntry")
    schemas[kFieldSet] = JsonObject{{"description", "A set of fields."}, {"type", "object"}};
  for (const Message* next : wanted) add_message(*next, type, schemas);
}

JsonObject type_meta() {
  auto text = [](std::string_view description) {
    return JsonObject{{"description", description}, {"type", "string"}};
  };
  return JsonObject{{"apiVersion", text("Group and version of this object's schema.")},
                    {"kind", text("The kind of object this is.")}};
}

std::string add_type(const ResourceType& type, JsonObject& schemas) {
  static const std::string meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
  add_message(*find_message("meta", "ObjectMeta"), type, schemas);
  schemas[kIntOrString] =
      JsonObject{{"description", "A number or a text."},
                 {"oneOf", JsonArray{JsonObject{{"type", "integer"}}, JsonObject{{"type", "string"}}}},
                 {"format", "int-or-string"}};
  JsonObject schema;
  std::string name;
  if (type.custom) {
    std::vector<std::string> parts = split(type.group, '.');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) name += *part + ".";
    name += type.version + "." + type.kind;
    if (type.custom->source().is_object()) schema = type.custom->source().get_object();
  } else {
    name = "io.k8s.api." +
           (type.group.empty() ? std::string("core") : type.group.substr(0, type.group.find('.'))) + "." +
           type.version + "." + type.kind;
    if (type.message != nullptr) {
      add_message(*type.message, type, schemas);
      schema = schemas[message_schema(*type.message, type)].get_object();
    } else {
      JsonObject open{{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
      schema["properties"] = JsonObject{{"spec", open}, {"status", open}};
    }
  }
  schema["type"] = "object";
  if (!schema.contains("description")) schema["description"] = type.kind + " of " + type.api_version() + ".";
  Json& properties = schema["properties"];
  if (!properties.is_object()) properties.emplace_object();
  for (auto& [key, value] : type_meta()) properties.get_object()[key] = value;
  properties.get_object()["metadata"] =
      JsonObject{{"description", "Standard object's metadata."},
                 {"allOf", JsonArray{JsonObject{{"$ref", "#/components/schemas/" + meta}}}}};
  schema["x-kubernetes-group-version-kind"] = JsonArray{group_version_kind(type)};
  schemas[name] = std::move(schema);
  return name;
}

std::string document(const std::vector<TypePtr>& types, std::string_view path) {
  JsonObject paths;
  JsonObject schemas;
  for (const TypePtr& type : types) {
    if (path_name(*type) != path) continue;
    std::string schema = add_type(*type, schemas);
    std::string where = "/" + std::string(path) + (type->namespaced ? "/namespaces/{namespace}/" : "/") +
                        type->plural + "/{name}";
    paths[where] = path_item(*type, schema);
  }
  return to_text(Json(JsonObject{{"openapi", "3.0.0"},
                                 {"info", JsonObject{{"title", "Kubernetes"}, {"version", "v1.34.0"}}},
                                 {"paths", std::move(paths)},
                                 {"components", JsonObject{{"schemas", std::move(schemas)}}}}));
}

}  // namespace

void Server::openapi(const CallPtr& call) {
  const std::string& path = call->http.path;
  if (call->http.method != "GET") return respond_status(call, method_not_allowed().error());
  if (openapi_version != types_version) {
    openapi_cache.clear();
    openapi_hashes.clear();
    openapi_version = types_version;
    for (const TypePtr& type : all_types()) openapi_hashes[path_name(*type)];
  }
  auto load = [&](const std::string& name) -> const std::string& {
    std::string& text = openapi_cache[name];
    if (text.empty()) {
      text = document(all_types(), name);
      openapi_hashes[name] = sha256_hex(text);
    }
    return text;
  };
  if (path == "/openapi/v3" || path == "/openapi/v3/") {
    JsonObject paths;
    for (auto& [name, hash] : openapi_hashes) {
      load(name);
      paths[name] = JsonObject{{"serverRelativeURL", "/openapi/v3/" + name + "?hash=" + hash}};
    }
    return respond_json(call, 200, JsonObject{{"paths", std::move(paths)}});
  }
  constexpr std::string_view kPrefix = "/openapi/v3/";
  std::string name = path.starts_with(kPrefix) ? path.substr(kPrefix.size()) : "";
  if (!openapi_hashes.contains(name)) return respond_status(call, no_such_path().error());
  const std::string& text = load(name);
  std::string_view asked = call->param("hash");
  HttpResponse response = HttpResponse::json(200, "");
  if (!asked.empty() && asked != openapi_hashes[name]) {
    response.status = 301;
    response.headers["Location"] = "/openapi/v3/" + name + "?hash=" + openapi_hashes[name];
    return respond(call, std::move(response));
  }
  if (!asked.empty()) response.headers["Cache-Control"] = "public, immutable";
  response.body = text;
  respond(call, std::move(response));
}

}  // namespace gpuop::cluster::api
