#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "cdi/spec.h"

namespace gpuop::cdi {

namespace {

constexpr std::array<std::string_view, 10> kVersions = {"0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0",
                                                        "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"};
constexpr std::array<std::string_view, 6> kHookStages = {"prestart",       "createRuntime", "createContainer",
                                                         "startContainer", "poststart",     "poststop"};

std::size_t rank(std::string_view version) {
  return static_cast<std::size_t>(std::ranges::find(kVersions, version) - kVersions.begin());
}

std::string_view edits_minimum(const Edits& edits) {
  if (!edits.net_devices.empty()) return "1.1.0";
  if (edits.intel_rdt && (edits.intel_rdt->schemata || edits.intel_rdt->enable_monitoring)) return "1.1.0";
  if (edits.intel_rdt || !edits.additional_gids.empty()) return "0.7.0";
  if (std::ranges::any_of(edits.device_nodes, [](const auto& node) { return !node.host_path.empty(); }))
    return "0.5.0";
  if (std::ranges::any_of(edits.mounts, [](const auto& mount) { return !mount.type.empty(); }))
    return "0.4.0";
  return "0.3.0";
}

std::unexpected<Error> bad(std::string_view where, std::string_view why) {
  return fail(Code::kInvalid, std::string(where) + ": " + std::string(why));
}

Result<> check_env(const std::vector<std::string>& env, const std::string& where) {
  for (const auto& entry : env) {
    if (entry.find('=') == std::string::npos || entry[0] == '=') {
      return bad(where + ".env", "invalid environment variable '" + entry + "': must be NAME=VALUE");
    }
  }
  return {};
}

Result<> check_node(const DeviceNode& node, const std::string& where) {
  if (node.path.empty()) return bad(where + ".path", "invalid (empty) device path");
  if (node.type.size() > 1 ||
      (node.type.size() == 1 && std::string_view("bcup").find(node.type) == std::string_view::npos)) {
    return bad(where + ".type",
               "device '" + node.path + "': invalid type '" + node.type + "': must be b, c, u or p");
  }
  // "none" comes from readers newer than 1.1.0; it does no harm to understand it (§1.3).
  if (node.permissions != "none" && node.permissions.find_first_not_of("rwm") != std::string::npos) {
    return bad(where + ".permissions", "device '" + node.path + "': invalid permissions '" +
                                           node.permissions + "': must be made of r, w and m");
  }
  return {};
}

Result<> check_hook(const Hook& hook, const std::string& where) {
  if (std::ranges::find(kHookStages, hook.name) == kHookStages.end()) {
    std::vector<std::string> stages(kHookStages.begin(), kHookStages.end());
    return bad(where + ".hookName",
               "invalid hook name '" + hook.name + "'" + did_you_mean(hook.name, stages));
  }
  if (hook.path.empty()) return bad(where + ".path", "invalid (empty) path of hook '" + hook.name + "'");
  return check_env(hook.env, where);
}

Result<> check_net_devices(const std::vector<NetDevice>& devices, const std::string& where) {
  std::set<std::string_view> hosts;
  std::set<std::string_view> names;
  for (const auto& device : devices) {
    if (device.host_interface_name.empty() || device.name.empty()) {
      return bad(where + ".netDevices", "hostInterfaceName and name must not be empty");
    }
    if (!hosts.insert(device.host_interface_name).second) {
      return bad(where + ".netDevices", "duplicate host interface '" + device.host_interface_name + "'");
    }
    if (!names.insert(device.name).second)
      return bad(where + ".netDevices", "duplicate name '" + device.name + "'");
  }
  return {};
}

Result<> check_rdt(const IntelRdt& rdt, const std::string& where) {
  const auto& id = rdt.clos_id;
  bool ok = id != "." && id != ".." && id.size() < 4096 && id.find('\n') == std::string::npos;
  if (id.find('/') != std::string::npos && id != "/") ok = false;
  if (!ok) return bad(where + ".intelRdt.closID", "invalid CLOS id '" + id + "'");
  return {};
}

Result<> check_edits(const Edits& edits, const std::string& where) {
  TRY(check_env(edits.env, where));
  for (std::size_t i = 0; i < edits.device_nodes.size(); ++i) {
    TRY(check_node(edits.device_nodes[i], where + ".deviceNodes[" + std::to_string(i) + "]"));
  }
  TRY(check_net_devices(edits.net_devices, where));
  for (std::size_t i = 0; i < edits.hooks.size(); ++i) {
    TRY(check_hook(edits.hooks[i], where + ".hooks[" + std::to_string(i) + "]"));
  }
  for (std::size_t i = 0; i < edits.mounts.size(); ++i) {
    auto at = where + ".mounts[" + std::to_string(i) + "]";
    if (edits.mounts[i].host_path.empty()) return bad(at + ".hostPath", "must not be empty");
    if (edits.mounts[i].container_path.empty()) return bad(at + ".containerPath", "must not be empty");
  }
  if (edits.intel_rdt) TRY(check_rdt(*edits.intel_rdt, where));
  return {};
}

Result<> check_version(const Spec& spec) {
  std::string_view version = spec.version;
  if (version.starts_with('v')) version.remove_prefix(1);
  if (rank(version) == kVersions.size()) return bad("cdiVersion", "invalid version \"" + spec.version + "\"");
  auto minimum = minimum_version(spec);
  if (rank(version) < rank(minimum)) {
    return bad("cdiVersion", "the spec version must be at least v" + minimum + "; got " + spec.version);
  }
  return {};
}

Result<> check_annotations(const Annotations& annotations, const std::string& where) {
  std::size_t total = 0;
  for (const auto& [key, value] : annotations) {
    total += key.size() + value.size();
    auto slash = key.find('/');
    std::string_view name =
        slash == std::string::npos ? std::string_view(key) : std::string_view(key).substr(slash + 1);
    bool alnum_ends = !name.empty() && isalnum(static_cast<unsigned char>(name.front())) != 0 &&
                      isalnum(static_cast<unsigned char>(name.back())) != 0;
    bool inner = std::ranges::all_of(name, [](char c) {
      return isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    });
    if (!alnum_ends || !inner || name.size() > 63 || slash == 0) {
      return bad(where + ".annotations", "invalid key '" + key + "'");
    }
  }
  if (total > 262144) return bad(where + ".annotations", "larger than 262144 bytes");
  return {};
}

bool uses_none(const Edits& edits) {
  return std::ranges::any_of(edits.device_nodes, [](const auto& node) { return node.permissions == "none"; });
}

}  // namespace

bool Edits::empty() const {
  return env.empty() && device_nodes.empty() && net_devices.empty() && hooks.empty() && mounts.empty() &&
         !intel_rdt && additional_gids.empty();
}

void Edits::append(const Edits& more) {
  auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  add(env, more.env);
  add(device_nodes, more.device_nodes);
  add(net_devices, more.net_devices);
  add(hooks, more.hooks);
  add(mounts, more.mounts);
  add(additional_gids, more.additional_gids);
  if (more.intel_rdt) intel_rdt = more.intel_rdt;
}

std::string minimum_version(const Spec& spec) {
  std::string_view minimum = edits_minimum(spec.edits);
  auto raise = [&](std::string_view version) {
    if (rank(version) > rank(minimum)) minimum = version;
  };
  if (!spec.annotations.empty() || spec.device_class().find('.') != std::string::npos) raise("0.6.0");
  for (const auto& device : spec.devices) {
    raise(edits_minimum(device.edits));
    if (!device.annotations.empty()) raise("0.6.0");
    if (!device.name.empty() && device.name[0] >= '0' && device.name[0] <= '9') raise("0.5.0");
  }
  return std::string(minimum);
}

Result<> validate(const Spec& spec) {
  if (spec.version.empty()) return bad("cdiVersion", "is missing");
  auto slash = spec.kind.find('/');
  if (slash == std::string::npos)
    return bad("kind", "invalid kind '" + spec.kind + "': must be VENDOR/CLASS");
  TRY_IN(check_vendor(spec.vendor()), "kind");
  TRY_IN(check_class(spec.device_class()), "kind");
  TRY(check_version(spec));
  TRY(check_edits(spec.edits, "containerEdits"));
  if (spec.devices.empty()) return bad("devices", "invalid spec, no devices");
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < spec.devices.size(); ++i) {
    const auto& device = spec.devices[i];
    auto where = "devices[" + std::to_string(i) + "]";
    TRY_IN(check_device_name(device.name), where + ".name");
    if (!names.insert(device.name).second)
      return bad(where, "invalid spec, multiple device \"" + device.name + "\"");
    if (device.edits.empty()) {
      return bad(where, "failed add device \"" + device.name + "\": invalid device, empty device edits");
    }
    TRY(check_edits(device.edits, where + ".containerEdits"));
  }
  return {};
}

Result<> validate_for_writing(const Spec& spec) {
  TRY(validate(spec));
  if (spec.device_class().size() > 63) return bad("kind", "class is longer than 63 characters");
  if (spec.vendor().size() > 253) return bad("kind", "vendor is longer than 253 characters");
  TRY(check_annotations(spec.annotations, "spec"));
  if (uses_none(spec.edits))
    return bad("containerEdits", "permissions \"none\" is not in a released CDI version");
  for (const auto& device : spec.devices) {
    TRY(check_annotations(device.annotations, "device " + device.name));
    if (uses_none(device.edits))
      return bad("device " + device.name, "permissions \"none\" is not in a released CDI version");
  }
  return {};
}

}  // namespace gpuop::cdi
