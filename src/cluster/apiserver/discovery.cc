// /api and /apis: which resources exist (kubernetes-api.md §2).
#include <algorithm>

#include "base/text.h"
#include "cluster/apiserver/server.h"

namespace gpuop::cluster::api {

namespace {

// Tells whether two servers store a resource alike: 8 bytes of a hash of group, version and kind.
std::string storage_hash(const ResourceType& type) {
  // Events of either group are kept as the core group's.
  bool event = type.group == "events.k8s.io";
  // Definitions are kept in their first form.
  std::string_view version =
      type.group == "apiextensions.k8s.io" ? std::string_view("v1beta1") : type.version;
  std::string hex = sha256_hex(event ? "/v1/Event" : type.group + "/" + str(version) + "/" + type.kind);
  std::string bytes;
  for (std::size_t i = 0; i < 16; i += 2)
    bytes.push_back(static_cast<char>(parse_hex(std::string_view(hex).substr(i, 2)).value_or(0)));
  return base64_encode(bytes);
}

constexpr std::string_view kAggregated =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

JsonArray texts(const std::vector<std::string>& items) {
  JsonArray out;
  for (const std::string& item : items) out.push_back(Json(item));
  return out;
}

JsonObject kind_of(std::string_view group, std::string_view version, std::string_view kind) {
  return JsonObject{{"group", group}, {"version", version}, {"kind", kind}};
}

struct Version {
  std::string name;
  std::vector<TypePtr> types;
};
struct Group {
  std::string name;
  std::vector<Version> versions;
};

}  // namespace

int version_rank(std::string_view version) {
  int base = version.find("alpha") != std::string_view::npos  ? 0
             : version.find("beta") != std::string_view::npos ? 1
                                                              : 2;
  int number = 0;
  for (std::size_t i = 1; i < version.size() && std::isdigit(static_cast<unsigned char>(version[i])) != 0;
       ++i)
    number = std::min(number * 10 + (version[i] - '0'), 1000);
  return base * 10000 + number;
}

namespace {

std::vector<Group> groups_of(const std::vector<TypePtr>& types) {
  std::vector<Group> groups;
  for (const TypePtr& type : types) {
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.name == type->group; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{type->group, {}});
    auto version = std::find_if(group->versions.begin(), group->versions.end(),
                                [&](const Version& v) { return v.name == type->version; });
    if (version == group->versions.end())
      version = group->versions.insert(group->versions.end(), Version{type->version, {}});
    version->types.push_back(type);
  }
  for (Group& group : groups)
    std::sort(group.versions.begin(), group.versions.end(), [](const Version& a, const Version& b) {
      const int left = version_rank(a.name);
      const int right = version_rank(b.name);
      return left != right ? left > right : a.name < b.name;
    });
  return groups;
}

JsonObject aggregated_resource(const ResourceType& type) {
  JsonObject out{{"resource", type.plural},
                 {"responseKind",
                  type.custom ? kind_of(type.group, type.version, type.kind) : kind_of("", "", type.kind)},
                 {"scope", type.namespaced ? "Namespaced" : "Cluster"},
                 {"singularResource", type.singular},
                 {"verbs", texts(type.verbs)}};
  if (!type.short_names.empty()) out["shortNames"] = texts(type.short_names);
  if (!type.categories.empty()) out["categories"] = texts(type.categories);
  JsonArray subs;
  // What a built-in resource's own group and version say already is left out.
  for (const Subresource& sub : type.subresources) {
    bool own = !type.custom && sub.group == type.group && sub.version == type.version;
    subs.push_back(JsonObject{
        {"subresource", sub.name},
        {"responseKind", own ? kind_of("", "", sub.kind) : kind_of(sub.group, sub.version, sub.kind)},
        {"verbs", texts(sub.verbs)}});
  }
  if (!subs.empty()) out["subresources"] = std::move(subs);
  return out;
}

Json aggregated_list(const std::vector<Group>& groups, bool core) {
  JsonArray items;
  for (const Group& group : groups) {
    if (group.name.empty() != core) continue;
    JsonArray versions;
    for (const Version& version : group.versions) {
      JsonArray resources;
      for (const TypePtr& type : version.types) resources.push_back(aggregated_resource(*type));
      versions.push_back(JsonObject{
          {"version", version.name}, {"resources", std::move(resources)}, {"freshness", "Current"}});
    }
    items.push_back(JsonObject{{"metadata", core ? JsonObject() : JsonObject{{"name", group.name}}},
                               {"versions", std::move(versions)}});
  }
  return JsonObject{{"kind", "APIGroupDiscoveryList"},
                    {"apiVersion", "apidiscovery.k8s.io/v2"},
                    {"metadata", JsonObject()},
                    {"items", std::move(items)}};
}

JsonObject legacy_resource(std::string name, const ResourceType& type, std::string_view kind,
                           const std::vector<std::string>& verbs) {
  return JsonObject{{"name", std::move(name)},
                    {"singularName", ""},
                    {"namespaced", type.namespaced},
                    {"kind", kind},
                    {"verbs", texts(verbs)}};
}

Json legacy_list(const std::string& api_version, const Version& version) {
  JsonArray resources;
  for (const TypePtr& type : version.types) {
    JsonObject entry = legacy_resource(type->plural, *type, type->kind, type->verbs);
    entry["singularName"] = type->singular;
    if (!type->short_names.empty()) entry["shortNames"] = texts(type->short_names);
    if (!type->categories.empty()) entry["categories"] = texts(type->categories);
    if (!type->create_only) entry["storageVersionHash"] = storage_hash(*type);
    resources.push_back(std::move(entry));
    for (const Subresource& sub : type->subresources) {
      JsonObject below = legacy_resource(type->plural + "/" + sub.name, *type, sub.kind, sub.verbs);
      if (sub.group != type->group || sub.version != type->version) {
        below["group"] = sub.group;
        below["version"] = sub.version;
      }
      resources.push_back(std::move(below));
    }
  }
  return JsonObject{{"kind", "APIResourceList"},
                    {"apiVersion", "v1"},
                    {"groupVersion", api_version},
                    {"resources", std::move(resources)}};
}

JsonObject legacy_group(const Group& group) {
  JsonArray versions;
  auto entry = [&](const std::string& version) {
    return JsonObject{{"groupVersion", group.name + "/" + version}, {"version", version}};
  };
  for (const Version& version : group.versions) versions.push_back(entry(version.name));
  return JsonObject{{"name", group.name},
                    {"versions", std::move(versions)},
                    {"preferredVersion", entry(group.versions[0].name)}};
}

enum class Form { kLegacy, kAggregated, kNone };

// The first choice that there is. Whole lists of groups have two forms.
Form form_of(std::string_view accept, bool both) {
  if (trim(accept).empty()) return Form::kLegacy;
  for (const std::string& choice : split(accept, ',')) {
    std::vector<std::string> parts = split(trim(choice), ';');
    const std::string_view media = trim(parts[0]);
    if (media != "application/json" && media != "application/yaml" && media != "application/*" &&
        media != "*/*")
      continue;
    std::string group;
    std::string version;
    std::string as;
    for (const std::string& part : parts) {
      const std::string_view text = trim(part);
      if (text.starts_with("g=")) group = text.substr(2);
      if (text.starts_with("v=")) version = text.substr(2);
      if (text.starts_with("as=")) as = text.substr(3);
    }
    if (as.empty()) return Form::kLegacy;
    if (both && as == "APIGroupDiscoveryList" && group == "apidiscovery.k8s.io" && version == "v2")
      return Form::kAggregated;
  }
  return Form::kNone;
}

}  // namespace

void Server::discover(const CallPtr& call) {
  const std::string& method = call->http.method;
  std::vector<std::string> parts;
  for (std::string& part : split(call->http.path, '/'))
    if (!part.empty()) parts.push_back(std::move(part));
  std::vector<Group> groups = groups_of(all_types());
  bool core = !parts.empty() && parts[0] == "api";
  bool known = parts.empty() || core || parts[0] == "apis";
  // Paths that no API has are answered by the server beneath, in plain text.
  auto group = parts.size() > 1 ? std::find_if(groups.begin(), groups.end(),
                                               [&](const Group& one) { return one.name == parts[1]; })
                                : groups.end();
  bool foreign = !known || (!core && parts.size() > 1 && group == groups.end());
  // So are versions that the definitions of a group do not serve.
  if (!foreign && !core && parts.size() > 2 && group->versions[0].types[0]->custom)
    foreign = std::none_of(group->versions.begin(), group->versions.end(),
                           [&](const Version& version) { return version.name == parts[2]; });
  if (foreign) return respond(call, HttpResponse::text(404, "404 page not found\n"));
  if (parts.size() > 3) return respond_status(call, no_such_path().error());
  if (method != "GET") return respond_status(call, method_not_allowed().error());
  if (parts.empty()) {
    JsonArray paths{"/api", "/api/v1", "/apis"};
    for (const Group& group : groups) {
      if (group.name.empty()) continue;
      paths.push_back(Json("/apis/" + group.name));
      for (const Version& version : group.versions)
        paths.push_back(Json("/apis/" + group.name + "/" + version.name));
    }
    for (std::string_view path : {"/healthz", "/livez", "/openapi/v3", "/readyz", "/version"})
      paths.push_back(Json(path));
    return respond_json(call, 200, JsonObject{{"paths", std::move(paths)}});
  }
  const Form form = form_of(call->http.header("Accept"), parts.size() == 1);
  if (form == Form::kNone) {
    Refusal no = refuse(406, "NotAcceptable",
                        "only the following media types are accepted: application/json, application/yaml, "
                        "application/vnd.kubernetes.protobuf");
    no.error().has_details = false;
    return respond_status(call, no.error());
  }
  if (form == Form::kAggregated) {
    HttpResponse response;
    response.body = to_text(aggregated_list(groups, core));
    std::string tag = "\"" + sha256_hex(response.body).substr(0, 32) + "\"";
    response.headers["ETag"] = tag;
    response.headers["Vary"] = "Accept";
    if (call->http.header("If-None-Match") == tag) {
      response.status = 304;
      response.body.clear();
    } else {
      response.headers["Content-Type"] = std::string(kAggregated);
    }
    return respond(call, std::move(response));
  }
  if (core && parts.size() == 1)
    return respond_json(call, 200,
                        JsonObject{{"kind", "APIVersions"},
                                   {"versions", JsonArray{"v1"}},
                                   {"serverAddressByClientCIDRs", JsonArray()}});
  if (core) {
    for (const Group& group : groups)
      if (group.name.empty() && parts.size() == 2 && parts[1] == "v1")
        return respond_json(call, 200, legacy_list("v1", group.versions[0]));
    return respond_status(call, no_such_path().error());
  }
  if (parts.size() == 1) {
    JsonArray list;
    for (const Group& group : groups)
      if (!group.name.empty()) list.push_back(legacy_group(group));
    return respond_json(
        call, 200, JsonObject{{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", std::move(list)}});
  }
  for (const Group& group : groups) {
    if (group.name.empty() || group.name != parts[1]) continue;
    if (parts.size() == 2) {
      JsonObject body = legacy_group(group);
      body["kind"] = "APIGroup";
      body["apiVersion"] = "v1";
      return respond_json(call, 200, std::move(body));
    }
    for (const Version& version : group.versions)
      if (version.name == parts[2])
        return respond_json(call, 200, legacy_list(group.name + "/" + version.name, version));
  }
  respond_status(call, no_such_path().error());
}

}  // namespace gpuop::cluster::api
