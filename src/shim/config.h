// The configuration of the runtime and the hooks: config.toml (container-toolkit-cdi.md §3.2), upstream's
// format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::shim {

struct Config {
  bool disable_require = false;
  std::string swarm_resource;
  bool accept_envvar_unprivileged = true;
  bool accept_volume_mounts = false;
  std::string supported_capabilities = "compat32,compute,display,graphics,ngx,utility,video";

  std::string cli_root;  // the driver root; "" is "/"
  std::string cli_path;
  std::vector<std::string> cli_environment;
  std::string cli_ldconfig;
  bool load_kmods = true;
  bool no_cgroups = false;

  std::string ctk_path = "nvidia-ctk";

  std::string debug = "/dev/null";
  std::string log_level = "info";
  std::vector<std::string> runtimes = {"runc", "crun"};
  std::string mode = "auto";
  std::vector<std::string> spec_dirs = {"/etc/cdi", "/var/run/cdi"};
  std::string default_kind = "nvidia.com/gpu";
  std::vector<std::string> annotation_prefixes = {"cdi.k8s.io/"};
  std::vector<std::string> jit_features;
  std::vector<std::string> jit_disabled_hooks;
  std::string cuda_compat_mode = "ldconfig";

  std::string hook_path = "nvidia-container-runtime-hook";
  bool skip_mode_detection = false;

  struct Features {
    bool allow_ldconfig_from_container = false;
    bool allow_unknown_oci_spec_fields = false;
    bool disable_cuda_compat_lib_hook = false;
    bool disable_imex_channel_creation = false;
    bool ignore_imex_channel_requests = false;
    bool no_additional_gids_for_device_nodes = false;
    bool enforce_requirements = false;  // ours
  } features;

  std::vector<std::string> warnings;  // unknown keys, one text each
};

// Wrong types are errors with the key's path; unknown keys are warnings. Keys that are absent keep their
// default.
Result<Config> parse_config(std::string_view text, std::string_view file);
// What must hold before anything is injected: ldconfig is host-relative.
Result<> check_config(const Config& config);

// Where the file is: $NVIDIA_CTK_CONFIG_FILE_PATH, then <folder of the
// program>/.config/nvidia-container-runtime/ config.toml if there is one (an installed toolkit),
// $XDG_CONFIG_HOME/nvidia-container-runtime/config.toml, /etc/nvidia-container-runtime/config.toml.
std::filesystem::path config_path(const std::filesystem::path& program);
// Reads it; a missing file means the defaults.
Result<Config> load_config(const std::filesystem::path& path);

// The whole tree with every default, as values: what nvidia-ctk and the installer write from.
Json default_config_tree();
// Every key that the format knows, dotted, sorted.
const std::vector<std::string>& known_config_keys();
// "@/sbin/ldconfig", or its .real variant where that exists beneath `root`.
std::string default_ldconfig(const std::filesystem::path& root);

}  // namespace gpuop::shim
