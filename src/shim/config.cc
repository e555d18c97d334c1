#include "shim/config.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "base/files.h"
#include "base/text.h"
#include "shim/toml.h"

namespace gpuop::shim {

namespace {

// One key of the format: how it is read into a Config.
using Read = std::function<bool(Config&, const Json&)>;

template <class Member>
Read text(Member member) {
  return [member](Config& config, const Json& value) {
    if (!value.is_string()) return false;
    std::invoke(member, config) = as_text(value);
    return true;
  };
}
template <class Member>
Read flag(Member member) {
  return [member](Config& config, const Json& value) {
    if (!value.is_bool()) return false;
    std::invoke(member, config) = value.get_bool();
    return true;
  };
}
template <class Member>
Read texts(Member member) {
  return [member](Config& config, const Json& value) {
    if (!value.is_array()) return false;
    std::vector<std::string> list;
    for (const auto& item : value.get_array()) {
      if (!item.is_string()) return false;
      list.emplace_back(as_text(item));
    }
    std::invoke(member, config) = std::move(list);
    return true;
  };
}
Read feature(bool Config::Features::* member) {
  return [member](Config& config, const Json& value) {
    if (!value.is_bool()) return false;
    config.features.*member = value.get_bool();
    return true;
  };
}
// Known, checked for nothing: keys that only upstream's own tools read.
Read taken() {
  return [](Config&, const Json&) { return true; };
}

const std::map<std::string, Read, std::less<>>& keys() {
  using F = Config::Features;
  static const std::map<std::string, Read, std::less<>> table = {
      {"disable-require", flag(&Config::disable_require)},
      {"swarm-resource", text(&Config::swarm_resource)},
      {"accept-nvidia-visible-devices-envvar-when-unprivileged", flag(&Config::accept_envvar_unprivileged)},
      {"accept-nvidia-visible-devices-as-volume-mounts", flag(&Config::accept_volume_mounts)},
      {"supported-driver-capabilities", text(&Config::supported_capabilities)},
      {"nvidia-container-cli.root", text(&Config::cli_root)},
      {"nvidia-container-cli.path", text(&Config::cli_path)},
      {"nvidia-container-cli.environment", texts(&Config::cli_environment)},
      {"nvidia-container-cli.debug", taken()},
      {"nvidia-container-cli.ldcache", taken()},
      {"nvidia-container-cli.load-kmods", flag(&Config::load_kmods)},
      {"nvidia-container-cli.no-pivot", taken()},
      {"nvidia-container-cli.no-cgroups", flag(&Config::no_cgroups)},
      {"nvidia-container-cli.user", taken()},
      {"nvidia-container-cli.ldconfig", text(&Config::cli_ldconfig)},
      {"nvidia-ctk.path", text(&Config::ctk_path)},
      {"nvidia-container-runtime.debug", text(&Config::debug)},
      {"nvidia-container-runtime.log-level", text(&Config::log_level)},
      {"nvidia-container-runtime.runtimes", texts(&Config::runtimes)},
      {"nvidia-container-runtime.mode", text(&Config::mode)},
      {"nvidia-container-runtime.modes.cdi.spec-dirs", texts(&Config::spec_dirs)},
      {"nvidia-container-runtime.modes.cdi.default-kind", text(&Config::default_kind)},
      {"nvidia-container-runtime.modes.cdi.annotation-prefixes", texts(&Config::annotation_prefixes)},
      {"nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags", texts(&Config::jit_features)},
      {"nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks", texts(&Config::jit_disabled_hooks)},
      {"nvidia-container-runtime.modes.csv.mount-spec-path", taken()},
      {"nvidia-container-runtime.modes.csv.compat-container-root", taken()},
      {"nvidia-container-runtime.modes.legacy.cuda-compat-mode", text(&Config::cuda_compat_mode)},
      {"nvidia-container-runtime-hook.path", text(&Config::hook_path)},
      {"nvidia-container-runtime-hook.skip-mode-detection", flag(&Config::skip_mode_detection)},
      {"features.allow-cuda-compat-libs-from-container", taken()},
      {"features.allow-ldconfig-from-container", feature(&F::allow_ldconfig_from_container)},
      {"features.allow-unknown-oci-spec-fields", feature(&F::allow_unknown_oci_spec_fields)},
      {"features.disable-cuda-compat-lib-hook", feature(&F::disable_cuda_compat_lib_hook)},
      {"features.disable-imex-channel-creation", feature(&F::disable_imex_channel_creation)},
      {"features.ignore-imex-channel-requests", feature(&F::ignore_imex_channel_requests)},
      {"features.no-additional-gids-for-device-nodes", feature(&F::no_additional_gids_for_device_nodes)},
      {"features.enforce-requirements", feature(&F::enforce_requirements)},
  };
  return table;
}

// Whether `path` is a table on the way to a known key.
bool is_known_table(const std::string& path) {
  auto it = keys().lower_bound(path + ".");
  return it != keys().end() && it->first.starts_with(path + ".");
}

Result<> read_table(const JsonObject& table, const std::string& path, Config& config) {
  for (const auto& member : table) {
    std::string key = path.empty() ? std::string(member.key()) : path + "." + std::string(member.key());
    auto known = keys().find(key);
    if (known != keys().end()) {
      if (!known->second(config, member.value())) return fail(Code::kInvalid, key + ": wrong type of value");
    } else if (member.value().is_object() && is_known_table(key)) {
      TRY(read_table(member.value().get_object(), key, config));
    } else {
      config.warnings.push_back("unknown key " + key + did_you_mean(key, known_config_keys()));
    }
  }
  return {};
}

}  // namespace

const std::vector<std::string>& known_config_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [key, read] : keys()) list.push_back(key);
    return list;
  }();
  return names;
}

Result<Config> parse_config(std::string_view text, std::string_view file) {
  Json tree = TRY(parse_toml(text, file));
  Config config;
  config.cli_ldconfig = default_ldconfig("/");
  TRY_IN(read_table(tree.as_object(), "", config), "read '" + std::string(file) + "'");
  return config;
}

Result<> check_config(const Config& config) {
  if (!config.cli_ldconfig.starts_with('@') && !config.features.allow_ldconfig_from_container) {
    return fail(Code::kInvalid, "nvidia-container-cli.ldconfig value \"" + config.cli_ldconfig +
                                    "\" is not host-relative (does not start with a '@')");
  }
  return {};
}

fs::path config_path(const fs::path& program) {
  constexpr std::string_view kInside = "nvidia-container-runtime/config.toml";
  if (const char* path = std::getenv("NVIDIA_CTK_CONFIG_FILE_PATH"); path != nullptr && *path != '\0')
    return path;
  fs::path installed = program.parent_path() / ".config" / kInside;
  if (program.is_absolute() && file_exists(installed)) return installed;
  if (const char* home = std::getenv("XDG_CONFIG_HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / kInside;
  return fs::path("/etc") / kInside;
}

Result<Config> load_config(const fs::path& path) {
  auto content = read_file(path, 1u << 20);
  if (!content) {
    if (content.error().code() == Code::kNotFound) return parse_config("", path.string());
    return fail(std::move(content).error().in("load configuration"));
  }
  return TRY_IN(parse_config(*content, path.string()), "load configuration");
}

std::string default_ldconfig(const fs::path& root) {
  fs::path plain = root / "sbin/ldconfig";
  return "@" + plain.string() + (file_exists(plain.string() + ".real") ? ".real" : "");
}

Json default_config_tree() {
  Config config;
  Json tree = JsonObject{};
  auto texts = [](const std::vector<std::string>& list) { return JsonArray(list.begin(), list.end()); };
  tree = JsonObject{
      {"disable-require", false},
      {"supported-driver-capabilities", config.supported_capabilities},
      {"accept-nvidia-visible-devices-envvar-when-unprivileged", true},
      {"accept-nvidia-visible-devices-as-volume-mounts", false},
      {"nvidia-container-cli",
       JsonObject{{"environment", JsonArray{}}, {"ldconfig", default_ldconfig("/")}, {"load-kmods", true}}},
      {"nvidia-ctk", JsonObject{{"path", config.ctk_path}}},
      {"nvidia-container-runtime",
       JsonObject{
           {"debug", config.debug},
           {"log-level", config.log_level},
           {"mode", config.mode},
           {"runtimes", texts(config.runtimes)},
           {"modes",
            JsonObject{{"cdi", JsonObject{{"annotation-prefixes", texts(config.annotation_prefixes)},
                                          {"default-kind", config.default_kind},
                                          {"spec-dirs", texts(config.spec_dirs)}}},
                       {"csv", JsonObject{{"mount-spec-path",
                                           "/etc/nvidia-container-runtime/host-files-for-container.d"}}},
                       {"legacy", JsonObject{{"cuda-compat-mode", config.cuda_compat_mode}}}}}}},
      {"nvidia-container-runtime-hook",
       JsonObject{{"path", config.hook_path}, {"skip-mode-detection", false}}},
  };
  return tree;
}

}  // namespace gpuop::shim
