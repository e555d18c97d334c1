#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "base/files.h"
#include "cdi/registry.h"

namespace gpuop::cdi {

namespace {

// The value at `keys` as a container of kind `Kind` (JsonObject or JsonArray), made or replaced when it is
// not one.
template <class Kind>
Kind& container(Json& root, Keys keys) {
  Json& value = ensure(root, keys);
  if constexpr (std::is_same_v<Kind, JsonArray>) {
    if (!value.is_array()) value.emplace_array();
    return value.get_array();
  } else {
    if (!value.is_object()) value.emplace_object();
    return value.get_object();
  }
}

void apply_env(Json& oci, const std::vector<std::string>& env) {
  if (env.empty()) return;
  auto& list = container<JsonArray>(oci, {"process", "env"});
  for (const auto& entry : env) {
    std::string_view name = std::string_view(entry).substr(0, entry.find('=') + 1);
    auto same = std::ranges::find_if(list, [&](const Json& old) { return as_text(old).starts_with(name); });
    if (same != list.end()) {
      *same = entry;
    } else {
      list.emplace_back(entry);
    }
  }
}

std::string kind_of(mode_t mode) {
  if (S_ISCHR(mode)) return "c";
  if (S_ISBLK(mode)) return "b";
  if (S_ISFIFO(mode)) return "p";
  return "";
}

// Completes a node from the host's (§1.5). lstat: a symlink at a device's place is not a device.
Result<DeviceNode> filled(DeviceNode node, const ApplyOptions& options) {
  if (node.host_path.empty()) node.host_path = node.path;
  struct stat info{};
  fs::path host = options.host_root / fs::path(node.host_path).relative_path();
  bool minimal = !node.type.empty() && (node.major != 0 || node.type == "p");
  auto doing = "look up device node '" + node.host_path + "'";
  if (lstat(host.c_str(), &info) != 0) {
    if (minimal) return node;
    return fail(errno_error(doing, errno));
  }
  std::string kind = kind_of(info.st_mode);
  if (kind.empty()) {
    if (minimal) return node;
    return fail(Code::kInvalid, doing + ": not a device node");
  }
  std::string wanted = node.type == "u" ? "c" : node.type;
  if (wanted.empty()) {
    node.type = kind;
  } else if (wanted != kind && !minimal) {
    return fail(Code::kInvalid, doing + ": it is of type " + kind + ", the CDI spec says " + node.type);
  }
  if (node.major == 0 && node.type != "p") {
    node.major = major(info.st_rdev);
    node.minor = minor(info.st_rdev);
  }
  if (!node.file_mode) node.file_mode = info.st_mode & 0777;
  return node;
}

std::uint32_t process_id(const Json& oci, std::string_view which) {
  return static_cast<std::uint32_t>(get_int(oci, {"process", "user", which}));
}

Result<> apply_node(Json& oci, const DeviceNode& raw, const ApplyOptions& options) {
  DeviceNode node = TRY(filled(raw, options));
  if (!node.uid && process_id(oci, "uid") > 0) node.uid = process_id(oci, "uid");
  if (!node.gid && process_id(oci, "gid") > 0) node.gid = process_id(oci, "gid");
  JsonObject device{{"path", node.path}, {"type", node.type}, {"major", node.major}, {"minor", node.minor}};
  if (node.file_mode) device["fileMode"] = *node.file_mode;
  if (node.uid) device["uid"] = *node.uid;
  if (node.gid) device["gid"] = *node.gid;
  auto& devices = container<JsonArray>(oci, {"linux", "devices"});
  for (auto it = devices.begin(); it != devices.end();) {
    it = get_string(*it, {"path"}) == node.path ? devices.erase(it) : it + 1;
  }
  devices.emplace_back(std::move(device));
  if (node.type == "b" || node.type == "c") {
    std::string access = node.permissions.empty()     ? "rwm"
                         : node.permissions == "none" ? ""
                                                      : node.permissions;
    container<JsonArray>(oci, {"linux", "resources", "devices"})
        .emplace_back(JsonObject{{"allow", true},
                                 {"type", node.type},
                                 {"major", node.major},
                                 {"minor", node.minor},
                                 {"access", access}});
  }
  return {};
}

bool has_user_namespace(const Json& oci) {
  return std::ranges::any_of(get_array(oci, {"linux", "namespaces"}),
                             [](const Json& ns) { return get_string(ns, {"type"}) == "user"; });
}

// A bind mount into a user namespace needs its ids mapped, or every file belongs to nobody.
std::vector<std::string> mapped_options(const Mount& mount) {
  auto options = mount.options;
  auto has = [&](std::string_view name) { return std::ranges::find(options, name) != options.end(); };
  if (has("idmap") || has("ridmap")) return options;
  if (has("rbind")) {
    options.emplace_back("ridmap");
  } else if (has("bind") || mount.type == "bind") {
    options.emplace_back("idmap");
  }
  return options;
}

std::ptrdiff_t depth(const Json& mount) {
  std::string destination = fs::path(get_string(mount, {"destination"})).lexically_normal().string();
  if (destination.size() > 1 && destination.ends_with('/')) destination.pop_back();
  return std::ranges::count(destination, '/') - (destination == "/" ? 1 : 0);
}

void apply_mounts(Json& oci, const std::vector<Mount>& mounts) {
  if (mounts.empty()) return;
  bool user_namespace = has_user_namespace(oci);
  auto& list = container<JsonArray>(oci, {"mounts"});
  for (const auto& mount : mounts) {
    auto same = std::ranges::find_if(
        list, [&](const Json& old) { return get_string(old, {"destination"}) == mount.container_path; });
    if (same != list.end()) list.erase(same);
    JsonObject entry{{"destination", mount.container_path}, {"source", mount.host_path}};
    if (!mount.type.empty()) entry["type"] = mount.type;
    auto options = user_namespace ? mapped_options(mount) : mount.options;
    if (!options.empty()) entry["options"] = JsonArray(options.begin(), options.end());
    list.emplace_back(std::move(entry));
  }
  // A mount must not hide one made below it before.
  std::vector<Json> sorted(list.begin(), list.end());
  std::ranges::stable_sort(sorted, {}, depth);
  std::ranges::move(sorted, list.begin());
}

void apply_hooks(Json& oci, const std::vector<Hook>& hooks) {
  for (const auto& hook : hooks) {
    JsonObject entry{{"path", hook.path}};
    if (!hook.args.empty()) entry["args"] = JsonArray(hook.args.begin(), hook.args.end());
    if (!hook.env.empty()) entry["env"] = JsonArray(hook.env.begin(), hook.env.end());
    if (hook.timeout) entry["timeout"] = *hook.timeout;
    container<JsonArray>(oci, {"hooks", hook.name}).emplace_back(std::move(entry));
  }
}

void apply_rdt(Json& oci, const IntelRdt& rdt) {
  JsonObject object;
  if (!rdt.clos_id.empty()) object["closID"] = rdt.clos_id;
  if (!rdt.l3_cache_schema.empty()) object["l3CacheSchema"] = rdt.l3_cache_schema;
  if (!rdt.mem_bw_schema.empty()) object["memBwSchema"] = rdt.mem_bw_schema;
  if (rdt.schemata) object["schemata"] = JsonArray(rdt.schemata->begin(), rdt.schemata->end());
  if (rdt.enable_monitoring) object["enableMonitoring"] = true;
  set(oci, {"linux", "intelRdt"}, std::move(object));
}

void apply_gids(Json& oci, const std::vector<std::uint32_t>& gids) {
  for (auto gid : gids) {
    if (gid == 0) continue;
    auto& list = container<JsonArray>(oci, {"process", "user", "additionalGids"});
    bool present = std::ranges::any_of(list, [&](const Json& old) {
      return (old.is_int64() && old.get_int64() == gid) || (old.is_uint64() && old.get_uint64() == gid);
    });
    if (!present) list.emplace_back(gid);
  }
}

}  // namespace

Result<> apply(Json& oci, const Edits& edits, const ApplyOptions& options) {
  if (!oci.is_object()) return fail(Code::kInvalid, "apply CDI edits: the OCI spec is not an object");
  apply_env(oci, edits.env);
  for (const auto& node : edits.device_nodes) TRY(apply_node(oci, node, options));
  for (const auto& device : edits.net_devices) {
    set(oci, {"linux", "netDevices", device.host_interface_name}, JsonObject{{"name", device.name}});
  }
  apply_mounts(oci, edits.mounts);
  apply_hooks(oci, edits.hooks);
  if (edits.intel_rdt) apply_rdt(oci, *edits.intel_rdt);
  apply_gids(oci, edits.additional_gids);
  return {};
}

}  // namespace gpuop::cdi
