#include "operator/pod.h"

#include <algorithm>
#include <utility>

namespace gpuop::op {

namespace {

JsonArray& array_of(Json& object, std::string_view key) {
  Json& value = ensure(object, {key});
  if (!value.is_array()) value = JsonArray{};
  return value.get_array();
}

Json* find_named(JsonArray& list, std::string_view name) {
  for (Json& item : list)
    if (get_string(item, {"name"}) == name) return &item;
  return nullptr;
}

}  // namespace

void place(Json& object, const std::string& ns, const Owner& owner) {
  static constexpr std::string_view kOfTheCluster[] = {"ClusterRole", "ClusterRoleBinding", "RuntimeClass",
                                                       "SecurityContextConstraints"};
  if (std::ranges::find(kOfTheCluster, get_string(object, {"kind"})) == std::end(kOfTheCluster))
    set(object, {"metadata", "namespace"}, ns);
  JsonObject reference{{"apiVersion", owner.api_version},
                       {"kind", owner.kind},
                       {"name", owner.name},
                       {"uid", owner.uid},
                       {"controller", true},
                       {"blockOwnerDeletion", true}};
  set(object, {"metadata", "ownerReferences"}, JsonArray{Json(std::move(reference))});
}

void set_label(Json& daemonset, std::string_view key, std::string_view value) {
  set(daemonset, {"metadata", "labels", key}, value);
  set(daemonset, {"spec", "template", "metadata", "labels", key}, value);
}

Json& pod_spec(Json& daemonset) {
  return ensure(daemonset, {"spec", "template", "spec"});
}

const Json& pod_spec(const Json& daemonset) {
  static const Json none = JsonObject{};
  const Json* spec = find(daemonset, {"spec", "template", "spec"});
  return spec ? *spec : none;
}

Json* find_container(Json& pod, std::string_view list, std::string_view name) {
  Json* value = find_mutable(pod, {list});
  return value && value->is_array() ? find_named(value->get_array(), name) : nullptr;
}

Json* find_container(Json& pod, std::string_view name) {
  Json* found = find_container(pod, "containers", name);
  return found ? found : find_container(pod, "initContainers", name);
}

const Json* find_container(const Json& pod, std::string_view name) {
  for (std::string_view list : {"containers", "initContainers"})
    for (const Json& container : get_array(pod, {list}))
      if (get_string(container, {"name"}) == name) return &container;
  return nullptr;
}

std::vector<Json*> all_containers(Json& pod) {
  std::vector<Json*> found;
  for (std::string_view list : {"initContainers", "containers"})
    if (Json* value = find_mutable(pod, {list}); value && value->is_array())
      for (Json& container : value->get_array()) found.push_back(&container);
  return found;
}

void drop_container(Json& pod, std::string_view name) {
  for (std::string_view list : {"initContainers", "containers"}) {
    Json* value = find_mutable(pod, {list});
    if (!value || !value->is_array()) continue;
    JsonArray kept;
    for (Json& container : value->get_array())
      if (get_string(container, {"name"}) != name) kept.push_back(std::move(container));
    if (kept.empty() && list == "initContainers")
      remove(pod, {list});
    else
      *value = std::move(kept);
  }
}

std::string env_value(const Json& container, std::string_view name) {
  for (const Json& entry : get_array(container, {"env"}))
    if (get_string(entry, {"name"}) == name) return str(get_string(entry, {"value"}));
  return "";
}

bool has_env(const Json& container, std::string_view name) {
  for (const Json& entry : get_array(container, {"env"}))
    if (get_string(entry, {"name"}) == name) return true;
  return false;
}

void set_env(Json& container, std::string_view name, std::string_view value) {
  JsonArray& env = array_of(container, "env");
  Json entry = JsonObject{{"name", name}, {"value", value}};
  if (Json* old = find_named(env, name))
    *old = std::move(entry);
  else
    env.push_back(std::move(entry));
}

void set_env(Json& container, const std::vector<policy::EnvVar>& variables) {
  for (const policy::EnvVar& variable : variables) set_env(container, variable.name, variable.value);
}

void add_env(Json& container, Json entry) {
  if (!has_env(container, get_string(entry, {"name"})))
    array_of(container, "env").push_back(std::move(entry));
}

void insert_env(Json& container, std::string_view before, std::string_view name, std::string_view value) {
  JsonArray& env = array_of(container, "env");
  auto at = std::ranges::find_if(
      env, [before](const Json& entry) { return get_string(entry, {"name"}) == before; });
  env.insert(at, JsonObject{{"name", name}, {"value", value}});
}

Json* find_volume(Json& pod, std::string_view name) {
  Json* volumes = find_mutable(pod, {"volumes"});
  return volumes && volumes->is_array() ? find_named(volumes->get_array(), name) : nullptr;
}

void add_volume(Json& pod, Json volume) {
  array_of(pod, "volumes").push_back(std::move(volume));
}

void drop_volume(Json& pod, std::string_view name) {
  JsonArray kept;
  for (Json& volume : array_of(pod, "volumes"))
    if (get_string(volume, {"name"}) != name) kept.push_back(std::move(volume));
  set(pod, {"volumes"}, std::move(kept));
}

void add_mount(Json& container, Json mount) {
  array_of(container, "volumeMounts").push_back(std::move(mount));
}

void drop_mounts(Json& container, std::string_view volume) {
  JsonArray kept;
  for (Json& mount : array_of(container, "volumeMounts"))
    if (get_string(mount, {"name"}) != volume) kept.push_back(std::move(mount));
  set(container, {"volumeMounts"}, std::move(kept));
}

Json host_path_volume(std::string_view name, std::string_view path, std::string_view type) {
  JsonObject host_path{{"path", path}};
  if (!type.empty()) host_path["type"] = type;
  return JsonObject{{"name", name}, {"hostPath", std::move(host_path)}};
}

Json config_map_volume(std::string_view name, std::string_view config_map,
                       std::span<const std::string> keys) {
  JsonObject source{{"name", config_map}};
  JsonArray items;
  for (const std::string& key : keys) items.push_back(JsonObject{{"key", key}, {"path", key}});
  if (!items.empty()) source["items"] = std::move(items);
  return JsonObject{{"name", name}, {"configMap", std::move(source)}};
}

void add_pull_secrets(Json& pod, std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (name.empty()) continue;
    JsonArray& list = array_of(pod, "imagePullSecrets");
    if (!find_named(list, name)) list.push_back(JsonObject{{"name", name}});
  }
}

void set_image(Json& container, const std::string& image, const policy::ImageSpec& spec) {
  set(container, {"image"}, image);
  const std::string& policy = spec.image_pull_policy;
  set(container, {"imagePullPolicy"}, policy == "Always" || policy == "Never" ? policy : "IfNotPresent");
}

void set_image(Json& pod, Json& container, const std::string& image, const policy::ImageSpec& spec) {
  set_image(container, image, spec);
  add_pull_secrets(pod, spec.image_pull_secrets);
}

void set_resources(Json& container, const Json& resources) {
  if (resources.is_object() && !resources.get_object().empty()) set(container, {"resources"}, resources);
}

void set_args(Json& container, const std::vector<std::string>& args) {
  if (args.empty()) return;
  JsonArray list;
  for (const std::string& arg : args) list.emplace_back(arg);
  set(container, {"args"}, std::move(list));
}

void use_host_network(Json& pod) {
  set(pod, {"hostNetwork"}, true);
  set(pod, {"dnsPolicy"}, "ClusterFirstWithHostNet");
}

}  // namespace gpuop::op
