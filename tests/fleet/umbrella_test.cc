// Our values within those of another chart.
#include "fleet/umbrella.h"

#include <gtest/gtest.h>

namespace gpuop::fleet {
namespace {

std::vector<YamlDocument> files(const std::vector<std::string>& texts) {
  std::vector<YamlDocument> out;
  for (const auto& text : texts) out.push_back(parse_yaml_one(text, "values.yaml").value());
  return out;
}

// The key that is found, or what is said.
std::string key_of(const std::vector<std::string>& texts) {
  const auto key = values_key(files(texts), chart_rules().schema);
  return key ? *key : key.error().text();
}

std::string said(const std::vector<std::string>& texts, const std::string& key) {
  const auto documents = values_below(files(texts), key);
  if (!documents) return documents.error().text();
  std::string out;
  for (const auto& one : told_below(check_values(*documents, chart_rules()), key))
    out +=
        std::to_string(one.file) + ":" + std::to_string(one.line) + " " + one.path + ": " + one.text + "\n";
  return out;
}

TEST(fleet_umbrella, the_key_is_found_by_its_name) {
  EXPECT_EQ(key_of({"gpu-operator: {driver: {enabled: false}}"}), "gpu-operator");
  EXPECT_EQ(key_of({"global: {a: b}\nnode-feature-discovery: {}\ngpuOperator: {enabled: true}"}),
            "gpuOperator");
  EXPECT_EQ(key_of({"nvidia-gpu-operator:", "prometheus: {}"}), "nvidia-gpu-operator");
  EXPECT_EQ(key_of({"prometheus: {}", "gpu-operator: {}"}), "gpu-operator");
}

TEST(fleet_umbrella, the_key_is_found_by_what_lies_below_it) {
  EXPECT_EQ(key_of({"gpus: {driver: {version: '1'}, toolkit: {enabled: false}, operater: {}}"}), "gpus");
  EXPECT_EQ(key_of({"gpus: {driver: {}}", "gpus: {devicePlugin: {}}"}), "gpus");
  // Other charts that have something of the kind.
  EXPECT_EQ(key_of({"nvidia-device-plugin: {gfd: {enabled: true}, nfd: {enabled: true}}"}), "");
  EXPECT_EQ(key_of({"network-operator: {nfd: {}, operator: {}, psp: {}}"}), "");
  EXPECT_EQ(key_of({"csi: {driver: {}, toolkit: {}, a: 1, b: 2, c: 3}"}), "");
}

TEST(fleet_umbrella, values_of_the_chart_itself_are_no_umbrella) {
  EXPECT_EQ(key_of({"{}"}), "");
  EXPECT_EQ(key_of({"driver: {enabled: false}\ngpu-operator: {driver: {}}"}), "");
  EXPECT_EQ(key_of({"nfd: {enabled: false}\noperator: {}"}), "");
}

TEST(fleet_umbrella, a_key_that_was_not_taken_is_told_with_the_option) {
  const auto documents = files({"gpus: {driver: {enabled: false}}\nother: {a: 1}"});
  auto findings = check_values(documents, chart_rules());
  tell_of_values_key(findings, documents, chart_rules().schema);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_NE(findings[0].text.find("--values-key gpus checks"), std::string::npos) << findings[0].text;
  EXPECT_EQ(findings[1].text.find("--values-key"), std::string::npos) << findings[1].text;
}

TEST(fleet_umbrella, of_several_keys_none_is_chosen) {
  EXPECT_EQ(key_of({"a: {driver: {}, toolkit: {}}\nb: {driver: {}, toolkit: {}}"}),
            "more than one key may hold the values of this chart: a, b; name the one with --values-key");
}

TEST(fleet_umbrella, paths_lines_and_what_was_meant_are_whole) {
  EXPECT_EQ(
      said({"global: {x: 1}\ngpu-operator:\n  enabled: true\n  global: {y: 1}\n  driver:\n    verion: '1'\n"},
           "gpu-operator"),
      "0:6 gpu-operator.driver.verion: this chart has no such key; it does nothing (did you mean "
      "'gpu-operator.driver.version'?)\n");
  EXPECT_EQ(
      said({"a: 1", "gpu-operator:\n  driver: {enabled: 'x'}\n  fleet: {startTaint: {}}\n"}, "gpu-operator"),
      "1:2 gpu-operator.driver.enabled: must be a boolean; got the string \"x\"\n"
      "1:3 gpu-operator.fleet.startTaint: is no key here (did you mean "
      "'gpu-operator.fleet.startupTaint'?)\n");
  EXPECT_EQ(said({"gpu-operator:\n  driver: {}\n  driver: {}\n"}, "gpu-operator"),
            "0:3 gpu-operator.driver: is written twice; the last one counts\n");
  EXPECT_EQ(said({"mig: {}\nplatform:\n  gpus: {mig: {strategy: mixd}}\n"}, "platform.gpus"),
            "0:3 platform.gpus.mig.strategy: must be one of none, single, mixed; got mixd (did you mean "
            "'mixed'?)\n");
}

TEST(fleet_umbrella, what_lies_below_must_be_there_and_a_map) {
  EXPECT_EQ(said({"gpu-operator: [1]"}, "gpu-operator"),
            "0:1 gpu-operator: must be a map; got the list [1]\n");
  EXPECT_EQ(said({"gpu-operator:"}, "gpu-operator"), "");
  EXPECT_EQ(said({"gpu-oprator: {}"}, "gpu-operator"),
            "there is no key 'gpu-operator' (did you mean 'gpu-oprator'?)");
}

}  // namespace
}  // namespace gpuop::fleet
