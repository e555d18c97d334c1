#include "policy/crds.h"

#include <algorithm>

#include "base/yaml.h"
#include "policy/cluster_policy.h"
#include "policy/gpu_cluster.h"
#include "policy/nvidia_driver.h"
#include "policy/schema.h"

namespace gpuop::policy {

namespace {

constexpr const char* kOutcome =
    "`status.conditions` has `Ready` and `Error`, of which one is `True`: the outcome, with its reason and "
    "its\nwords";
constexpr const char* kNoted =
    "; and, where there is something to say, `FieldsIgnored` (fields that nobody knows, deprecated ones, and "
    "ones\nthat an older definition in the cluster drops) and `Advice` (what is carried out and should be "
    "looked at:\nsettings that do something else than they seem to, labels of nodes that choose what is not "
    "there, changes\nof others that were put back)";

constexpr std::string_view kQuantityPattern =
    "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|("
    "\\.[0-9]+))))?$";

struct Resource {
  std::string kind, plural, singular, version;
  std::vector<std::string> short_names;
  JsonArray columns;
  std::vector<std::string> states;
  const Schema& spec;
  const void* assumed;
  std::string about;
  std::string conditions;  // that status.conditions may have, in words
  // Rules on the whole object: expression and message.
  std::vector<std::pair<std::string, std::string>> rules{};
};

Json column(std::string_view name, std::string_view type, std::string_view path) {
  return JsonObject{{"name", name}, {"type", type}, {"jsonPath", path}};
}

Json int_or_string() {
  return JsonArray{JsonObject{{"type", "integer"}}, JsonObject{{"type", "string"}}};
}

Json status_schema(const std::vector<std::string>& states) {
  JsonArray values;
  for (const std::string& state : states) values.emplace_back(state);
  Json conditions = JsonObject{{"description", "What the operator last found."},
                               {"type", "array"},
                               {"items", openapi(condition_schema())},
                               {"x-kubernetes-list-map-keys", JsonArray{"type"}},
                               {"x-kubernetes-list-type", "map"}};
  return JsonObject{
      {"description", "What the operator found; written by the operator."},
      {"type", "object"},
      {"properties",
       JsonObject{
           {"conditions", std::move(conditions)},
           {"namespace", JsonObject{{"description", "Namespace of the operator."}, {"type", "string"}}},
           {"observedGeneration",
            JsonObject{{"description", "The generation of the spec that the status speaks of."},
                       {"format", "int64"},
                       {"type", "integer"}}},
           {"state",
            JsonObject{{"description", "The state in one word."}, {"type", "string"}, {"enum", values}}}}},
      {"required", JsonArray{"state"}}};
}

Json crd(const Resource& r) {
  JsonObject names{{"kind", r.kind}, {"listKind", r.kind + "List"}, {"plural", r.plural}};
  if (!r.short_names.empty()) {
    JsonArray list;
    for (const std::string& name : r.short_names) list.emplace_back(name);
    names["shortNames"] = std::move(list);
  }
  names["singular"] = r.singular;
  Json spec = openapi(r.spec);
  JsonObject properties{
      {"apiVersion", JsonObject{{"description", "API group and version."}, {"type", "string"}}},
      {"kind", JsonObject{{"description", "Kind of the object."}, {"type", "string"}}},
      {"metadata", JsonObject{{"type", "object"}}},
      {"spec", std::move(spec)},
      {"status", status_schema(r.states)}};
  Json schema =
      JsonObject{{"description", r.about}, {"type", "object"}, {"properties", std::move(properties)}};
  if (!r.rules.empty()) {
    JsonArray rules;
    for (const auto& [rule, message] : r.rules)
      rules.push_back(JsonObject{{"message", message}, {"rule", rule}});
    set(schema, {"x-kubernetes-validations"}, std::move(rules));
  }
  JsonObject version{{"name", r.version},
                     {"served", true},
                     {"storage", true},
                     {"additionalPrinterColumns", r.columns},
                     {"schema", JsonObject{{"openAPIV3Schema", std::move(schema)}}},
                     {"subresources", JsonObject{{"status", JsonObject{}}}}};
  return JsonObject{{"apiVersion", "apiextensions.k8s.io/v1"},
                    {"kind", "CustomResourceDefinition"},
                    {"metadata", JsonObject{{"name", r.plural + ".nvidia.com"}}},
                    {"spec", JsonObject{{"group", "nvidia.com"},
                                        {"names", std::move(names)},
                                        {"scope", "Cluster"},
                                        {"versions", JsonArray{std::move(version)}}}}};
}

std::vector<Resource> resources() {
  static const ClusterPolicySpec policy;
  static const NvidiaDriverSpec driver;
  static const GpuClusterSpec cluster;
  std::vector<Resource> list;
  list.push_back({.kind = "ClusterPolicy",
                  .plural = "clusterpolicies",
                  .singular = "clusterpolicy",
                  .version = "v1",
                  .short_names = {},
                  .columns = {column("Status", "string", ".status.state"),
                              column("Age", "string", ".metadata.creationTimestamp")},
                  .states = {"ignored", "ready", "notReady"},
                  .spec = cluster_policy_spec_schema(),
                  .assumed = &policy,
                  .about = "ClusterPolicy describes the GPU software of a cluster.",
                  .conditions = std::string(kOutcome) + kNoted +
                                "; and `Compatible`, whether the\nversions of Kubernetes, the nodes and the "
                                "operands go together.\n"});
  list.push_back(
      {.kind = "NVIDIADriver",
       .plural = "nvidiadrivers",
       .singular = "nvidiadriver",
       .version = "v1alpha1",
       .short_names = {"nvd", "nvdriver", "nvdrivers"},
       .columns = {column("Status", "string", ".status.state"), column("Default", "boolean", ".spec.default"),
                   column("Age", "string", ".metadata.creationTimestamp")},
       .states = {"ignored", "ready", "notReady", "disabled"},
       .spec = nvidia_driver_spec_schema(),
       .assumed = &driver,
       .about = "NVIDIADriver describes the driver of a part of the nodes.",
       .conditions = std::string(kOutcome) + kNoted + ".\n"});
  list.push_back({.kind = "GPUCluster",
                  .plural = "gpuclusters",
                  .singular = "gpucluster",
                  .version = "v1alpha1",
                  .short_names = {},
                  .columns = {column("Status", "string", ".status.state"),
                              column("Age", "date", ".metadata.creationTimestamp")},
                  .states = {"ignored", "ready", "notReady", "disabled"},
                  .spec = gpu_cluster_spec_schema(),
                  .assumed = &cluster,
                  .about =
                      "GPUCluster describes the GPU software of a cluster that hands out GPUs by dynamic "
                      "resource allocation.",
                  .conditions = std::string(kOutcome) + ".\n",
                  .rules = {{"self.metadata.name == 'gpu-cluster'",
                             "GPUCluster is a singleton, metadata.name must be 'gpu-cluster'"}}});
  return list;
}

std::string reference(const Resource& r) {
  return "# " + r.kind + " reference\n\n" + r.about +
         " Made from the declaration that the operator reads it with; do not edit.\n\n"
         "*Default* is what the API server fills in; *absent* is what the operator assumes when a field "
         "without\n"
         "default is left out.\n\n"
         "| Field | Type | Default, limits | Meaning |\n|---|---|---|---|\n" +
         reference_rows(r.spec, r.assumed, "spec") + "\n`status.state` is one of " +
         [&] {
           std::string text;
           for (const std::string& state : r.states) text += (text.empty() ? "`" : ", `") + state + "`";
           return text;
         }() +
         "; `status.namespace` is the operator's.\n\n" + r.conditions;
}

}  // namespace

std::vector<Json> crds() {
  std::vector<Json> list;
  for (const Resource& r : resources()) list.push_back(crd(r));
  return list;
}

std::vector<GeneratedFile> generated_files() {
  std::vector<GeneratedFile> files;
  for (const Resource& r : resources()) {
    files.push_back({"deploy/chart/crds/nvidia.com_" + r.plural + ".yaml", to_yaml(crd(r))});
    files.push_back({"docs/" + r.singular + ".md", reference(r)});
  }
  return files;
}

Json openapi(const Schema& schema) {
  JsonObject out;
  if (!schema.doc.empty()) {
    std::string text = schema.doc;
    if (schema.deprecated) text += " Deprecated: " + schema.deprecation + ".";
    out["description"] = text;
  }
  if (schema.default_value) out["default"] = *schema.default_value;
  if (!schema.choices.empty()) {
    JsonArray values;
    for (const std::string& choice : schema.choices) values.emplace_back(choice);
    out["enum"] = std::move(values);
  }
  if (schema.minimum) out["minimum"] = *schema.minimum;
  if (schema.maximum) out["maximum"] = *schema.maximum;
  if (!schema.pattern.empty()) out["pattern"] = schema.pattern;
  switch (schema.kind) {
    case Kind::kObject: {
      out["type"] = "object";
      JsonObject properties;
      JsonArray required;
      for (const Property& p : schema.properties) {
        properties[p.name] = openapi(p.schema);
        if (p.schema.required) required.emplace_back(p.name);
      }
      if (!properties.empty()) out["properties"] = std::move(properties);
      if (!required.empty()) out["required"] = std::move(required);
      break;
    }
    case Kind::kMap:
      out["type"] = "object";
      out["additionalProperties"] = openapi(*schema.items);
      break;
    case Kind::kArray:
      out["type"] = "array";
      out["items"] = openapi(*schema.items);
      if (!schema.list_map_key.empty()) {
        out["x-kubernetes-list-type"] = "map";
        out["x-kubernetes-list-map-keys"] = JsonArray{Json(schema.list_map_key)};
      } else {
        out["x-kubernetes-list-type"] = "atomic";
      }
      break;
    case Kind::kString:
      out["type"] = "string";
      break;
    case Kind::kBool:
      out["type"] = "boolean";
      break;
    case Kind::kInt32:
    case Kind::kInt64:
      out["type"] = "integer";
      out["format"] = schema.kind == Kind::kInt32 ? "int32" : "int64";
      break;
    case Kind::kQuantity:
      out["anyOf"] = int_or_string();
      out["pattern"] = kQuantityPattern;
      out["x-kubernetes-int-or-string"] = true;
      break;
    case Kind::kIntOrString:
      out["anyOf"] = int_or_string();
      out["x-kubernetes-int-or-string"] = true;
      break;
  }
  if (!schema.rules.empty()) {
    JsonArray rules;
    for (const auto& [rule, message] : schema.rules)
      rules.push_back(JsonObject{{"message", message}, {"rule", rule}});
    out["x-kubernetes-validations"] = std::move(rules);
  }
  return out;
}

namespace {

std::string type_name(const Schema& s) {
  switch (s.kind) {
    case Kind::kObject:
      return "object";
    case Kind::kMap:
      return "map of " + type_name(*s.items);
    case Kind::kArray:
      return "list of " + type_name(*s.items);
    case Kind::kString:
      return "string";
    case Kind::kBool:
      return "boolean";
    case Kind::kInt32:
    case Kind::kInt64:
      return "integer";
    case Kind::kQuantity:
      return "quantity";
    case Kind::kIntOrString:
      return "integer or string";
  }
  return "";
}

std::string code(const Json& json) {
  return "`" + to_text(json) + "`";
}

void add_row(std::string& out, const Property& p, const void* member, const std::string& path) {
  const Schema& s = p.schema;
  std::string limits;
  auto say = [&limits](const std::string& text) { limits += (limits.empty() ? "" : "; ") + text; };
  if (s.required && !s.default_value) say("required");
  if (s.default_value) say("default " + code(*s.default_value));
  if (!s.default_value && member && s.load) {
    std::optional<Json> assumed = s.load(member);
    if (assumed && (assumed->is_bool() || (assumed->is_string() && !assumed->get_string().empty())))
      say("absent: " + code(*assumed));
  }
  if (!s.choices.empty()) {
    std::string choices;
    for (const std::string& choice : s.choices) choices += (choices.empty() ? "" : ", ") + code(Json(choice));
    say("one of " + choices);
  }
  if (!s.must.empty()) say("must " + s.must);
  if (s.minimum) say("at least " + std::to_string(*s.minimum));
  if (s.maximum) say("at most " + std::to_string(*s.maximum));
  std::string meaning = s.doc;
  if (s.deprecated) meaning += " **Deprecated**: " + s.deprecation + ".";
  for (const auto& [rule, message] : s.rules) meaning += " Rule: " + message + ".";
  out += "| `" + path + "` | " + type_name(s) + " | " + limits + " | " + meaning + " |\n";
}

}  // namespace

std::string reference_rows(const Schema& schema, const void* assumed, const std::string& path) {
  std::string out;
  for (const Property& p : schema.properties) {
    const void* member = assumed && p.has_member ? static_cast<const char*>(assumed) + p.offset : nullptr;
    std::string here = path + "." + p.name;
    add_row(out, p, member, here);
    if (p.schema.kind == Kind::kObject)
      out += reference_rows(p.schema, member && p.inner ? p.inner(member) : nullptr, here);
    else if (p.schema.kind == Kind::kArray && p.schema.items->kind == Kind::kObject)
      out += reference_rows(*p.schema.items, nullptr, here + "[]");
  }
  return out;
}

Result<Json> stored_spec(std::string_view kind, const Json& spec) {
  for (const Resource& r : resources())
    if (r.kind == kind) return normalized(r.spec, spec);
  return fail(Code::kInvalid, "read a spec: '" + std::string(kind) + "': no such kind of ours");
}

std::vector<SpecFault> spec_faults(const Json& object) {
  const std::vector<Resource> all = resources();
  const auto of = std::ranges::find(all, get_string(object, {"kind"}), &Resource::kind);
  if (of == all.end()) return {};
  const Json* given = find(object, {"spec"});
  if (!given || given->is_null()) return {{"spec", "is required"}};
  const auto bare = [](const std::string& path, const std::string& text) {
    return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
  };
  std::vector<SpecFault> out;
  for (const Problem& one : find_problems(of->spec, normalized(of->spec, *given), "spec"))
    out.push_back({one.path, bare(one.path, one.text)});
  for (const Note& one : find_notes(of->spec, *given, "spec"))
    out.push_back({one.path, bare(one.path, one.text), false});
  return out;
}

Result<> read_spec(const Schema& schema, const Json& object, void* spec, std::vector<Note>& notes) {
  const Json* given = find(object, {"spec"});
  if (!given || given->is_null()) return fail(Code::kInvalid, "spec: is required");
  Json stored = normalized(schema, *given);
  std::vector<Problem> problems = find_problems(schema, stored, "spec");
  notes = find_notes(schema, *given, "spec");
  if (!problems.empty()) {
    std::string text = problems[0].text;
    if (problems.size() > 1) text += " (and " + std::to_string(problems.size() - 1) + " more)";
    // What is missing may be there, misspelt.
    const auto parent = [](const std::string& path) { return path.substr(0, path.rfind('.')); };
    for (const Note& note : notes) {
      if (note.kind == Note::Kind::kUnknownField && parent(note.path) == parent(problems[0].path))
        text += "; " + note.text;
    }
    return fail(Code::kInvalid, text);
  }
  schema.store(schema, stored, spec);
  return {};
}

}  // namespace gpuop::policy
