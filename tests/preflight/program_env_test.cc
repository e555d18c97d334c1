// What preflight takes for the environment of the device plugin and of feature discovery is what the operator
// gives them.
#include <gtest/gtest.h>

#include <set>

#include "../operator/render_fixture.h"
#include "operator/pod.h"
#include "policy/crds.h"
#include "preflight/config_texts.h"
#include "sharing/options.h"

namespace gpuop::preflight {
namespace {

using Variables = std::map<std::string, std::string>;
using sharing::Program;

// Those that the program reads and that are known before it runs.
Variables read_by(Program program, const Variables& all) {
  std::set<std::string, std::less<>> names;
  for (const auto& option : sharing::options(program)) {
    if (option.name == "config-file") continue;  // the file is given
    for (const auto name : option.envs) names.emplace(name);
  }
  Variables out;
  for (const auto& [name, value] : all) {
    if (names.contains(name)) out[name] = value;
  }
  return out;
}

Variables rendered_env(const Json& policy, std::string_view daemonset, std::string_view container) {
  const auto assets = op::load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  const auto plan = op::render(op::parsed(policy), op::facts_of_cases(), assets);
  Variables out;
  for (const auto& state : plan.states) {
    for (const Json& object : state.objects) {
      if (get_string(object, {"kind"}) != "DaemonSet" ||
          get_string(object, {"metadata", "name"}) != daemonset)
        continue;
      const Json* found = op::find_container(op::pod_spec(object), container);
      if (!found) continue;
      for (const Json& variable : get_array(*found, {"env"})) {
        if (!has(variable, {"valueFrom"}))
          out[str(get_string(variable, {"name"}))] = str(get_string(variable, {"value"}));
      }
    }
  }
  return out;
}

TEST(preflight, programs_get_the_environment_that_is_foretold) {
  const std::vector<std::string> variants = {
      "{}", "{cdi: {enabled: false}}",
      "{cdi: {enabled: true}, gds: {enabled: true}, gdrcopy: {enabled: true}, mig: {strategy: mixed}}",
      "{toolkit: {enabled: false}, devicePlugin: {mps: {root: /srv/mps}, env: [{name: PASS_DEVICE_SPECS, "
      "value: "
      "'false'}]}}",
      "{toolkit: {installDir: /opt/tools}, gfd: {env: [{name: GFD_SLEEP_INTERVAL, value: 5s}]}}"};
  for (const auto& variant : variants) {
    Json policy = op::case_object("01-defaults");
    const auto changes = parse_yaml_one(variant, "changes")->value;
    for (const auto& [section, fields] : changes.as_object()) {
      for (const auto& [field, value] : fields.as_object()) set(policy, {"spec", section, field}, value);
    }
    const Json values = policy::stored_spec("ClusterPolicy", *find(policy, {"spec"})).value();
    const auto plugin = rendered_env(policy, "nvidia-device-plugin-daemonset", "nvidia-device-plugin");
    ASSERT_FALSE(plugin.empty());
    EXPECT_EQ(read_by(Program::kPlugin, program_env(values, "devicePlugin")),
              read_by(Program::kPlugin, plugin))
        << variant;
    const auto gfd = rendered_env(policy, "gpu-feature-discovery", "gpu-feature-discovery");
    ASSERT_FALSE(gfd.empty());
    EXPECT_EQ(read_by(Program::kFeatureDiscovery, program_env(values, "gfd")),
              read_by(Program::kFeatureDiscovery, gfd))
        << variant;
  }
}

}  // namespace
}  // namespace gpuop::preflight
