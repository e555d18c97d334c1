#include "policy/cluster_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "policy/crds.h"
#include "policy/schema.h"

namespace gpuop::policy {
namespace {

fs::path data(const std::string& name) {
  return fs::path(TEST_DATA) / "data" / name;
}

Json read_yaml(const fs::path& path) {
  Result<std::string> text = read_file(path);
  if (!text) throw std::runtime_error(text.error().text());
  Result<YamlDocument> document = parse_yaml_one(*text, path.string());
  if (!document) throw std::runtime_error(document.error().text());
  return document->value;
}

std::vector<fs::path> chart_policies() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(TEST_DATA) / "data"))
    if (entry.path().extension() == ".yaml" && !entry.path().string().contains("nvidiadriver"))
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// A policy with all required blocks and `spec` (YAML text) merged in at the top level.
Json policy_with(const std::string& spec) {
  Json object = parse_yaml_one(
                    "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: gpus}\nspec: "
                    "{operator: {}, daemonsets: "
                    "{}, driver: {}, toolkit: {}, devicePlugin: {}, dcgmExporter: {}, dcgm: {}, "
                    "nodeStatusExporter: {}, gfd: {}}",
                    "base")
                    .value()
                    .value;
  Json more = parse_yaml_one(spec, "more").value().value;
  for (const auto& [key, value] : more.get_object()) set(object, {"spec", key}, value);
  return object;
}

std::string error_of(const std::string& spec) {
  Result<ClusterPolicy> policy = parse_cluster_policy(policy_with(spec));
  return policy ? "no error" : policy.error().text();
}

std::vector<std::string> notes_of(const std::string& spec) {
  std::vector<std::string> texts;
  ClusterPolicy policy = parse_cluster_policy(policy_with(spec)).value();
  for (const Note& note : policy.notes) texts.push_back(note.text);
  return texts;
}

// Whether everything in `part` stands, equal, in `whole`.
void expect_within(const Json& part, const Json& whole, const std::string& path) {
  if (part.is_object()) {
    for (const auto& [key, value] : part.get_object()) {
      const Json* there = find(whole, {key});
      ASSERT_TRUE(there) << path << "." << key << " is gone";
      expect_within(value, *there, path + "." + str(key));
    }
  } else if (part.is_array()) {
    ASSERT_TRUE(whole.is_array()) << path;
    ASSERT_EQ(part.get_array().size(), whole.get_array().size()) << path;
    for (std::size_t i = 0; i < part.get_array().size(); ++i)
      expect_within(part.get_array()[i], whole.get_array()[i], path + "[]");
  } else {
    EXPECT_EQ(to_text(part), to_text(whole)) << path;
  }
}

TEST(policy, every_field_of_the_spec_is_declared) {
  std::vector<std::string> declared;
  list_paths(cluster_policy_spec_schema(), "spec", declared);
  std::set<std::string> once(declared.begin(), declared.end());
  EXPECT_EQ(once.size(), declared.size()) << "a field is declared twice";
  std::set<std::string> wanted;
  for (const std::string& line : split(read_file(data("clusterpolicy-fields.txt")).value(), '\n'))
    if (!line.empty()) wanted.insert(line);
  // Ours, beside upstream's (docs/install.md).
  for (const char* taint : {"startupTaint", "dedicatedTaint"}) {
    wanted.insert(std::string("spec.fleet.") + taint + ".enabled");
    wanted.insert(std::string("spec.fleet.") + taint + ".key");
  }
  EXPECT_EQ(once, wanted);
}

TEST(policy, policies_of_the_upstream_chart_are_taken_as_they_are) {
  std::vector<fs::path> files = chart_policies();
  ASSERT_EQ(files.size(), 10u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    Json object = read_yaml(file);
    Result<ClusterPolicy> policy = parse_cluster_policy(object);
    ASSERT_TRUE(policy) << policy.error().text();
    EXPECT_EQ(policy->name, "cluster-policy");
    for (const Note& note : policy->notes) ADD_FAILURE() << note.text;
    const Json& spec = *find(object, {"spec"});
    Json stored = stored_spec("ClusterPolicy", spec).value();
    expect_within(spec, stored, "spec");
    EXPECT_EQ(to_text(stored_spec("ClusterPolicy", stored).value()), to_text(stored))
        << "defaulting is not idempotent";
  }
}

TEST(policy, defaults_fill_blocks_that_are_there_and_no_others) {
  Json stored = stored_spec("ClusterPolicy",
                            parse_yaml_one("{driver: {upgradePolicy: {drain: {}}}, cdi: {}}", "x")->value)
                    .value();
  EXPECT_EQ(
      to_canonical_text(stored),
      R"({"cdi":{"default":false,"enabled":true,"nriPluginEnabled":false},"driver":{"kernelModuleType":"auto",)"
      R"("upgradePolicy":{"autoUpgrade":false,"drain":{"deleteEmptyDir":false,"enable":false,"force":false,)"
      R"("podSelector":"","timeoutSeconds":300},"maxParallelUpgrades":1,"maxUnavailable":"25%"}}})");
}

TEST(policy, what_is_left_out_has_the_value_that_the_controller_assumes) {
  ClusterPolicySpec spec = parse_cluster_policy(policy_with("{}")).value().spec;
  EXPECT_TRUE(spec.driver.enabled && spec.toolkit.enabled && spec.device_plugin.enabled &&
              spec.dcgm.enabled && spec.dcgm_exporter.enabled && spec.gfd.enabled &&
              spec.mig_manager.enabled && spec.cdi.enabled);
  EXPECT_FALSE(spec.node_status_exporter.enabled || spec.gds.enabled || spec.gdrcopy.enabled ||
               spec.sandbox_workloads.enabled || spec.vfio_manager.enabled || spec.vgpu_manager.enabled ||
               spec.cc_manager.enabled || spec.psa.enabled || spec.driver.licensing_config.nls_enabled);
  EXPECT_FALSE(spec.op.use_ocp_driver_toolkit.has_value());
  EXPECT_FALSE(spec.driver.upgrade_policy.has_value());
  EXPECT_EQ(spec.mig.strategy, "");
  EXPECT_EQ(spec.device_plugin.mps.root, "/run/nvidia/mps");
}

TEST(policy, values_reach_their_members) {
  ClusterPolicySpec spec =
      parse_cluster_policy(
          policy_with(
              "{operator: {runtimeClass: rc, use_ocp_driver_toolkit: false}, daemonsets: {tolerations: "
              "[{key: a, "
              "operator: Exists}], labels: {x: y}}, devicePlugin: {enabled: false, env: [{name: A, value: "
              "b}], args: "
              "[--x], resources: {limits: {cpu: 2, memory: 1Gi}}, config: {name: c, default: d}}, driver: "
              "{startupProbe: {periodSeconds: 7}, upgradePolicy: {maxUnavailable: 3}, imagePullSecrets: "
              "[s]}}"))
          .value()
          .spec;
  EXPECT_EQ(spec.op.runtime_class, "rc");
  EXPECT_EQ(spec.op.use_ocp_driver_toolkit, false);
  EXPECT_EQ(get_string(spec.daemonsets.tolerations[0], {"key"}), "a");
  EXPECT_EQ(spec.daemonsets.labels.at("x"), "y");
  EXPECT_FALSE(spec.device_plugin.enabled);
  EXPECT_EQ(spec.device_plugin.env, (std::vector<EnvVar>{{"A", "b"}}));
  EXPECT_EQ(spec.device_plugin.args, std::vector<std::string>{"--x"});
  EXPECT_EQ(get_string(spec.device_plugin.resources, {"limits", "memory"}), "1Gi");
  EXPECT_EQ(spec.device_plugin.config.default_config, "d");
  EXPECT_EQ(spec.driver.startup_probe->period_seconds, 7);
  EXPECT_EQ(to_text(spec.driver.upgrade_policy->max_unavailable), "3");
  EXPECT_EQ(spec.driver.upgrade_policy->drain.timeout_seconds, 300);
  EXPECT_EQ(spec.driver.image_pull_secrets, std::vector<std::string>{"s"});
}

TEST(policy, wrong_values_are_one_error_with_path_and_suggestion) {
  struct Case {
    std::string spec, error;
  };
  const Case cases[] = {
      {"{mig: {strategy: mixd}}",
       "spec.mig.strategy: must be one of none, single, mixed; got 'mixd' (did you mean 'mixed'?)"},
      {"{mig: {strategy: 3}}", "spec.mig.strategy: must be a string; got 3 (put it in quotes)"},
      {"{driver: {enabled: 'true'}}",
       "spec.driver.enabled: must be true or false; got the string \"true\" (write it without quotes)"},
      {"{driver: []}", "spec.driver: must be a map; got a list"},
      {"{driver: {env: {A: b}}}", "spec.driver.env: must be a list; got a map"},
      {"{driver: {env: [{value: b}]}}", "spec.driver.env[0].name: is required"},
      {"{gfd: {resources: {limits: {memory: 2Gib}}}}",
       "spec.gfd.resources.limits.memory: must be a quantity such as 500m or 2Gi; got the string \"2Gib\""},
      {"{driver: {startupProbe: {periodSeconds: 0}}}",
       "spec.driver.startupProbe.periodSeconds: must be at least 1; got 0"},
      {"{driver: {startupProbe: {periodSeconds: 99999999999}}}",
       "spec.driver.startupProbe.periodSeconds: must be at most 2147483647; got 99999999999"},
      {"{driver: {startupProbe: {periodSeconds: 1.5}}}",
       "spec.driver.startupProbe.periodSeconds: must be a whole number; got 1.5E0"},
      {"{toolkit: {image: '@@'}}", "spec.toolkit.image: must hold a letter, a digit or '-'; got '@@'"},
      {"{dcgmExporter: {serviceMonitor: {interval: 15}}}",
       "spec.dcgmExporter.serviceMonitor.interval: must be a string; got 15 (put it in quotes)"},
      {"{dcgmExporter: {serviceMonitor: {interval: fast}}}",
       "spec.dcgmExporter.serviceMonitor.interval: must be a Prometheus duration such as 15s or 1m30s; got "
       "'fast'"},
      {"{gfd: null}", "spec.gfd: is required (an empty block {} will do)"},
      {"{gfd: null, gfdd: {}}",
       "spec.gfd: is required (an empty block {} will do); spec.gfdd: unknown field, has no effect (did you "
       "mean 'gfd'?)"},
      {"{mig: {strategy: both}, driver: {kernelModuleType: closed}}",
       "spec.driver.kernelModuleType: must be one of auto, open, proprietary; got 'closed' (and 1 more)"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of(c.spec), "load ClusterPolicy 'gpus': " + c.error) << c.spec;
}

TEST(policy, unknown_and_deprecated_fields_are_taken_and_named) {
  EXPECT_EQ(notes_of("{driver: {versoin: '1', rdma: {enable: true}}, bogus: {a: 1}}"),
            (std::vector<std::string>{
                "spec.driver.versoin: unknown field, has no effect (did you mean 'version'?)",
                "spec.driver.rdma.enable: unknown field, has no effect (did you mean 'enabled'?)",
                "spec.bogus: unknown field, has no effect"}));
  EXPECT_EQ(
      notes_of("{operator: {defaultRuntime: docker}, cdi: {default: true}, kataManager: {enabled: true}}"),
      (std::vector<std::string>{"spec.operator.defaultRuntime: deprecated, ignored; the runtime is detected",
                                "spec.cdi.default: deprecated, ignored",
                                "spec.kataManager: deprecated, ignored; install Kata Containers itself"}));
  EXPECT_TRUE(
      notes_of("{psp: {enabled: false}, kataManager: {enabled: false, image: x}, cdi: {default: false}}")
          .empty());
  // A block that is off where nothing is said, with its defaults, as the policies of catalogs have it.
  EXPECT_TRUE(
      notes_of("{kataManager: {config: {artifactsDir: /opt/a}}, operator: {initContainer: {}}}").empty());
  EXPECT_EQ(notes_of("{operator: {initContainer: {version: '1'}}}"),
            (std::vector<std::string>{"spec.operator.initContainer: deprecated, ignored"}));
}

TEST(policy, nulls_count_as_absent) {
  EXPECT_EQ(error_of("{mig: {strategy: null}, driver: {upgradePolicy: null, env: null}}"), "no error");
}

TEST(policy, nri_needs_cdi_and_toolkit) {
  auto checked = [](const std::string& spec) {
    Result<> done = check(parse_cluster_policy(policy_with(spec)).value().spec);
    return done ? "" : done.error().text();
  };
  EXPECT_EQ(checked("{cdi: {enabled: false, nriPluginEnabled: true}}"),
            "the NRI Plugin cannot be enabled when CDI is disabled");
  EXPECT_EQ(checked("{cdi: {nriPluginEnabled: true}, toolkit: {enabled: false}}"),
            "the NRI Plugin cannot be enabled when the Container Toolkit is disabled");
  EXPECT_EQ(checked("{cdi: {nriPluginEnabled: true}}"), "");
  EXPECT_EQ(checked("{cdi: {enabled: false}, toolkit: {enabled: false}}"), "");
}

TEST(policy, durations_and_image_names) {
  for (std::string_view good : {"0", "", "15s", "1m30s", "1y2w3d4h5m6s7ms", "5ms"})
    EXPECT_TRUE(matches_duration(good)) << good;
  for (std::string_view bad : {"15", "s", "30s1m", "1 s", "1x", "-1s"})
    EXPECT_FALSE(matches_duration(bad)) << bad;
  EXPECT_TRUE(matches_image_name("nvcr.io/nvidia/driver:1"));
  EXPECT_FALSE(matches_image_name_whole("a/b"));
}

TEST(policy, generated_files_are_as_the_declarations_make_them) {
  std::vector<GeneratedFile> files = generated_files();
  EXPECT_FALSE(files.empty());
  for (const GeneratedFile& file : files) {
    Result<std::string> there = read_file(fs::path(SOURCE_ROOT) / file.path);
    ASSERT_TRUE(there) << there.error().text();
    EXPECT_TRUE(*there == file.content) << file.path << " is out of date: run build/debug/bin/gpuop-generate";
  }
}

TEST(policy, crd_says_what_the_api_server_needs) {
  Json crd = crds().at(0);
  const Json& version = get_array(crd, {"spec", "versions"}).at(0);
  EXPECT_TRUE(has(version, {"subresources", "status"}));
  EXPECT_EQ(get_array(version, {"additionalPrinterColumns"}).size(), 2u);
  Keys spec_keys = {"schema", "openAPIV3Schema", "properties", "spec"};
  const Json& spec = *find(version, spec_keys);
  EXPECT_EQ(get_array(spec, {"required"}).size(), 9u);
  const Json& limits = *find(
      spec, {"properties", "gfd", "properties", "resources", "properties", "limits", "additionalProperties"});
  EXPECT_TRUE(get_bool(limits, {"x-kubernetes-int-or-string"}));
  const Json& conditions =
      *find(version, {"schema", "openAPIV3Schema", "properties", "status", "properties", "conditions"});
  EXPECT_EQ(get_string(conditions, {"x-kubernetes-list-type"}), "map");
  EXPECT_EQ(get_string(*find(spec, {"properties", "mig", "properties", "strategy"}), {"type"}), "string");
}

}  // namespace
}  // namespace gpuop::policy
