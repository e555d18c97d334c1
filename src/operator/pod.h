// Edits on objects and pod specs kept as JSON: owner, labels, environment, mounts, volumes, containers.
// Private to this room.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policy/shared_types.h"

namespace gpuop::op {

struct Owner {
  std::string_view api_version, kind;
  const std::string& name;
  const std::string& uid;
};
// Puts an object into the namespace, unless its kind is the cluster's, and gives it its one owner, which
// controls it.
void place(Json& object, const std::string& ns, const Owner& owner);
// On a DaemonSet and its pods.
void set_label(Json& daemonset, std::string_view key, std::string_view value);

// The pod template's spec of a DaemonSet.
Json& pod_spec(Json& daemonset);
const Json& pod_spec(const Json& daemonset);

// A container by name in `list` ("containers" or "initContainers"); null when there is none.
Json* find_container(Json& pod, std::string_view list, std::string_view name);
// In either list, normal containers first.
Json* find_container(Json& pod, std::string_view name);
const Json* find_container(const Json& pod, std::string_view name);
// Every container, init containers first.
std::vector<Json*> all_containers(Json& pod);
void drop_container(Json& pod, std::string_view name);

// A variable's literal value; "" when absent or taken from elsewhere.
std::string env_value(const Json& container, std::string_view name);
bool has_env(const Json& container, std::string_view name);
// Replaces the entry of that name where it stands, or appends one.
void set_env(Json& container, std::string_view name, std::string_view value);
void set_env(Json& container, const std::vector<policy::EnvVar>& variables);
// Appends an entry, unless there is one of its name.
void add_env(Json& container, Json entry);
// Puts an entry in front of the one called `before` (at the end when there is none).
void insert_env(Json& container, std::string_view before, std::string_view name, std::string_view value);

Json* find_volume(Json& pod, std::string_view name);
void add_volume(Json& pod, Json volume);
void drop_volume(Json& pod, std::string_view name);
void add_mount(Json& container, Json mount);
void drop_mounts(Json& container, std::string_view volume);
Json host_path_volume(std::string_view name, std::string_view path, std::string_view type);
Json config_map_volume(std::string_view name, std::string_view config_map, std::span<const std::string> keys);

void add_pull_secrets(Json& pod, std::span<const std::string> names);
// Image and pull policy of one container.
void set_image(Json& container, const std::string& image, const policy::ImageSpec& spec);
// These, and the pod's pull secrets.
void set_image(Json& pod, Json& container, const std::string& image, const policy::ImageSpec& spec);
void set_resources(Json& container, const Json& resources);
// Replaces args when the list is not empty.
void set_args(Json& container, const std::vector<std::string>& args);
void use_host_network(Json& pod);

}  // namespace gpuop::op
