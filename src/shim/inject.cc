#include "shim/inject.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "shim/requirements.h"

namespace gpuop::shim {

namespace {

const std::vector<std::string>& all_capabilities() {
  static const std::vector<std::string> names = {"compat32", "compute", "display", "graphics",
                                                 "ngx",      "utility", "video"};
  return names;
}

std::string automatic_kind(std::string_view device_class) {
  return std::string(kAutomaticVendor) + "/" + std::string(device_class);
}

std::vector<std::string> ignored_variables(const Container& container, const std::string& mode) {
  std::vector<std::string> names;
  for (const auto& [name, value] : container.env) {
    bool never = name == "NVIDIA_DRIVER_CAPABILITIES" || name.starts_with("NVIDIA_REQUIRE_") ||
                 name == "NVIDIA_MIG_CONFIG_DEVICES" || name == "NVIDIA_MIG_MONITOR_DEVICES";
    bool only_jit = name == "NVIDIA_GDS" || name == "NVIDIA_MOFED" || name == "NVIDIA_GDRCOPY" ||
                    name == "NVIDIA_NVSWITCH" || name == "NVIDIA_IMEX_CHANNELS";
    if (mode != "legacy" && (never || (mode == "cdi" && only_jit))) names.push_back(name);
  }
  return names;
}

// The further specs that variables switch on, in upstream's order, and IMEX channels.
void add_extras(Plan& plan, const Container& container, const Config& config) {
  static constexpr std::pair<std::string_view, std::string_view> kExtras[] = {
      {"NVIDIA_GDS", "gds"},
      {"NVIDIA_MOFED", "mofed"},
      {"NVIDIA_GDRCOPY", "gdrcopy"},
      {"NVIDIA_NVSWITCH", "nvswitch"}};
  for (auto [variable, device_class] : kExtras) {
    if (container.variable(variable) == "enabled")
      plan.devices.push_back(automatic_kind(device_class) + "=all");
  }
  for (const auto& channel : imex_request(container, config)) {
    std::string id = channel.starts_with("channel") ? channel.substr(7) : channel;
    plan.devices.push_back(automatic_kind("imex-channel") + "=" + id);
  }
}

Result<> check_mig_variables(const Container& container) {
  if (container.privileged) return {};
  for (std::string_view which : {"CONFIG", "MONITOR"}) {
    std::string name = "NVIDIA_MIG_" + std::string(which) + "_DEVICES";
    if (!container.variable(name).empty()) {
      return fail(Code::kPermission,
                  "cannot set MIG_" + std::string(which) + "_DEVICES in non privileged container");
    }
  }
  return {};
}

Result<> check_imex_ids(const Container& container, const Config& config) {
  for (const auto& channel : imex_request(container, config)) {
    auto number = parse_int(channel.starts_with("channel") ? std::string_view(channel).substr(7)
                                                           : std::string_view(channel));
    if (!number) return fail(Code::kInvalid, "invalid IMEX channel ID " + channel);
    if (*number < 0 || *number > 1048575) {
      return fail(Code::kInvalid,
                  "invalid IMEX channel ID " + channel + ": must be in the range 0 to 1048575");
    }
  }
  return {};
}

std::string unresolved_text(const Error& error, const Plan& plan, const cdi::Registry& registry) {
  std::string text = error.text();
  std::string dirs;
  for (const auto& dir : registry.dirs()) dirs += (dirs.empty() ? "" : ", ") + dir.string();
  text += "; searched " + (dirs.empty() ? std::string("the facts file") : dirs);
  std::vector<std::string> kinds;
  for (const auto& device : plan.devices) {
    auto name = cdi::parse_qualified_name(device);
    if (!name) continue;
    std::string kind = name->vendor + "/" + name->device_class;
    if (std::ranges::find(kinds, kind) != kinds.end()) continue;
    kinds.push_back(kind);
    std::string has;
    for (const auto& known : registry.device_names()) {
      if (known.starts_with(kind + "=")) has += (has.empty() ? "" : ", ") + known.substr(kind.size() + 1);
    }
    text += "; kind " + kind + (has.empty() ? " has no devices" : " has only: " + has);
  }
  for (const auto& [path, faults] : registry.errors())
    text += "; " + path + " is left out: " + faults.front();
  return text;
}

RequirementFacts requirement_facts(const HostFacts& facts) {
  RequirementFacts result{facts.cuda_version, facts.driver_version, {}};
  for (const auto& gpu : facts.gpus) result.devices.push_back({gpu.arch, gpu.brand});
  return result;
}

}  // namespace

Result<Plan> plan_injection(const Container& container, const Config& config, bool is_tegra) {
  Plan plan;
  plan.mode = TRY(resolve_mode(config.mode, container, config, is_tegra));
  Request request = device_request(container, config, plan.mode == "cdi");
  plan.warnings = std::move(request.warnings);
  if (request.kind == Request::Kind::kNone) return plan;
  if (plan.mode == "csv") {
    return fail(Code::kUnsupported, "mode csv: containers on Tegra systems are not offered by this runtime");
  }
  plan.ignored = ignored_variables(container, plan.mode);
  bool jit = plan.mode == "jit-cdi" || plan.mode == "legacy";
  std::string kind = jit ? automatic_kind("gpu") : config.default_kind;
  if (request.kind == Request::Kind::kNoDevices) request.devices = {"none"};
  std::size_t automatic = 0;
  for (const auto& device : request.devices) {
    plan.devices.push_back(cdi::is_qualified_name(device) ? device : kind + "=" + device);
    if (plan.devices.back().starts_with(automatic_kind("gpu") + "=")) ++automatic;
  }
  if (automatic != 0 && automatic != plan.devices.size()) {
    return fail(Code::kInvalid, "requesting a CDI device with vendor '" + std::string(kAutomaticVendor) +
                                    "' is not supported when requesting other CDI devices");
  }
  plan.automatic = automatic != 0;
  if (plan.automatic) {
    TRY(check_imex_ids(container, config));
    add_extras(plan, container, config);
  }
  if (plan.mode == "legacy") {
    TRY(check_mig_variables(container));
    plan.capabilities = TRY(driver_capabilities(container, config));
  }
  return plan;
}

Result<cdi::Edits> edits_of(const Plan& plan, const Container& container, const Config& config,
                            const std::function<Result<HostFacts>()>& read) {
  if (!plan.automatic) {
    auto registry = cdi::Registry::load({config.spec_dirs.begin(), config.spec_dirs.end()});
    auto edits = registry.edits_for(plan.devices);
    if (!edits)
      return fail(Code::kNotFound,
                  "failed to inject CDI devices: " + unresolved_text(edits.error(), plan, registry));
    return edits;
  }
  HostFacts facts = TRY_IN(read(), "learn of the node's GPUs");
  if (plan.mode == "legacy" || config.features.enforce_requirements) {
    TRY(check_requirements(container, config, requirement_facts(facts)));
  }
  std::vector<cdi::Spec> specs;
  for (auto& [name, spec] : facts.specs) specs.push_back(std::move(spec));
  auto registry = cdi::Registry::of(std::move(specs));
  auto edits = registry.edits_for(plan.devices);
  if (!edits)
    return fail(Code::kNotFound,
                "failed to inject CDI devices: " + unresolved_text(edits.error(), plan, registry));
  return edits;
}

bool remove_prestart_hooks(Json& oci) {
  Json* hooks = find_mutable(oci, {"hooks", "prestart"});
  if (hooks == nullptr || !hooks->is_array()) return false;
  auto& list = hooks->get_array();
  std::size_t before = list.size();
  for (auto it = list.begin(); it != list.end();) {
    std::string_view path = get_string(*it, {"path"});
    std::string_view name = path.substr(path.rfind('/') + 1);
    bool ours = name == "nvidia-container-runtime-hook" || name == "nvidia-container-toolkit";
    it = ours ? list.erase(it) : it + 1;
  }
  return list.size() != before;
}

Result<std::vector<std::string>> driver_capabilities(const Container& container, const Config& config) {
  std::vector<std::string> supported;
  for (const auto& part : split(config.supported_capabilities == "all" ? join(all_capabilities(), ",")
                                                                       : config.supported_capabilities,
                                ',')) {
    std::string name(trim(part));
    if (name.empty()) continue;
    if (std::ranges::find(all_capabilities(), name) == all_capabilities().end()) {
      return fail(Code::kInvalid, "supported-driver-capabilities: unknown capability '" + name + "'" +
                                      did_you_mean(name, all_capabilities()));
    }
    supported.push_back(name);
  }
  auto it = container.env.find("NVIDIA_DRIVER_CAPABILITIES");
  bool unset = it == container.env.end();
  if (unset && container.legacy_image()) return supported;
  std::string value = unset ? std::string() : std::string(trim(it->second));
  if (value == "all") return supported;
  std::vector<std::string> wanted;
  if (value.empty()) {
    for (const auto& name : supported) {
      if (name == "utility" || name == "compute") wanted.push_back(name);
    }
    return wanted;
  }
  std::vector<std::string> unsupported;
  for (const auto& part : split(value, ',')) {
    std::string name(trim(part));
    if (name.empty()) continue;
    if (name == "all") return supported;
    if (std::ranges::find(supported, name) == supported.end()) unsupported.push_back(name);
    wanted.push_back(name);
  }
  if (!unsupported.empty()) {
    return fail(Code::kInvalid, "unsupported capabilities found in '" + join(unsupported, ",") +
                                    "' (allowed '" + join(supported, ",") + "')");
  }
  return wanted;
}

Result<> check_not_stale(const cdi::Edits& edits, const fs::path& host_root) {
  for (const auto& node : edits.device_nodes) {
    if (node.major == 0) continue;
    const std::string& path = node.host_path.empty() ? node.path : node.host_path;
    struct stat info{};
    if (lstat((host_root / fs::path(path).relative_path()).c_str(), &info) != 0 || !S_ISCHR(info.st_mode))
      continue;
    if (major(info.st_rdev) == node.major && minor(info.st_rdev) == node.minor) continue;
    return fail(Code::kConflict, "CDI spec is stale: '" + path + "' is " +
                                     std::to_string(major(info.st_rdev)) + ":" +
                                     std::to_string(minor(info.st_rdev)) + " on the host, the spec says " +
                                     std::to_string(node.major) + ":" + std::to_string(node.minor));
  }
  return {};
}

}  // namespace gpuop::shim
