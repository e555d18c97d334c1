#include "toolkit/install.h"

#include <array>

#include "base/files.h"
#include "base/log.h"
#include "shim/config.h"
#include "shim/toml.h"

namespace gpuop::toolkit {

namespace {

struct Program {
  const char* name;
  bool required;
};
constexpr std::array<Program, 4> kPrograms = {{{"nvidia-container-runtime", true},
                                               {"nvidia-cdi-hook", true},
                                               {"nvidia-container-runtime-hook", true},
                                               {"nvidia-ctk", false}}};
// Names that are the same program: it looks at how it was called.
constexpr std::array<std::pair<const char*, const char*>, 3> kLinks = {
    {{"nvidia-container-runtime.cdi", "nvidia-container-runtime"},
     {"nvidia-container-runtime.legacy", "nvidia-container-runtime"},
     {"nvidia-container-toolkit", "nvidia-container-runtime-hook"}}};

JsonArray texts(const std::vector<std::string>& list) {
  return JsonArray(list.begin(), list.end());
}

void set_if(Json& tree, Keys keys, const std::string& value) {
  if (!value.empty()) set(tree, keys, value);
}

}  // namespace

Result<bool> install_programs(const fs::path& source, const fs::path& folder) {
  auto doing = "install the toolkit into '" + folder.string() + "'";
  TRY_IN(make_dirs(folder), doing);
  bool changed = false;
  for (const auto& program : kPrograms) {
    fs::path from = source / program.name;
    if (!program.required && !file_exists(from)) continue;
    std::string bytes = TRY_IN(read_file(from, 256u << 20), doing);
    changed = TRY_IN(write_file_atomic(folder / program.name, bytes, 0755), doing) || changed;
  }
  for (auto [link, target] : kLinks)
    changed = TRY_IN(make_symlink_atomic(target, folder / link), doing) || changed;
  return changed;
}

fs::path runtime_config_file(const fs::path& folder) {
  return folder / ".config/nvidia-container-runtime/config.toml";
}

std::string runtime_config_text(const RuntimeConfig& config) {
  Json tree = shim::default_config_tree();
  std::string folder = config.folder.string();
  set(tree, {"accept-nvidia-visible-devices-envvar-when-unprivileged"}, config.accept_envvar_unprivileged);
  set(tree, {"accept-nvidia-visible-devices-as-volume-mounts"}, config.accept_volume_mounts);
  std::string here = shim::default_ldconfig(config.driver_root_here);
  std::string name = here.ends_with(".real") ? "/sbin/ldconfig.real" : "/sbin/ldconfig";
  set(tree, {"nvidia-container-cli", "ldconfig"},
      "@" + (config.driver_root == "/" ? std::string() : config.driver_root) + name);
  set(tree, {"nvidia-container-cli", "root"}, config.driver_root);
  set(tree, {"nvidia-container-cli", "path"}, folder + "/nvidia-container-cli");
  set_if(tree, {"nvidia-container-cli", "debug"}, config.cli_debug);
  set(tree, {"nvidia-ctk", "path"}, folder + "/nvidia-ctk");
  set(tree, {"nvidia-container-runtime-hook", "path"}, folder + "/nvidia-container-runtime-hook");
  set(tree, {"nvidia-container-runtime-hook", "skip-mode-detection"}, config.skip_mode_detection);
  set(tree, {"nvidia-container-runtime", "runtimes"}, texts(config.runtimes));
  set_if(tree, {"nvidia-container-runtime", "debug"}, config.debug);
  set_if(tree, {"nvidia-container-runtime", "log-level"}, config.log_level);
  set_if(tree, {"nvidia-container-runtime", "mode"}, config.mode);
  set_if(tree, {"nvidia-container-runtime", "modes", "cdi", "default-kind"}, config.default_kind);
  if (!config.annotation_prefixes.empty()) {
    set(tree, {"nvidia-container-runtime", "modes", "cdi", "annotation-prefixes"},
        texts(config.annotation_prefixes));
  }
  for (const auto& feature : config.features) set(tree, {"features", feature}, true);
  return to_toml(tree);
}

}  // namespace gpuop::toolkit
