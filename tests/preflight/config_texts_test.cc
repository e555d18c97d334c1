#include "preflight/config_texts.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "fleet/values.h"

namespace gpuop::preflight {
namespace {

using Kind = fleet::ValuesFinding::Kind;

// "error LINE PATH: TEXT" or "warning …", one a line.
std::string said(const std::string& values) {
  const auto document = parse_yaml_one(values, "values.yaml");
  if (!document) return document.error().text();
  std::string out;
  for (const auto& one : fleet::check_values({&*document, 1}, fleet::chart_rules(), config_text_faults)) {
    const bool error = one.kind == Kind::kRefused || one.kind == Kind::kBroken;
    out +=
        (error ? "error " : "warning ") + std::to_string(one.line) + " " + one.path + ": " + one.text + "\n";
  }
  return out;
}

std::string plugin(const std::string& text, const std::string& more = "") {
  return "devicePlugin:\n  config:\n    name: plug\n    create: true\n" + more +
         "    data:\n      any: " + to_text(Json(text)) + "\n";
}

#define SAYS(values, start, part)                                                      \
  do {                                                                                 \
    const std::string all = said(values);                                              \
    EXPECT_TRUE(all.starts_with(start) && all.find(part) != std::string::npos) << all; \
    EXPECT_EQ(std::ranges::count(all, '\n'), 1) << all;                                \
  } while (false)

TEST(preflight, a_default_that_is_not_in_the_data) {
  SAYS(plugin("version: v1", "    default: ani\n"),
       "error 5 devicePlugin.config.default: 'ani' is not in the data", "did you mean 'any'?");
  EXPECT_EQ(said(plugin("version: v1", "    default: any\n")), "");
}

TEST(preflight, a_plugin_configuration_is_read_by_the_plugins_parser) {
  const std::string at = "error 6 devicePlugin.config.data.any: ";
  SAYS(plugin("version: v1\nsharing: 3"), at, "line 2: sharing: must be a map");
  SAYS(plugin("version: v2"), at, "unknown version: v2");
  SAYS(plugin("x: ["), at, "'any': line 1");
  SAYS(plugin("flags: {deviceIDStrategy: name}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}") +
           "mig: {strategy: mixed}\n",
       "error 6 devicePlugin.config.data.any: ", "not supported with MPS");
  SAYS(plugin("version: v1\nsharring: 3"),
       "warning 6 devicePlugin.config.data.any: ", "did you mean 'sharing'?");
}

TEST(preflight, what_the_environment_overrides_is_a_warning) {
  SAYS(plugin("flags: {migStrategy: mixed}"), "warning 6 devicePlugin.config.data.any: ", "is overridden by");
}

TEST(preflight, an_environment_that_the_plugin_refuses) {
  SAYS("devicePlugin:\n  env:\n    - {name: DEVICE_LIST_STRATEGY, value: cdi}\n",
       "error 2 devicePlugin.env: ", "invalid strategy: cdi");
  SAYS("gfd: {env: [{name: GFD_SLEEP_INTERVAL, value: soon}]}", "error 1 gfd.env: ", "GFD_SLEEP_INTERVAL");
  EXPECT_EQ(said("devicePlugin: {enabled: false, env: [{name: DEVICE_LIST_STRATEGY, value: cdi}]}"), "");
}

TEST(preflight, what_the_schema_refuses_is_not_told_by_the_programs_again) {
  SAYS("mig: {strategy: mixd}\n", "error 1 mig.strategy: must be one of none, single, mixed", "did you mean");
}

TEST(preflight, data_of_a_config_map_that_is_not_made) {
  SAYS("devicePlugin: {config: {name: plug, data: {any: 'x: ['}}}",
       "warning 1 devicePlugin.config.data: ", "create");
  SAYS("migManager: {config: {data: {config.yaml: 'x: ['}}}", "warning 1 migManager.config.data: ", "name");
  SAYS("dcgmExporter: {config: {name: m, data: 'a,b'}}", "warning 1 dcgmExporter.config.data: ", "create");
}

std::string mig(const std::string& text) {
  return "migManager:\n  config:\n    name: parts\n    data:\n      config.yaml: " + to_text(Json(text)) +
         "\n";
}
constexpr const char* kAllDisabled =
    "version: v1\nmig-configs:\n  all-disabled:\n    - {devices: all, mig-enabled: false}\n";

TEST(preflight, a_mig_configuration_follows_the_rules_of_its_program) {
  EXPECT_EQ(said(mig(kAllDisabled)), "");
  const auto wrong = [](const std::string& text, const std::string& part) {
    SAYS(mig(text), "error 5 migManager.config.data.config.yaml: ", part);
  };
  const std::string one = "version: v1\nmig-configs:\n  all-disabled:\n    - ";
  wrong("x: [", "line 1");
  wrong("mig-configs: {}", "missing 'version'");
  wrong("version: v2", "line 1: version: unknown version: v2");
  wrong("version: v1\nmig-config: {}",
        "line 2: mig-config: unexpected field: mig-config (did you mean 'mig-configs'?)");
  wrong("version: v1\nmig-configs: {}", "at least one entry");
  wrong("version: v1\nmig-configs: {a: []}", "at least one entry");
  wrong(one + "{mig-enabled: false}", "missing required field: devices");
  wrong(one + "{devices: every, mig-enabled: false}", "must be all or a list");
  wrong(one + "{devices: all}", "missing required field: mig-enabled");
  wrong(one + "{devices: all, mig-enabled: true}", "missing required field 'mig-devices'");
  wrong(one + "{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 7}}", "included when");
  wrong(one + "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}",
        "invalid count for '1g.5gb': -1");
  wrong(one + "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}", "all counts");
  wrong(one + "{devices: [0], mig-enabled: false, mig-devcies: {}}", "did you mean 'mig-devices'?");
}

TEST(preflight, a_mig_profile_has_a_grammar) {
  const auto parsed = [](const std::string& profile) {
    return parse_mig_configs(
               "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {'" + profile +
                   "': 1}}]}",
               "f")
        .has_value();
  };
  for (const char* good : {"1g.5gb", "1c.3g.20gb", "1g.10gb+me", "1g.24gb-me", "1g.12gb+gfx,me.all"})
    EXPECT_TRUE(parsed(good)) << good;
  for (const char* bad : {"", "1g5gb", "1g.5", "g.5gb", "4c.3g.20gb", "1c.1g.1g.5gb", "1g.5gb+",
                          "1g.5gb+me,me", "1g.5gb+me-gfx", "1g.5gb+1me", "1g.5gb+me.", " 1g.5gb", "1.g.5gb"})
    EXPECT_FALSE(parsed(bad)) << bad;
}

TEST(preflight, a_mig_configuration_without_its_file_or_default) {
  SAYS("migManager: {config: {name: parts, data: {config.yml: ''}}}",
       "error 1 migManager.config.data: ", "must have the key config.yaml");
  SAYS(mig("version: v1\nmig-configs: {all-disable: [{devices: all, mig-enabled: false}]}"),
       "warning 2 migManager.config.default: 'all-disabled'", "did you mean 'all-disable'?");
}

std::string metrics(const std::string& text) {
  return "dcgmExporter:\n  config:\n    name: m\n    create: true\n    data: " + text + "\n";
}

TEST(preflight, a_metrics_file_is_read_by_the_exporters_parser) {
  EXPECT_EQ(said(metrics("'DCGM_FI_DEV_GPU_TEMP, gauge, Temperature'")), "");
  EXPECT_EQ(said(metrics("{dcgm-metrics.csv: 'DCGM_FI_DEV_GPU_TEMP, gauge, Temperature'}")), "");
  SAYS(metrics("'DCGM_FI_DEV_GPU_TMP, gauge, Temperature'"),
       "error 5 dcgmExporter.config.data: ", "did you mean DCGM_FI_DEV_GPU_TEMP");
  SAYS(metrics("{dcgm-metrics.csv: 'DCGM_FI_DEV_GPU_TEMP, gauge'}"),
       "error 5 dcgmExporter.config.data.dcgm-metrics.csv: ", "line 1: 3 fields expected");
  const std::string other = said(metrics("{metrics.csv: x}"));
  EXPECT_NE(other.find("warning 5 dcgmExporter.config.data.metrics.csv: does nothing"), std::string::npos)
      << other;
  EXPECT_NE(other.find("error 5 dcgmExporter.config.data: must be a text"), std::string::npos) << other;
}

TEST(preflight, a_worker_configuration_is_read_by_the_workers_parser) {
  SAYS("node-feature-discovery:\n  worker:\n    config: {core: {sleepInterval: [1]}}\n",
       "error 3 node-feature-discovery.worker.config: ", "core.sleepInterval: must be a duration");
  SAYS("node-feature-discovery: {worker: {config: {cores: {}}}}",
       "warning 1 node-feature-discovery.worker.config: ", "did you mean");
}

TEST(preflight, the_charts_defaults_are_sound) {
  EXPECT_TRUE(config_text_faults(fleet::chart_rules().defaults).empty());
}

}  // namespace
}  // namespace gpuop::preflight
