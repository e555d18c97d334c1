#include "operator/node_choices.h"

#include <algorithm>

#include "base/text.h"
#include "base/yaml.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kPluginConfig = "nvidia.com/device-plugin.config";
constexpr std::string_view kMigConfig = "nvidia.com/mig.config";
constexpr std::string_view kVgpuConfig = "nvidia.com/vgpu.config";
constexpr std::string_view kDeploy = "nvidia.com/gpu.deploy.";

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

Choice plugin_choice(const std::string& name, const NodeChoices::ConfigMap& config_map) {
  Choice out{std::string(kPluginConfig), "ConfigMap " + in_quotes(name) + " has no key", {}};
  if (name.empty()) {
    out.from = "spec.devicePlugin.config.name of the ClusterPolicy names no ConfigMap, so there is no";
  } else if (const auto live = config_map(name)) {
    for (const auto& [key, value] : get_object(*live, {"data"})) out.names.emplace(key);
  } else {
    out.from = "ConfigMap " + in_quotes(name) + " does not exist, so there is no";
  }
  return out;
}

// What a label with a few known values may be.
std::vector<std::string> values_of(std::string_view label) {
  if (label == "nvidia.com/cc.mode") return {"on", "off", "devtools", "ppcie"};
  if (label == "nvidia.com/gpu.workload.config") return {"container", "vm-passthrough", "vm-vgpu"};
  return {"true", "false"};
}

// Values that the operands themselves write there (operator.md §4.5).
bool is_pause(std::string_view value) {
  return value == "pre-installed" || value.find("paused-for-") != std::string_view::npos;
}

}  // namespace

std::set<std::string> NodeChoices::names_in(const Json& config_map, std::string_view list) {
  const std::string name(kube::name_of(config_map));
  const std::string version(get_string(config_map, {"metadata", "resourceVersion"}));
  auto& [read, names] = read_[name];
  if (read == version && !version.empty()) return names;
  read = version;
  names.clear();
  const auto file = parse_yaml_one(get_string(config_map, {"data", "config.yaml"}), name);
  if (!file) return names;
  for (const auto& [key, value] : get_object(file->value, {list})) names.emplace(key);
  return names;
}

std::vector<Choice> NodeChoices::of(const policy::ClusterPolicySpec& spec, const ConfigMap& config_map) {
  std::vector<Choice> out;
  if (spec.device_plugin.enabled) out.push_back(plugin_choice(spec.device_plugin.config.name, config_map));
  const auto from_file = [&](std::string_view label, const std::string& name, std::string_view list) {
    const auto live = config_map(name);
    const auto names = live ? names_in(*live, list) : std::set<std::string>();
    if (!names.empty())
      out.push_back({std::string(label),
                     "ConfigMap " + in_quotes(name) + " has no entry of " + std::string(list), names});
  };
  const auto or_default = [](const std::string& name, const char* other) {
    return name.empty() ? std::string(other) : name;
  };
  if (spec.mig_manager.enabled)
    from_file(kMigConfig, or_default(spec.mig_manager.config.name, "default-mig-parted-config"),
              "mig-configs");
  if (spec.sandbox_workloads.enabled && spec.vgpu_device_manager.enabled)
    from_file(kVgpuConfig, or_default(spec.vgpu_device_manager.config.name, "default-vgpu-devices-config"),
              "vgpu-configs");
  return out;
}

std::set<std::string> NodeChoices::made_for(const std::string& node, const ConfigMap& config_map) {
  const auto live = config_map(node + "-mig-config");
  return live ? names_in(*live, "mig-configs") : std::set<std::string>();
}

std::string wrong_choice(const Label& label, const std::vector<Choice>& choices) {
  const auto& [key, value] = label;
  if (!is_choice(key, value)) return {};
  const std::string start = "label " + key + "=" + value + ": ";
  const auto choice = std::ranges::find(choices, key, &Choice::label);
  if (choice != choices.end()) {
    if (choice->names.contains(value)) return {};
    const std::vector<std::string> names(choice->names.begin(), choice->names.end());
    return start + choice->from + " " + in_quotes(value) + did_you_mean(value, names) +
           (names.empty() ? "" : "; it has " + first_few(names, 8));
  }
  if (key == kPluginConfig || key == kMigConfig || key == kVgpuConfig) return {};
  const bool operand = key.starts_with(kDeploy) && key != "nvidia.com/gpu.deploy.operands";
  const auto values = values_of(key);
  if (std::ranges::find(values, value) != values.end() || (operand && is_pause(value))) return {};
  return start + "must be one of " + join(values, ", ") + did_you_mean(value, values) +
         (operand ? "; as it is, the operand is kept off the node" : "");
}

std::vector<std::string> wrong_defaults(const policy::ClusterPolicySpec& spec,
                                        const std::vector<Choice>& choices) {
  std::vector<std::string> out;
  const auto check = [&](std::string_view label, const std::string& value, const char* field) {
    const auto choice = std::ranges::find(choices, label, &Choice::label);
    if (value.empty() || choice == choices.end() || choice->names.empty() || choice->names.contains(value))
      return;
    const std::vector<std::string> names(choice->names.begin(), choice->names.end());
    out.push_back(std::string(field) + ": " + choice->from + " " + in_quotes(value) +
                  did_you_mean(value, names) + "; it has " + first_few(names, 8));
  };
  check(kPluginConfig, spec.device_plugin.config.default_config, "spec.devicePlugin.config.default");
  check(kVgpuConfig, spec.vgpu_device_manager.config.default_config, "spec.vgpuDeviceManager.config.default");
  return out;
}

}  // namespace gpuop::op
