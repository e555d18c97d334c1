#include "shim/request.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "cdi/spec.h"

namespace gpuop::shim {

namespace {

constexpr std::string_view kVolumeRoot = "/var/run/nvidia-container-devices";

void add_unique(std::vector<std::string>& list, std::string item) {
  if (!item.empty() && std::ranges::find(list, item) == list.end()) list.push_back(std::move(item));
}

// The part of a mount's destination below the volume root; nullopt when it is not one of ours.
std::optional<std::string> volume_id(const Container::Mount& mount) {
  if (mount.source != "/dev/null") return std::nullopt;
  std::string path = std::filesystem::path(mount.destination).lexically_normal().string();
  if (!path.starts_with(kVolumeRoot) || path.size() <= kVolumeRoot.size() + 1 ||
      path[kVolumeRoot.size()] != '/') {
    return std::nullopt;
  }
  return path.substr(kVolumeRoot.size() + 1);
}

// "cdi/vendor/class=name" or "cdi/vendor/class/name" to a qualified name.
std::optional<std::string> cdi_volume(std::string_view id) {
  auto parts = split(id, '/');
  if (parts.size() == 4) return parts[1] + "/" + parts[2] + "=" + parts[3];
  if (parts.size() == 3) return parts[1] + "/" + parts[2];
  return std::nullopt;
}

std::vector<std::string> devices_from_volumes(const Container& container,
                                              std::vector<std::string>& warnings) {
  std::vector<std::string> devices;
  for (const auto& mount : container.mounts) {
    auto id = volume_id(mount);
    if (!id || id->starts_with("imex/")) continue;
    if (!id->starts_with("cdi/")) {
      add_unique(devices, *id);
      continue;
    }
    auto name = cdi_volume(*id);
    if (name && cdi::is_qualified_name(*name)) {
      add_unique(devices, *name);
    } else {
      warnings.push_back("ignored volume mount '" + mount.destination + "': not a CDI device name");
    }
  }
  return devices;
}

std::vector<std::string> devices_from_annotations(const Container& container, const Config& config) {
  std::vector<std::string> devices;
  for (const auto& [key, value] : container.annotations) {  // the map is sorted
    bool ours = std::ranges::any_of(config.annotation_prefixes,
                                    [&](const auto& prefix) { return key.starts_with(prefix); });
    if (!ours) continue;
    for (auto& device : split(value, ',')) add_unique(devices, std::move(device));
  }
  return devices;
}

// The values of the variables that ask for devices; nullopt when none is set.
std::optional<std::vector<std::string>> env_values(const Container& container, const Config& config) {
  std::vector<std::string> values;
  bool found = false;
  for (const auto& name : split(config.swarm_resource, ',')) {
    auto it = container.env.find(trim(name));
    if (it == container.env.end() || trim(name).empty()) continue;
    found = true;
    for (auto& value : split(it->second, ',')) values.emplace_back(trim(value));
  }
  if (found) return values;
  auto it = container.env.find("NVIDIA_VISIBLE_DEVICES");
  if (it == container.env.end()) return std::nullopt;
  for (auto& value : split(it->second, ',')) values.emplace_back(trim(value));
  return values;
}

Request request_of(const std::optional<std::vector<std::string>>& values, bool legacy_image) {
  Request request;
  if (!values) {
    if (legacy_image) request = {Request::Kind::kDevices, {"all"}, {}};
    return request;
  }
  for (const auto& value : *values) {
    if (value == "void") return {};
    if (value == "none") return {Request::Kind::kNoDevices, {}, {}};
    if (value == "all") return {Request::Kind::kDevices, {"all"}, {}};
    add_unique(request.devices, value);
  }
  if (!request.devices.empty()) request.kind = Request::Kind::kDevices;
  return request;
}

bool has_sys_admin(const Json& oci) {
  // Before OCI 1.0.0-rc5 capabilities was one flat list.
  const Json* capabilities = find(oci, {"process", "capabilities"});
  if (capabilities == nullptr) return false;
  const JsonArray& list =
      capabilities->is_array() ? capabilities->get_array() : get_array(*capabilities, {"bounding"});
  return std::ranges::any_of(list, [](const Json& name) { return as_text(name) == "CAP_SYS_ADMIN"; });
}

}  // namespace

std::string_view Container::variable(std::string_view name) const {
  auto it = env.find(name);
  return it == env.end() ? std::string_view() : std::string_view(it->second);
}

bool Container::legacy_image() const {
  return !variable("CUDA_VERSION").empty() && variable("NVIDIA_REQUIRE_CUDA").empty();
}

Container container_of(const Json& oci) {
  Container container;
  for (const auto& entry : get_array(oci, {"process", "env"})) {
    std::string_view text = as_text(entry);
    auto equals = text.find('=');
    if (equals != std::string_view::npos)
      container.env[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const auto& member : get_object(oci, {"annotations"}))
    container.annotations[member.key()] = as_text(member.value());
  for (const auto& mount : get_array(oci, {"mounts"})) {
    container.mounts.push_back({str(get_string(mount, {"source"})), str(get_string(mount, {"destination"}))});
  }
  container.privileged = has_sys_admin(oci);
  return container;
}

Request device_request(const Container& container, const Config& config, bool use_annotations) {
  Request request;
  if (use_annotations) {
    auto devices = devices_from_annotations(container, config);
    if (!devices.empty()) return {Request::Kind::kDevices, std::move(devices), {}};
  }
  if (config.accept_volume_mounts) {
    auto devices = devices_from_volumes(container, request.warnings);
    if (!devices.empty()) return {Request::Kind::kDevices, std::move(devices), std::move(request.warnings)};
  }
  auto warnings = std::move(request.warnings);
  request = request_of(env_values(container, config), container.legacy_image());
  request.warnings = std::move(warnings);
  if (request.kind != Request::Kind::kNone && !container.privileged && !config.accept_envvar_unprivileged) {
    request.kind = Request::Kind::kNone;
    request.devices.clear();
    request.warnings.emplace_back(
        "ignored devices requested by environment variable in an unprivileged container "
        "(accept-nvidia-visible-devices-envvar-when-unprivileged is false)");
  }
  return request;
}

std::vector<std::string> imex_request(const Container& container, const Config& config) {
  std::vector<std::string> channels;
  if (config.features.ignore_imex_channel_requests) return channels;
  if (config.accept_volume_mounts) {
    for (const auto& mount : container.mounts) {
      auto id = volume_id(mount);
      if (id && id->starts_with("imex/")) add_unique(channels, id->substr(5));
    }
    if (!channels.empty()) return channels;
  }
  if (!container.privileged && !config.accept_envvar_unprivileged) return channels;
  std::string_view value = container.variable("NVIDIA_IMEX_CHANNELS");
  if (value == "all") return channels;
  for (const auto& id : split(value, ',')) {
    std::string_view name = trim(id);
    if (name == "void" || name == "none") return {};
    add_unique(channels, std::string(name));
  }
  return channels;
}

Result<std::string> resolve_mode(const std::string& mode, const Container& container, const Config& config,
                                 bool is_tegra) {
  static const std::vector<std::string> modes = {"auto", "legacy", "csv", "cdi", "jit-cdi"};
  if (mode.empty()) return fail(Code::kInvalid, "a mode must be specified");
  if (std::ranges::find(modes, mode) == modes.end()) {
    return fail(Code::kInvalid, "invalid mode \"" + mode + "\"" + did_you_mean(mode, modes));
  }
  if (mode != "auto") return mode;
  auto request = device_request(container, config, true);
  bool qualified =
      request.kind == Request::Kind::kDevices && std::ranges::all_of(request.devices, cdi::is_qualified_name);
  if (qualified) return std::string("cdi");
  return std::string(is_tegra ? "csv" : "jit-cdi");
}

}  // namespace gpuop::shim
