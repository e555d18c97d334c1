#include "preflight/config_texts.h"

namespace gpuop::preflight {
namespace {

using Variables = std::map<std::string, std::string>;

bool is_on(const Json& values, const char* section) {
  return get_bool(values, {section, "enabled"});
}

// As assets/state-device-plugin has it, and operands of our image that the policy shapes.
Variables of_plugin(const Json& values) {
  Variables env = {{"PASS_DEVICE_SPECS", "true"},
                   {"FAIL_ON_INIT_ERROR", "true"},
                   {"DEVICE_ID_STRATEGY", "uuid"},
                   {"DEVICE_LIST_STRATEGY", "envvar"},
                   {"MPS_ROOT", "/run/nvidia/mps"}};
  if (is_on(values, "gds")) env["GDS_ENABLED"] = env["MOFED_ENABLED"] = "true";
  if (is_on(values, "gdrcopy")) env["GDRCOPY_ENABLED"] = "true";
  if (get_bool(values, {"cdi", "enabled"})) {
    env["DEVICE_LIST_STRATEGY"] = "cdi-annotations,cdi-cri";
    env["CDI_ANNOTATION_PREFIX"] = "cdi.k8s.io/";
    if (is_on(values, "toolkit"))
      env["NVIDIA_CDI_HOOK_PATH"] =
          std::string(get_string(values, {"toolkit", "installDir"}, "/usr/local/nvidia")) +
          "/toolkit/nvidia-cdi-hook";
  }
  if (const auto root = get_string(values, {"devicePlugin", "mps", "root"}); !root.empty())
    env["MPS_ROOT"] = std::string(root);
  return env;
}

}  // namespace

Variables program_env(const Json& values, std::string_view section) {
  Variables env = section == "gfd"
                      ? Variables{{"GFD_SLEEP_INTERVAL", "60s"}, {"GFD_FAIL_ON_INIT_ERROR", "true"}}
                      : of_plugin(values);
  // Another is told by the schema, and would only be told again.
  const auto strategy = get_string(values, {"mig", "strategy"});
  if (strategy == "none" || strategy == "single" || strategy == "mixed")
    env["MIG_STRATEGY"] = std::string(strategy);
  for (const Json& variable : get_array(values, {section, "env"})) {
    if (!has(variable, {"valueFrom"}))
      env[std::string(get_string(variable, {"name"}))] = std::string(get_string(variable, {"value"}));
  }
  return env;
}

}  // namespace gpuop::preflight
