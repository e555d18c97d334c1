#include "sharing/settings.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gpuop::sharing {
namespace {

constexpr std::array<std::string_view, 4> kListStrategies = {"envvar", "volume-mounts", "cdi-annotations",
                                                             "cdi-cri"};

struct Chosen {
  Json value;
  std::string source;  // "flag --x", "environment variable X", "file", "default"
};

bool is_list(OptionType type) {
  return type == OptionType::kStringList || type == OptionType::kIntList;
}

// A variable that is present counts as set, even when it is empty; only lists, numbers and durations have no
// empty value to be set to.
Result<std::optional<Chosen>> from_environment(const Option& option, const SettingsInputs& inputs) {
  for (std::string_view name : option.envs) {
    auto found = inputs.env.find(std::string(name));
    if (found == inputs.env.end()) continue;
    std::string source = "environment variable " + std::string(name);
    if (found->second.empty()) {
      if (option.type == OptionType::kBool) return Chosen{Json(false), source};
      if (option.type == OptionType::kString) return Chosen{Json(""), source};
      return std::nullopt;
    }
    return Chosen{TRY_IN(parse_option_value(option.type, found->second), name), source};
  }
  return std::nullopt;
}

Result<std::optional<Chosen>> from_flags(const Option& option, const SettingsInputs& inputs) {
  auto found = inputs.flags.find(std::string(option.name));
  if (found == inputs.flags.end() || found->second.empty()) return std::nullopt;
  std::string flag = "--" + std::string(option.name);
  if (!is_list(option.type)) {
    return Chosen{TRY_IN(parse_option_value(option.type, found->second.back()), flag), "flag " + flag};
  }
  JsonArray all;
  for (const std::string& text : found->second) {
    if (text.empty()) continue;
    Json part = TRY_IN(parse_option_value(option.type, text), flag);
    for (Json& item : part.get_array()) all.push_back(std::move(item));
  }
  return Chosen{Json(std::move(all)), "flag " + flag};
}

Json fallback_of(const Option& option) {
  if (option.fallback.empty() && is_list(option.type)) return JsonArray();
  auto value = parse_option_value(option.type, option.fallback);
  return value ? *value : Json();
}

std::string_view file_key_of(const Option& option) {
  if (option.name == "imex-channel-ids") return "imex.channelIDs";
  if (option.name == "imex-required") return "imex.required";
  return option.file_key;
}

std::optional<Json> from_file(const Option& option, const ConfigFile& file) {
  if (option.name == "imex-channel-ids") {
    if (!file.imex_channel_ids) return std::nullopt;
    JsonArray ids;
    for (std::int64_t id : *file.imex_channel_ids) ids.emplace_back(id);
    return ids;
  }
  if (option.name == "imex-required") {
    return file.imex_required ? std::optional<Json>(*file.imex_required) : std::nullopt;
  }
  auto found = file.flags.find(std::string(option.file_key));
  return option.file_key.empty() || found == file.flags.end() ? std::nullopt
                                                              : std::optional<Json>(found->second);
}

class Values {
 public:
  explicit Values(std::map<std::string, Json> values)
      : values_(std::move_iterator(values.begin()), std::move_iterator(values.end())) {}
  bool flag(std::string_view name, bool fallback = false) const {
    const Json* value = at(name);
    return value && value->is_bool() ? value->get_bool() : fallback;
  }
  std::string text(std::string_view name) const {
    const Json* value = at(name);
    return value ? str(as_text(*value)) : std::string();
  }
  std::vector<std::string> texts(std::string_view name) const {
    std::vector<std::string> out;
    if (const Json* value = at(name)) {
      for (const Json& item : value->get_array()) out.emplace_back(as_text(item));
    }
    return out;
  }
  std::vector<std::int64_t> numbers(std::string_view name) const {
    std::vector<std::int64_t> out;
    if (const Json* value = at(name)) {
      for (const Json& item : value->get_array()) out.push_back(item.get_int64());
    }
    return out;
  }
  std::optional<Duration> span(std::string_view name) const {
    const Json* value = at(name);
    if (!value || !value->is_number()) return std::nullopt;
    return Duration(value->to_number<std::int64_t>());
  }

 private:
  const Json* at(std::string_view name) const {
    auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }
  std::map<std::string, Json, std::less<>> values_;
};

void fill(Settings& out, const Values& values) {
  out.mig_strategy = values.text("mig-strategy");
  out.fail_on_init_error = values.flag("fail-on-init-error", true);
  out.container_driver_root = values.text("driver-root-ctr-path");
  out.device_discovery_strategy = values.text("device-discovery-strategy");
  out.config_file = values.text("config-file");

  out.driver_root = values.text("driver-root");
  out.dev_root = values.text("dev-root");
  if (out.dev_root.empty()) out.dev_root = out.driver_root;
  out.pass_device_specs = values.flag("pass-device-specs");
  out.device_list_strategies = values.texts("device-list-strategy");
  out.device_id_strategy = values.text("device-id-strategy");
  out.gdrcopy = values.flag("gdrcopy-enabled");
  out.gds = values.flag("gds-enabled");
  out.mofed = values.flag("mofed-enabled");
  out.cdi_annotation_prefix = values.text("cdi-annotation-prefix");
  out.cdi_hook_path = values.text("nvidia-cdi-hook-path");
  out.mps_root = values.text("mps-root");
  out.shared_devices_allocation_policy = values.text("shared-devices-allocation-policy");
  out.imex_channel_ids = values.numbers("imex-channel-ids");
  out.imex_required = values.flag("imex-required");
  out.kubelet_socket = values.text("kubelet-socket");
  out.cdi_feature_flags = values.texts("cdi-feature-flags");
  out.cdi_disable_hooks = values.texts("cdi-disable-hooks");
  out.health_recovery_interval = values.span("health-recovery-interval").value_or(Duration(0));
  out.device_rescan_interval = values.span("device-rescan-interval").value_or(Duration(0));
  out.enable_resource_renaming = values.flag("enable-resource-renaming");
  out.watch_mig_changes = values.flag("watch-mig-changes");

  out.oneshot = values.flag("oneshot");
  out.no_timestamp = values.flag("no-timestamp");
  out.use_node_feature_api = values.flag("use-node-feature-api", true);
  out.sleep_interval = values.span("sleep-interval");
  out.output_file = values.text("output-file");
  out.machine_type_file = values.text("machine-type-file");
  out.kubeconfig = values.text("kubeconfig");
  out.ns = values.text("namespace");
  out.node_name = values.text("node-name");
  out.pod_name = values.text("pod-name");
}

// Renaming and selection are off unless they were asked for by name (§2.4).
void disable_renaming(Settings& settings) {
  if (settings.enable_resource_renaming) return;
  if (!settings.gpu_patterns.empty() || !settings.mig_patterns.empty()) {
    settings.notes.push_back(
        "customizing 'resources' is not supported; ignoring resources.gpus and resources.mig");
    settings.gpu_patterns.clear();
    settings.mig_patterns.clear();
  }
  for (auto [sharing, path] :
       {std::pair(&settings.time_slicing, "sharing.timeSlicing"), std::pair(&settings.mps, "sharing.mps")}) {
    if (!*sharing) continue;
    for (SharedResource& entry : (*sharing)->resources) {
      std::string where = std::string(path) + ": resource '" + entry.name + "': ";
      std::string standard = (*sharing)->rename_by_default ? entry.name + ".shared" : std::string();
      if (entry.rename != standard) {
        settings.notes.push_back(where + "customizing 'rename' is not supported; ignoring '" + entry.rename +
                                 "'");
        entry.rename = standard;
      }
      if (!entry.devices.all) {
        settings.notes.push_back(where + "customizing 'devices' is not supported; using all devices");
        entry.devices = {};
      }
    }
  }
}

Result<> check_mig_strategy(const Settings& settings) {
  const std::vector<std::string> known = {"none", "single", "mixed"};
  if (std::ranges::find(known, settings.mig_strategy) != known.end()) return {};
  return fail(Code::kInvalid,
              "unknown MIG strategy: " + settings.mig_strategy + did_you_mean(settings.mig_strategy, known));
}

Result<> check_discovery(const Settings& settings, const std::vector<std::string>& known) {
  if (std::ranges::find(known, settings.device_discovery_strategy) != known.end()) return {};
  return fail(Code::kInvalid, "invalid --device-discovery-strategy option " +
                                  settings.device_discovery_strategy +
                                  did_you_mean(settings.device_discovery_strategy, known));
}

Json sharing_json(const ReplicatedResources& sharing) {
  JsonArray resources;
  for (const SharedResource& entry : sharing.resources) {
    JsonObject item{{"name", entry.name}, {"replicas", entry.replicas}};
    if (!entry.rename.empty()) item["rename"] = entry.rename;
    if (entry.devices.all) {
      item["devices"] = "all";
    } else if (entry.devices.count > 0) {
      item["devices"] = entry.devices.count;
    } else {
      item["devices"] = JsonArray(entry.devices.list.begin(), entry.devices.list.end());
    }
    resources.push_back(std::move(item));
  }
  JsonObject out{{"renameByDefault", sharing.rename_by_default}, {"resources", std::move(resources)}};
  if (sharing.fail_requests_greater_than_one) {
    out["failRequestsGreaterThanOne"] = *sharing.fail_requests_greater_than_one;
  }
  return out;
}

}  // namespace

bool Settings::has_strategy(std::string_view name) const {
  return std::ranges::find(device_list_strategies, name) != device_list_strategies.end();
}
bool Settings::any_cdi() const {
  return has_strategy("cdi-annotations") || has_strategy("cdi-cri");
}
bool Settings::all_cdi() const {
  return !device_list_strategies.empty() &&
         std::ranges::all_of(device_list_strategies,
                             [](const std::string& s) { return s.starts_with("cdi-"); });
}

std::string config_file_path(Program program, const SettingsInputs& inputs) {
  for (const Option& option : options(program)) {
    if (option.name != "config-file") continue;
    if (auto flag = from_flags(option, inputs); flag && *flag) return str(as_text((*flag)->value));
    if (auto env = from_environment(option, inputs); env && *env) return str(as_text((*env)->value));
  }
  return {};
}

Result<std::map<std::string, Json>> resolve_options(Program program, const SettingsInputs& inputs,
                                                    std::vector<std::string>& notes) {
  std::map<std::string, Json> values;
  for (const Option& option : options(program)) {
    auto chosen = TRY(from_flags(option, inputs));
    if (!chosen) chosen = TRY(from_environment(option, inputs));
    auto filed = from_file(option, inputs.file);
    if (chosen && filed && chosen->value != *filed) {
      notes.push_back(std::string(file_key_of(option)) + " of the configuration file (" + to_text(*filed) +
                      ") is overridden by " + chosen->source + " (" + to_text(chosen->value) + ")");
    }
    values[std::string(option.name)] = chosen ? chosen->value : filed ? *filed : fallback_of(option);
  }
  return values;
}

Result<Settings> resolve_settings(Program program, const SettingsInputs& inputs) {
  Settings out;
  out.notes = inputs.file.warnings;
  Values values(TRY(resolve_options(program, inputs, out.notes)));
  fill(out, values);
  out.gpu_patterns = inputs.file.gpu_patterns;
  out.mig_patterns = inputs.file.mig_patterns;
  out.time_slicing = inputs.file.time_slicing;
  out.mps = inputs.file.mps;
  disable_renaming(out);
  return out;
}

Result<> validate_plugin(const Settings& settings, const Platform& platform) {
  const std::vector<std::string> known(kListStrategies.begin(), kListStrategies.end());
  for (const std::string& strategy : settings.device_list_strategies) {
    if (std::ranges::find(known, strategy) != known.end()) continue;
    return fail(Code::kInvalid, "invalid --device-list-strategy option: invalid strategy: " + strategy +
                                    did_you_mean(strategy, known));
  }
  // Without NVML there may be a driver later: that is what fail-on-init-error=false asks for.
  if (settings.any_cdi() && !platform.nvml_loadable && !platform.tegra && settings.fail_on_init_error) {
    return fail(Code::kUnsupported,
                "CDI --device-list-strategy options are only supported on NVML-based systems");
  }
  if (settings.device_id_strategy != "uuid" && settings.device_id_strategy != "index") {
    return fail(Code::kInvalid, "invalid --device-id-strategy option: " + settings.device_id_strategy);
  }
  if (settings.shared_devices_allocation_policy != "distributed" &&
      settings.shared_devices_allocation_policy != "packed") {
    return fail(Code::kInvalid, "invalid --shared-devices-allocation-policy option: " +
                                    settings.shared_devices_allocation_policy);
  }
  if (active_strategy(settings) == SharingStrategy::kMps) {
    if (settings.mig_strategy == "mixed") {
      return fail(Code::kInvalid, "using --mig-strategy=mixed is not supported with MPS");
    }
    if (settings.mps_root.empty()) {
      return fail(Code::kInvalid, "using MPS requires --mps-root to be specified");
    }
  }
  TRY(check_discovery(settings, {"auto", "nvml", "tegra"}));
  TRY(check_mig_strategy(settings));
  const auto& ids = settings.imex_channel_ids;
  if (!(ids.empty() || (ids.size() == 1 && ids[0] == 0))) {
    std::vector<std::string> texts;
    for (std::int64_t id : ids) texts.push_back(std::to_string(id));
    return fail(Code::kInvalid,
                "invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found [" +
                    join(texts, " ") + "]");
  }
  return {};
}

Result<> validate_feature_discovery(const Settings& settings) {
  TRY(check_discovery(settings, {"auto", "nvml", "tegra", "vfio"}));
  return check_mig_strategy(settings);
}

Json settings_json(Program program, const Settings& s) {
  JsonObject all{
      {"mig-strategy", s.mig_strategy},
      {"fail-on-init-error", s.fail_on_init_error},
      {"driver-root-ctr-path", s.container_driver_root},
      {"device-discovery-strategy", s.device_discovery_strategy},
      {"config-file", s.config_file},
      {"driver-root", s.driver_root},
      {"dev-root", s.dev_root},
      {"pass-device-specs", s.pass_device_specs},
      {"device-list-strategy", JsonArray(s.device_list_strategies.begin(), s.device_list_strategies.end())},
      {"device-id-strategy", s.device_id_strategy},
      {"gdrcopy-enabled", s.gdrcopy},
      {"gds-enabled", s.gds},
      {"mofed-enabled", s.mofed},
      {"cdi-annotation-prefix", s.cdi_annotation_prefix},
      {"nvidia-cdi-hook-path", s.cdi_hook_path},
      {"mps-root", s.mps_root},
      {"shared-devices-allocation-policy", s.shared_devices_allocation_policy},
      {"imex-channel-ids", JsonArray(s.imex_channel_ids.begin(), s.imex_channel_ids.end())},
      {"imex-required", s.imex_required},
      {"kubelet-socket", s.kubelet_socket},
      {"cdi-feature-flags", JsonArray(s.cdi_feature_flags.begin(), s.cdi_feature_flags.end())},
      {"cdi-disable-hooks", JsonArray(s.cdi_disable_hooks.begin(), s.cdi_disable_hooks.end())},
      {"health-recovery-interval", format_go_duration(s.health_recovery_interval)},
      {"device-rescan-interval", format_go_duration(s.device_rescan_interval)},
      {"enable-resource-renaming", s.enable_resource_renaming},
      {"watch-mig-changes", s.watch_mig_changes},
      {"oneshot", s.oneshot},
      {"no-timestamp", s.no_timestamp},
      {"sleep-interval", s.sleep_interval ? format_go_duration(*s.sleep_interval) : std::string("infinite")},
      {"output-file", s.output_file},
      {"machine-type-file", s.machine_type_file},
      {"use-node-feature-api", s.use_node_feature_api},
      {"kubeconfig", s.kubeconfig},
      {"namespace", s.ns},
      {"node-name", s.node_name},
      {"pod-name", s.pod_name},
  };
  JsonObject flags;
  for (const Option& option : options(program)) {
    if (const Json* value = find(all, option.name)) flags[option.name] = *value;
  }
  JsonObject sharing;
  if (s.time_slicing) sharing["timeSlicing"] = sharing_json(*s.time_slicing);
  if (s.mps) sharing["mps"] = sharing_json(*s.mps);
  return JsonObject{{"version", "v1"}, {"flags", std::move(flags)}, {"sharing", std::move(sharing)}};
}

std::string_view strategy_name(SharingStrategy strategy) {
  switch (strategy) {
    case SharingStrategy::kNone:
      return "none";
    case SharingStrategy::kTimeSlicing:
      return "time-slicing";
    case SharingStrategy::kMps:
      return "mps";
  }
  return "none";
}

// Entries always have two replicas or more, so an entry is what makes a strategy active.
SharingStrategy active_strategy(const Settings& settings) {
  if (settings.mps && !settings.mps->resources.empty()) return SharingStrategy::kMps;
  if (settings.time_slicing && !settings.time_slicing->resources.empty())
    return SharingStrategy::kTimeSlicing;
  return SharingStrategy::kNone;
}

const ReplicatedResources* active_sharing(const Settings& settings) {
  switch (active_strategy(settings)) {
    case SharingStrategy::kMps:
      return &*settings.mps;
    case SharingStrategy::kTimeSlicing:
      return &*settings.time_slicing;
    case SharingStrategy::kNone:
      return nullptr;
  }
  return nullptr;
}

const SharedResource* find_shared(const Settings& settings, std::string_view resource) {
  const ReplicatedResources* sharing = active_sharing(settings);
  if (!sharing) return nullptr;
  for (const SharedResource& entry : sharing->resources) {
    if (entry.name == resource) return &entry;
  }
  return nullptr;
}

bool fail_requests_greater_than_one(const Settings& settings) {
  const ReplicatedResources* sharing = active_sharing(settings);
  if (!sharing) return false;
  return sharing->fail_requests_greater_than_one.value_or(active_strategy(settings) == SharingStrategy::kMps);
}

}  // namespace gpuop::sharing
