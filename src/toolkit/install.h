// The toolkit's files on the host: programs and their configuration (container-toolkit-cdi.md §5.2).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::toolkit {

// Copies the host programs from `source` into `folder` (<root>/toolkit) one by one with rename: there is
// never a moment without the runtime, which running containers need to be killed. Files that are there
// already in the same form are left alone, others of earlier versions stay. Answers whether anything changed.
Result<bool> install_programs(const std::filesystem::path& source, const std::filesystem::path& folder);

struct RuntimeConfig {
  std::filesystem::path folder;  // <root>/toolkit, the same path on the host
  std::string driver_root;       // as the host sees it
  std::filesystem::path driver_root_here;
  std::vector<std::string> runtimes;  // low-level ones
  bool accept_envvar_unprivileged = true;
  bool accept_volume_mounts = false;
  bool skip_mode_detection = true;
  // Only where set.
  std::string debug;
  std::string log_level;
  std::string mode;
  std::string default_kind;
  std::vector<std::string> annotation_prefixes;
  std::string cli_debug;
  std::vector<std::string> features;  // each becomes features.<x> = true
};
// The text of config.toml, pure but for the look at ldconfig's variant beneath driver_root_here.
std::string runtime_config_text(const RuntimeConfig& config);
// <folder>/.config/nvidia-container-runtime/config.toml.
std::filesystem::path runtime_config_file(const std::filesystem::path& folder);

}  // namespace gpuop::toolkit
