// The settings that a program runs with: flags over environment over file over defaults
// (device-plugin-gfd-mps.md §2.1), and what must hold for them (§2.4).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "sharing/config_file.h"
#include "sharing/options.h"

namespace gpuop::sharing {

struct Settings {
  // Both programs.
  std::string mig_strategy;  // "none", "single", "mixed"; checked by validate()
  bool fail_on_init_error = true;
  std::string container_driver_root;
  std::string device_discovery_strategy;
  std::string config_file;

  // The device plugin.
  std::string driver_root;  // on the host
  std::string dev_root;     // on the host; the driver root unless it was set
  bool pass_device_specs = false;
  std::vector<std::string> device_list_strategies;
  std::string device_id_strategy;
  bool gdrcopy = false, gds = false, mofed = false;
  std::string cdi_annotation_prefix, cdi_hook_path;
  std::string mps_root;
  std::string shared_devices_allocation_policy;
  std::vector<std::int64_t> imex_channel_ids;
  bool imex_required = false;
  std::string kubelet_socket;
  std::vector<std::string> cdi_feature_flags, cdi_disable_hooks;
  Duration health_recovery_interval{0};  // 0: off
  Duration device_rescan_interval{0};    // 0: by device nodes only
  bool enable_resource_renaming = false;
  bool watch_mig_changes = false;

  // GPU feature discovery.
  bool oneshot = false, no_timestamp = false, use_node_feature_api = true;
  std::optional<Duration> sleep_interval;  // nullopt: infinite
  std::string output_file, machine_type_file;
  std::string kubeconfig, ns, node_name, pod_name;

  // From the file.
  std::vector<ResourcePattern> gpu_patterns, mig_patterns;
  std::optional<ReplicatedResources> time_slicing, mps;

  // What an administrator should read: dead, odd or overridden settings, one sentence each.
  std::vector<std::string> notes;

  bool has_strategy(std::string_view name) const;  // among device_list_strategies
  bool any_cdi() const;
  bool all_cdi() const;  // false when there are no strategies
};

struct SettingsInputs {
  // Occurrences of each flag by Option::name, in order.
  std::map<std::string, std::vector<std::string>> flags;
  std::map<std::string, std::string> env;
  ConfigFile file;
};

// The value of every option of `program` by name (options.h), with what is overridden said in `notes`. Errors
// name the flag or variable: "FAIL_ON_INIT_ERROR: must be true or false; got 'maybe'".
Result<std::map<std::string, Json>> resolve_options(Program program, const SettingsInputs& inputs,
                                                    std::vector<std::string>& notes);

// The configuration file that flags and environment name; "" for none.
std::string config_file_path(Program program, const SettingsInputs& inputs);
Result<Settings> resolve_settings(Program program, const SettingsInputs& inputs);

// What validation must know of the machine.
struct Platform {
  bool nvml_loadable = true;
  bool tegra = false;  // discovery resolves to tegra
};
// The device plugin's checks, in upstream's order; the first that fails.
Result<> validate_plugin(const Settings& settings, const Platform& platform);
// The checks that apply to GPU feature discovery.
Result<> validate_feature_discovery(const Settings& settings);

// For the log: every setting of `program`, by option name, and the sharing.
Json settings_json(Program program, const Settings& settings);

enum class SharingStrategy { kNone, kTimeSlicing, kMps };
std::string_view strategy_name(SharingStrategy strategy);  // "none", "time-slicing", "mps"
SharingStrategy active_strategy(const Settings& settings);
// The entries that are in force; nullptr when nothing is shared.
const ReplicatedResources* active_sharing(const Settings& settings);
// The first entry for `resource` (fully qualified), or nullptr.
const SharedResource* find_shared(const Settings& settings, std::string_view resource);
// A request for more than one shared device is refused.
bool fail_requests_greater_than_one(const Settings& settings);

}  // namespace gpuop::sharing
