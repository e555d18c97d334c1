#include "fleet/compatibility.h"

#include <gtest/gtest.h>

#include "base/files.h"

namespace gpuop::fleet {
namespace {

std::vector<std::string> found(const CompatFacts& common, const CompatFacts& node = {}) {
  std::vector<std::string> out;
  for (const auto& finding : Compatibility::built_in().check(common, {{"n1", node}}))
    out.push_back(finding.rule);
  return out;
}
using List = std::vector<std::string>;

TEST(compatibility, the_built_in_rules_are_those_of_the_file) {
  const auto text = read_file(fs::path(SOURCE_ROOT) / "src/fleet/compatibility.yaml");
  ASSERT_TRUE(text);
  const auto rules = Compatibility::parse(*text, "compatibility.yaml");
  ASSERT_TRUE(rules) << rules.error().text();
  EXPECT_GT(rules->size(), 20u);
  EXPECT_EQ(Compatibility::built_in().size(), rules->size());
}

TEST(compatibility, versions_compare_number_by_number) {
  EXPECT_LT(compare_versions("570.9", "570.86.15"), 0);
  EXPECT_EQ(compare_versions("v1.34", "1.34.0"), 0);
  EXPECT_GT(compare_versions("1.36.0-rc.1", "1.35.9"), 0);
  EXPECT_GT(compare_versions("99999999999999999999.1", "1"), 0);
}

TEST(compatibility, a_usual_cluster_has_no_findings) {
  const CompatFacts node{{"os", "ubuntu"},
                         {"os.version", "24.04"},
                         {"kernel", "6.8.0-60-generic"},
                         {"arch", "amd64"},
                         {"runtime", "containerd"},
                         {"runtime.version", "2.1.4"},
                         {"gpu", "NVIDIA-H100-80GB-HBM3"}};
  EXPECT_EQ(found({{"kubernetes", "v1.34.1"},
                   {"driver.enabled", "true"},
                   {"driver.version", "595.91.07"},
                   {"driver.modules", "auto"},
                   {"driver.precompiled", "false"},
                   {"nri", "false"},
                   {"toolkit.version", "v1.20.0"},
                   {"driverManager.version", "v0.12.0"}},
                  node),
            List{});
  EXPECT_EQ(found({}), List{}) << "what is not known fits nothing";
}

TEST(compatibility, known_holes_are_found) {
  EXPECT_EQ(found({{"kubernetes", "v1.29.3"}}), List{"kubernetes"});
  EXPECT_EQ(found({{"nri", "true"}}, {{"runtime", "containerd"}, {"runtime.version", "2.0.5"}}),
            List{"nri-containerd"});
  EXPECT_EQ(found({{"nri", "true"}}, {{"runtime", "containerd"}, {"runtime.version", "1.7.30"}}), List{});
  EXPECT_EQ(found({{"nri", "true"}}, {{"runtime", "cri-o"}, {"runtime.version", "1.34.0"}}),
            List{"nri-crio"});
  EXPECT_EQ(found({{"driver.enabled", "true"}, {"driver.modules", "auto"}, {"driver.version", "535.309.01"}}),
            List{"modules-auto"});
  EXPECT_EQ(found({{"driver.enabled", "true"}, {"driver.version", "595.91.07"}}, {{"gpu", "Tesla-P40"}}),
            List{"driver-old-gpu"});
  EXPECT_EQ(found({{"driver.enabled", "true"}, {"driver.version", "580.105.08"}, {"driver.modules", "open"}},
                  {{"gpu", "Tesla-V100-SXM2-32GB"}}),
            List{"modules-old-gpu"});
  EXPECT_EQ(
      found({{"driver.enabled", "true"}, {"driver.modules", "proprietary"}, {"driver.version", "570.86.15"}},
            {{"gpu", "NVIDIA-B200"}}),
      (List{"modules-new-gpu", "driver-b200"}));
  EXPECT_EQ(found({{"gds.enabled", "true"}, {"gds.version", "2.29.4"}, {"driver.modules", "proprietary"}}),
            List{"gds-modules"});
  EXPECT_EQ(found({{"gds.enabled", "true"}, {"gds.version", "sha256:ab"}, {"driver.modules", "proprietary"}}),
            List{})
      << "a digest is no version";
  EXPECT_EQ(found({{"driver.enabled", "true"}, {"driver.precompiled", "true"}, {"driver.version", "580"}},
                  {{"os", "ubuntu"}, {"os.version", "24.04"}, {"kernel", "6.11.0-9-generic"}}),
            List{"precompiled-noble"});
}

TEST(compatibility, facts_come_from_labels_and_else_from_the_kubelet) {
  const Json node =
      *parse_json(R"x({"metadata":{"name":"n","labels":{"kubernetes.io/arch":"arm64"}},"status":{
      "nodeInfo":{"osImage":"Red Hat Enterprise Linux 9.4 (Plow)","kernelVersion":"5.14.0",
      "containerRuntimeVersion":"cri-o://1.34.0"}}})x");
  const CompatFacts facts = node_facts(node);
  EXPECT_EQ(facts.at("os"), "rhel");
  EXPECT_EQ(facts.at("os.version"), "9.4");
  EXPECT_EQ(facts.at("runtime"), "cri-o");
  EXPECT_EQ(facts.at("arch"), "arm64");
  const CompatFacts policy = policy_facts(*parse_json(
      R"({"driver":{"version":595,"manager":{"image":"k8s-driver-manager","version":"v0.12.0"}},
          "toolkit":{"image":"gpu-operator","version":"v0.1.0"},"cdi":{"nriPluginEnabled":true}})"));
  EXPECT_EQ(policy.at("driver.version"), "595");
  EXPECT_EQ(policy.at("nri"), "true");
  EXPECT_EQ(policy.at("driver.modules"), "auto");
  EXPECT_FALSE(policy.contains("toolkit.version")) << "our own image is no container toolkit";
}

// With NVIDIADriver resources the values' driver reaches the default one, or nothing where there is none.
TEST(compatibility, values_name_a_driver_only_where_it_is_deployed) {
  const auto facts = [](const std::string& crd) {
    return values_facts(
        *parse_json(R"({"driver":{"version":"550.1","usePrecompiled":true,"nvidiaDriverCRD":)" + crd +
                    R"(},"gds":{"enabled":true}})"));
  };
  for (const char* named : {R"({"enabled":false})", R"({"enabled":false,"deployDefaultCR":false})",
                            R"({"enabled":true,"deployDefaultCR":true})", R"({"enabled":true})"})
    EXPECT_EQ(facts(named).at("driver.version"), "550.1") << named;
  const CompatFacts none = facts(R"({"enabled":true,"deployDefaultCR":false})");
  for (const char* fact : {"driver.version", "driver.precompiled", "driver.modules", "gds.enabled"})
    EXPECT_FALSE(none.contains(fact)) << fact;
  EXPECT_EQ(none.at("driver.enabled"), "true");
  EXPECT_FALSE(
      policy_facts(*parse_json(R"({"driver":{"useNvidiaDriverCRD":true}})")).contains("driver.modules"));
}

TEST(compatibility, a_rule_that_is_wrong_is_named) {
  const auto why = [](const std::string& text) {
    const auto rules = Compatibility::parse(text, "f");
    return rules ? std::string() : rules.error().text();
  };
  EXPECT_NE(why("- {id: a, severity: error, when: {kubernetes: '< 1'}, says: x, sorce: y}")
                .find("rule 'a': unknown key 'sorce' (did you mean 'source'?)"),
            std::string::npos);
  EXPECT_NE(
      why("- {id: a, severity: error, when: {kubernetis: '< 1'}, says: x, source: y}").find("'kubernetis'"),
      std::string::npos);
  EXPECT_NE(why("- {id: a, severity: error, when: {kubernetes: '1.2'}, says: x, source: y}").find("'1.2'"),
            std::string::npos);
  EXPECT_NE(why("a: b").find("must be a list"), std::string::npos);
}

TEST(compatibility, many_nodes_are_counted) {
  CompatFinding finding{"r", true, {"a", "b", "c", "d", "e"}, "text", "source"};
  EXPECT_EQ(finding.line(), "r: nodes a, b, c and 2 more: text (source)");
}

}  // namespace
}  // namespace gpuop::fleet
