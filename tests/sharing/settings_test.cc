#include <gtest/gtest.h>

#include "sharing/command_line.h"
#include "sharing/settings.h"

namespace gpuop::sharing {
namespace {

Result<Settings> feature_discovery(std::map<std::string, std::string> env, std::string_view file = {}) {
  SettingsInputs inputs;
  inputs.env = std::move(env);
  inputs.file = TRY(parse_config_file(file, "f"));
  return resolve_settings(Program::kFeatureDiscovery, inputs);
}

TEST(sharing, every_option_has_a_default_of_its_type) {
  for (Program program :
       {Program::kPlugin, Program::kFeatureDiscovery, Program::kMps, Program::kConfigManager}) {
    for (const Option& option : options(program)) {
      bool list = option.type == OptionType::kStringList || option.type == OptionType::kIntList;
      if (list && option.fallback.empty()) continue;
      EXPECT_TRUE(parse_option_value(option.type, option.fallback)) << option.name;
    }
    EXPECT_NE(help_text(program, "x").find("--"), std::string::npos);
  }
}

TEST(sharing, booleans) {
  for (const char* text : {"1", "t", "T", "TRUE", "true", "True"}) {
    EXPECT_EQ(parse_option_value(OptionType::kBool, text)->as_bool(), true) << text;
  }
  for (const char* text : {"0", "f", "F", "FALSE", "false", "False"}) {
    EXPECT_EQ(parse_option_value(OptionType::kBool, text)->as_bool(), false) << text;
  }
  for (const char* text : {"yes", "tRUE", "", " true"})
    EXPECT_FALSE(parse_option_value(OptionType::kBool, text)) << text;
}

TEST(sharing, first_present_variable_wins) {
  EXPECT_EQ(feature_discovery({{"MIG_STRATEGY", "mixed"}, {"GFD_MIG_STRATEGY", "single"}})->mig_strategy,
            "single");
  EXPECT_EQ(feature_discovery({{"MIG_STRATEGY", "mixed"}})->mig_strategy, "mixed");
  // Present and empty counts as set: for a boolean it is false, for a duration it is nothing.
  auto empty = feature_discovery(
      {{"GFD_FAIL_ON_INIT_ERROR", ""}, {"FAIL_ON_INIT_ERROR", "true"}, {"GFD_SLEEP_INTERVAL", ""}});
  EXPECT_FALSE(empty->fail_on_init_error);
  EXPECT_EQ(empty->sleep_interval, Duration(60s));
}

TEST(sharing, command_line) {
  std::vector<std::string> arguments = {"-o", "x", "--oneshot", "--no-timestamp=false", "--node-name="};
  auto line = parse_command_line(Program::kFeatureDiscovery, arguments);
  ASSERT_TRUE(line) << line.error().text();
  EXPECT_EQ(line->flags["output-file"], std::vector<std::string>{"x"});
  EXPECT_EQ(line->flags["oneshot"], std::vector<std::string>{"true"});
  EXPECT_EQ(line->flags["no-timestamp"], std::vector<std::string>{"false"});
  EXPECT_EQ(line->flags["node-name"], std::vector<std::string>{""});
  auto error = [](std::vector<std::string> a) {
    return parse_command_line(Program::kPlugin, a).error().text();
  };
  EXPECT_EQ(error({"--mig-stratgy=x"}),
            "flag provided but not defined: '--mig-stratgy=x' (did you mean '--mig-strategy'?)");
  EXPECT_EQ(error({"--mps-root"}), "flag needs an argument: '--mps-root'");
  EXPECT_EQ(error({"stray"}), "unexpected argument 'stray'");
}

TEST(sharing, json_is_taken_too) {
  auto file = parse_config_file(R"({"version": "v1", "flags": {"migStrategy": "mixed"}})", "f");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->flags.at("migStrategy"), Json("mixed"));
  EXPECT_TRUE(parse_config_file("", "f"));
  EXPECT_TRUE(parse_config_file("# nothing\n", "f"));
}

TEST(sharing, errors_name_file_line_and_key) {
  auto wrong = parse_config_file("version: v1\nflags:\n  failOnInitError: 3\n", "/config/config.yaml");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().text(),
            "unable to parse config file: '/config/config.yaml': line 3: flags.failOnInitError: must be true "
            "or false; got 3");
}

TEST(sharing, device_references) {
  auto parses = [](std::string item) {
    return parse_config_file(
               "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [" + item + "]}]}}",
               "f")
        .has_value();
  };
  for (const char* good :
       {"0", "\"1\"", "\"0:1\"", "GPU-00000000-0000-0000-0000-000000000000",
        "MIG-00000000-0000-0000-0000-000000000000", "MIG-GPU-00000000-0000-0000-0000-000000000000/1/0"}) {
    EXPECT_TRUE(parses(good)) << good;
  }
  for (const char* bad :
       {"-1", "\"\"", "\"0:\"", "GPU-0", "MIG-GPU-00000000-0000-0000-0000-000000000000/1", "true", "{}"}) {
    EXPECT_FALSE(parses(bad)) << bad;
  }
}

}  // namespace
}  // namespace gpuop::sharing

using namespace gpuop;           // NOLINT
using namespace gpuop::sharing;  // NOLINT

TEST(device_plugin, case43_sleep_interval) {
  auto missing_unit = feature_discovery({{"GFD_SLEEP_INTERVAL", "60"}});
  ASSERT_FALSE(missing_unit);
  EXPECT_NE(missing_unit.error().text().find("GFD_SLEEP_INTERVAL"), std::string::npos)
      << missing_unit.error().text();
  EXPECT_EQ(feature_discovery({}, "flags: {gfd: {sleepInterval: 5}}")->sleep_interval, Duration(5));
  EXPECT_EQ(feature_discovery({}, "flags: {gfd: {sleepInterval: 1m30s}}")->sleep_interval, Duration(90s));
  EXPECT_EQ(feature_discovery({{"GFD_SLEEP_INTERVAL", "infinite"}})->sleep_interval, std::nullopt);
  EXPECT_FALSE(feature_discovery({}, "flags: {gfd: {sleepInterval: '60'}}"));
}
