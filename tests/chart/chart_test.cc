// The Helm chart, rendered by real helm: values as administrators write them give the policies that the
// upstream chart gives, wrong types are refused by name, and what has no effect is said.
#include <gtest/gtest.h>

#include <set>

#include "../json_differences.h"
#include "base/text.h"
#include "helm.h"

namespace gpuop {
namespace {

// Paths where the two differ, with both values.
std::vector<std::string> differences(const Json& ours, const Json& theirs) {
  std::vector<JsonDifference> found;
  json_differences(ours, theirs, "", found);
  std::vector<std::string> out;
  for (const auto& one : found)
    out.push_back(one.path + " " + (one.left ? to_text(*one.left) : "-") + " / " +
                  (one.right ? to_text(*one.right) : "-"));
  return out;
}

// What our policy has otherwise than upstream's, each with its reason.
bool expected_difference(const std::string& line) {
  const std::string path = line.substr(0, line.find(' '));
  if (path.ends_with(".repository") || path.ends_with(".image") || path.ends_with(".version")) {
    return line.find("ghcr.io/gpu-operator") != std::string::npos ||  // our image is the default
           line.find("\"registry.internal:5000/gpu\" / \"nvcr.io/") !=
               std::string::npos ||  // as the operator's
           line.find("\"gpu-operator\"") != std::string::npos ||
           line.find("\"v0.") != std::string::npos;
  }
  static const std::set<std::string> kLines = {
      R"(.daemonsets.labels.helm.sh/chart "gpu-operator-v0.1.0" / "gpu-operator-v26.7.0")",
      R"(.devicePlugin.mps {"root":"/run/nvidia/mps"} / -)",  // upstream's chart never writes it
      R"(.operator.use_ocp_driver_toolkit false / -)",        // left out, it means true on OpenShift
      R"(.kataManager.imagePullPolicy - / "IfNotPresent")",   // of a manager that nothing deploys
      R"(.dcgmExporter.enablePodLabels false / -)",           // the same, said
      R"(.dcgmExporter.enablePodUID false / -)",
      R"(.dcgmExporter.hostPID false / -)",
      R"(.imagePullPolicy "IfNotPresent" / -)",  // of the NVIDIADriver: upstream's chart drops it
      R"(.manager.env - / [])",
  };
  return kLines.contains(line);
}

void expect_same(const Json& ours, const Json& theirs) {
  for (const auto& line : differences(ours, theirs)) EXPECT_TRUE(expected_difference(line)) << line;
}

Json upstream(const std::string& name) {
  const fs::path file = fs::path(SOURCE_ROOT) / "tests/policy/data" / (name + ".yaml");
  const auto text = read_file(file);
  EXPECT_TRUE(text) << text.error().text();
  auto documents = parse_yaml(*text, file.string());
  EXPECT_TRUE(documents) << documents.error().text();
  return documents->front().value;
}

class ChartValues : public ::testing::TestWithParam<std::string> {};

TEST_P(ChartValues, render_the_policy_that_upstream_renders) {
  const auto values = read_file(fs::path(TEST_DATA) / "values" / (GetParam() + ".yaml"));
  ASSERT_TRUE(values);
  const auto objects = rendered(*values);
  expect_same(*find(only(objects, "ClusterPolicy"), {"spec"}), *find(upstream(GetParam()), {"spec"}));
  if (GetParam() == "08-driver-crd") {
    expect_same(*find(only(objects, "NVIDIADriver"), {"spec"}),
                *find(upstream("08-driver-crd-nvidiadriver"), {"spec"}));
  }
  // The names under which node feature discovery is found again by an upgrade from upstream's chart.
  only(objects, "DaemonSet", "gpu-operator-node-feature-discovery-worker");
  only(objects, "ConfigMap", "gpu-operator-node-feature-discovery-worker-conf");
  only(objects, "ConfigMap", "gpu-operator-node-feature-discovery-master-conf");
  only(objects, "ServiceAccount", "node-feature-discovery");
}
INSTANTIATE_TEST_SUITE_P(chart, ChartValues,
                         ::testing::Values("01-defaults", "02-preinstalled-driver", "03-time-slicing",
                                           "04-mig-mixed", "05-air-gapped", "06-vm-workloads", "07-rdma-gds",
                                           "08-driver-crd", "09-nri-monitoring", "10-openshift"));

TEST(chart, values_that_upstream_s_chart_loses_reach_the_policy) {
  const auto objects = rendered(R"(
driver: {upgradePolicy: {maxUnavailable: 0}, manager: {imagePullSecrets: [a]}}
toolkit: {args: [--x]}
daemonsets: {podSecurityContext: {seccompProfile: {type: RuntimeDefault}}}
devicePlugin: {mps: {root: /srv/mps}}
vfioManager: {driverManager: {imagePullSecrets: [b]}}
)");
  const Json policy = only(objects, "ClusterPolicy");
  auto text = [&](Keys keys) {
    const Json* found = find(policy, keys);
    return found ? to_text(*found) : std::string("-");
  };
  EXPECT_EQ(text({"spec", "driver", "upgradePolicy", "maxUnavailable"}), "0");
  EXPECT_EQ(text({"spec", "driver", "manager", "imagePullSecrets"}), R"(["a"])");
  EXPECT_EQ(text({"spec", "toolkit", "args"}), R"(["--x"])");
  EXPECT_EQ(text({"spec", "daemonsets", "podSecurityContext", "seccompProfile", "type"}),
            R"("RuntimeDefault")");
  EXPECT_EQ(text({"spec", "devicePlugin", "mps", "root"}), R"("/srv/mps")");
  EXPECT_EQ(text({"spec", "vfioManager", "driverManager", "imagePullSecrets"}), R"(["b"])");
  EXPECT_EQ(text({"spec", "operator", "use_ocp_driver_toolkit"}), "false");
}

// Values as administrators copy them from upstream's defaults: each operand gets an image that exists.
TEST(chart, upstream_s_names_of_images_become_images_that_exist) {
  const auto objects = rendered(R"(
operator: {repository: nvcr.io/nvidia, image: gpu-operator, version: v25.3.0}
validator: {repository: nvcr.io/nvidia/cloud-native, image: gpu-operator-validator}
toolkit: {version: v1.17.5-ubuntu20.04}
devicePlugin: {repository: nvcr.io/nvidia, version: v0.17.1}
gfd: {repository: mirror.local, image: gpu-feature-discovery}
dcgmExporter: {repository: mirror.local}
driver: {manager: {version: v0.8.0}}
node-feature-discovery: {image: {repository: mirror.local/node-feature-discovery}}
)");
  const Json policy = only(objects, "ClusterPolicy");
  auto image = [&](std::vector<std::string> keys) {
    const Json* at = find(policy, {"spec"});
    for (const auto& key : keys) at = find(*at, {key});
    return str(get_string(*at, {"repository"})) + "/" + str(get_string(*at, {"image"})) + ":" +
           str(get_string(*at, {"version"}));
  };
  const std::string ours = "ghcr.io/gpu-operator/gpu-operator:v0.1.0";
  EXPECT_EQ(image({"validator"}), ours);
  EXPECT_EQ(image({"toolkit"}), "nvcr.io/nvidia/k8s/container-toolkit:v1.17.5-ubuntu20.04");
  EXPECT_EQ(image({"devicePlugin"}), "nvcr.io/nvidia/k8s-device-plugin:v0.17.1");
  EXPECT_EQ(image({"gfd"}), ours);
  EXPECT_EQ(image({"dcgmExporter"}), "mirror.local/gpu-operator:v0.1.0");
  EXPECT_EQ(image({"driver", "manager"}), "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.8.0");
  const Json operators = only(objects, "Deployment", "gpu-operator");
  const auto& containers = get_array(operators, {"spec", "template", "spec", "containers"});
  EXPECT_EQ(get_string(containers[0], {"image"}), ours);
  const Json worker = only(objects, "DaemonSet", "gpu-operator-node-feature-discovery-worker");
  const auto& workers = get_array(worker, {"spec", "template", "spec", "containers"});
  EXPECT_EQ(get_string(workers[0], {"image"}), "mirror.local/node-feature-discovery:v0.19.0");
}

// A registry named for the operator alone serves whatever else runs its image.
TEST(chart, the_operator_s_image_is_that_of_operands_and_of_feature_discovery) {
  const auto objects = rendered("operator: {repository: mirror.local/gpu}");
  const Json policy = only(objects, "ClusterPolicy");
  EXPECT_EQ(get_string(policy, {"spec", "toolkit", "repository"}), "mirror.local/gpu");
  const Json worker = only(objects, "DaemonSet", "gpu-operator-node-feature-discovery-worker");
  const auto& workers = get_array(worker, {"spec", "template", "spec", "containers"});
  EXPECT_EQ(get_string(workers[0], {"image"}), "mirror.local/gpu/gpu-operator:v0.1.0");
}

// Policies that name no images, as those do that were written for an operator from a catalog: whatever
// variable the operator asks for, chart and plain manifests set. (NVIDIA publishes no vGPU manager.)
TEST(chart, the_operator_is_told_an_image_for_every_operand) {
  std::set<std::string> asked;
  const fs::path sources = fs::path(SOURCE_ROOT) / "src/operator";
  const auto files = list_dir(sources);
  ASSERT_TRUE(files);
  for (const auto& file : *files) {
    if (!file.ends_with(".cc")) continue;
    const std::string text = *read_file(sources / file);
    for (std::size_t at = text.find("_IMAGE\""); at != std::string::npos;
         at = text.find("_IMAGE\"", at + 1)) {
      const std::size_t quote = text.rfind('"', at);
      const std::string name = text.substr(quote + 1, at + 6 - quote - 1);
      if (std::ranges::all_of(name, [](char c) { return c == '_' || (c >= 'A' && c <= 'Z'); }))
        asked.insert(name);
    }
  }
  ASSERT_TRUE(asked.contains("DRIVER_IMAGE"));
  asked.erase("VGPU_MANAGER_IMAGE");
  const fs::path plain = fs::path(SOURCE_ROOT) / "deploy/manifests/30-operator.yaml";
  const auto manifests = parse_yaml(*read_file(plain), plain.string());
  ASSERT_TRUE(manifests);
  auto told = [](const Json& deployment) {
    std::map<std::string, std::string> out;
    const auto& containers = get_array(deployment, {"spec", "template", "spec", "containers"});
    EXPECT_FALSE(containers.empty()) << to_text(deployment);
    for (const auto& variable : get_array(containers.at(0), {"env"})) {
      if (get_string(variable, {"name"}).ends_with("_IMAGE"))
        out[str(get_string(variable, {"name"}))] = str(get_string(variable, {"value"}));
    }
    return out;
  };
  const auto chart = told(only(rendered("{}"), "Deployment", "gpu-operator"));
  EXPECT_EQ(chart, told(manifests->back().value));
  for (const auto& name : asked) EXPECT_TRUE(chart.contains(name)) << name;
  const auto mirrored =
      told(only(rendered("driver: {repository: m, version: '1'}"), "Deployment", "gpu-operator"));
  EXPECT_EQ(mirrored.at("DRIVER_IMAGE"), "m/driver:1");
}

TEST(chart, notes_tell_what_is_known_of_keys_that_are_not_the_chart_s) {
  const auto ran = helm({"install", "--dry-run=client"}, R"(
gpu-operator: {driver: {enabled: false}}
nodeSelector: {a: b}
sriovDevicePlugin: {deploy: true}
driver: {securityContext: {}, maxParallelUpgrades: 5}
operator: {controller: {}}
migManager: {default: all-balanced}
)");
  ASSERT_EQ(ran.code, 0) << ran.out;
  for (const char* line :
       {"  gpu-operator: what lies below it", "  nodeSelector: operands go where GPUs are",
        "  sriovDevicePlugin\n", "  driver.securityContext: each operand has what it needs\n",
        "driver.maxParallelUpgrades (did you mean driver.upgradePolicy.maxParallelUpgrades?)",
        "  operator.controller\n", "migManager.default (did you mean migManager.config.default?)"})
    EXPECT_NE(ran.out.find(line), std::string::npos) << line << "\n" << ran.out;
}

// What the custom resource has only as text, and ignores, is not passed on as a map that it would refuse; a
// version that nobody named is not made up.
TEST(chart, values_that_the_custom_resource_would_refuse_are_left_out) {
  const Json policy = only(rendered(R"(
operator: {initContainer: {image: {repository: a, tag: b}, version: c}}
vgpuManager: {repository: mirror.local}
driver: {version: null}
)"),
                           "ClusterPolicy");
  EXPECT_EQ(to_text(*find(policy, {"spec", "operator", "initContainer"})), R"({"version":"c"})");
  EXPECT_FALSE(has(policy, {"spec", "vgpuManager", "version"}));
  EXPECT_FALSE(has(policy, {"spec", "driver", "version"}));
}

TEST(chart, notes_name_images_that_run_in_place_of_upstream_s) {
  const auto ran = helm({"install", "--dry-run=client"}, "operator: {repository: nvcr.io/nvidia}");
  ASSERT_EQ(ran.code, 0) << ran.out;
  EXPECT_NE(ran.out.find("operator.repository (nvcr.io/nvidia): names upstream's program"), std::string::npos)
      << ran.out;
}

TEST(chart, notes_say_whose_images_serve_virtual_machines) {
  const auto with = helm({"install", "--dry-run=client"}, "sandboxWorkloads: {enabled: true}");
  ASSERT_EQ(with.code, 0) << with.out;
  EXPECT_NE(with.out.find("What serves them runs NVIDIA's images in this version"), std::string::npos)
      << with.out;
  const auto without = helm({"install", "--dry-run=client"}, "{}");
  ASSERT_EQ(without.code, 0) << without.out;
  EXPECT_EQ(without.out.find("Virtual machines:"), std::string::npos) << without.out;
}

TEST(chart, refusals_name_the_key) {
  struct Refusal {
    std::string values;
    std::string says;
  };
  const std::vector<Refusal> wrong = {
      {R"(driver: {enabled: "true"})", "/driver/enabled"},
      {"driver: []", "'/driver'"},
      {"toolkit: {env: {A: b}}", "/toolkit/env"},
      {"driver: {env: [{name: A, value: 1}]}", "/driver/env/0/value"},
      {"mig: {strategy: both}", "/mig/strategy"},
      {"driver: {startupProbe: {periodSeconds: x}}", "/driver/startupProbe/periodSeconds"},
      {"toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: runc}]}", "CONTAINERD_RUNTIME_CLASS"},
      {"toolkit: {env: [{name: CONTAINERD_CONFIG, value: etc/x}]}", "must be an absolute path"},
      {"toolkit: {env: [{name: CONTAINERD_CONFIG, value: /etc/containerd/config.toml.tmpl}]}", "template"},
      {"cdi: {enabled: false, nriPluginEnabled: true}", "cdi.nriPluginEnabled"},
      {"{cdi: {nriPluginEnabled: true}, toolkit: {enabled: false}}", "toolkit.enabled"},
      {"devicePlugin: {config: {create: true}}", "devicePlugin.config.name"},
      {"devicePlugin: {config: {create: true, name: a}}", "devicePlugin.config.data"},
      {"gpuCluster: {deployCR: true}", "clusterPolicy.deployCR"},
      {"{clusterPolicy: {deployCR: false}, gpuCluster: {deployCR: true}}", "gpuCluster.deployCR"},
      {"driver: {nvidiaDriverCRD: {enabled: true, nodeSelector: {a: b}}}", "nvidiaDriverCRD.nodeSelector"}};
  std::vector<std::string> values;
  for (const auto& one : wrong) values.push_back(one.values);
  const auto said = refusals(values);
  for (std::size_t i = 0; i < wrong.size(); ++i)
    EXPECT_NE(said[i].find(wrong[i].says), std::string::npos) << wrong[i].values << "\n" << said[i];
}

TEST(chart, notes_name_dead_and_misspelt_values) {
  const auto ran = helm({"install", "--dry-run=client"}, R"(
operator: {defaultRuntime: containerd}
cdi: {default: true}
driver: {version: 570.10, verion: "1"}
toolkit: {env: [{name: CONTAINERD_SET_AS_DEFAULT, value: "true"}]}
devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: envvar}]}
sharing: {timeSlicing: {}}
dcgmexporter: {enabled: true}
)");
  ASSERT_EQ(ran.code, 0) << ran.out;
  for (const char* line :
       {"driver.verion (did you mean driver.version?)", "dcgmexporter (did you mean dcgmExporter?)",
        "  sharing: sharing is configured in devicePlugin.config\n",
        "operator.defaultRuntime (containerd): nothing", "cdi.default (true): nothing",
        "toolkit.env CONTAINERD_SET_AS_DEFAULT (true)", "devicePlugin.env DEVICE_LIST_STRATEGY (envvar)",
        "driver.version (570.1): reads 570.10"}) {
    EXPECT_NE(ran.out.find(line), std::string::npos) << line << "\n" << ran.out;
  }
  const auto quiet = helm({"install", "--dry-run=client"}, "{}");
  EXPECT_EQ(quiet.out.find("no effect"), std::string::npos) << quiet.out;
  EXPECT_EQ(quiet.out.find("may seem to"), std::string::npos) << quiet.out;
}

// case 40 of operator.md; refusals_name_the_key has the rest.
TEST(chart, case40_two_policies_and_empty_plugin_configurations_fail_to_render) {
  EXPECT_NE(helm({"template"}, "{clusterPolicy: {deployCR: true}, gpuCluster: {deployCR: true}}").code, 0);
  const auto empty = helm({"template"}, "devicePlugin: {config: {create: true, name: sharing, data: {}}}");
  EXPECT_NE(empty.code, 0);
  EXPECT_NE(empty.out.find("devicePlugin.config.data"), std::string::npos) << empty.out;
}

// `kubectl apply -k deploy` brings every definition and every object of the plain manifests, but the rule
// whose kind must be there first.
TEST(chart, kustomization_holds_definitions_and_manifests) {
  Command command;
  command.argv = {(helm_path().parent_path() / "kubectl").string(), "kustomize",
                  (fs::path(SOURCE_ROOT) / "deploy").string()};
  command.merge_output = true;
  const auto ran = run_command(command, 30s);
  ASSERT_TRUE(ran) << ran.error().text();
  ASSERT_EQ(ran->code, 0) << ran->out;
  auto documents = parse_yaml(ran->out, "kubectl kustomize");
  ASSERT_TRUE(documents) << documents.error().text();
  std::multiset<std::string> built;
  for (const auto& document : *documents)
    built.insert(str(get_string(document.value, {"kind"})) + "/" +
                 str(get_string(document.value, {"metadata", "name"})));
  std::multiset<std::string> wanted;
  for (const char* folder : {"deploy/chart/crds", "deploy/manifests"}) {
    const fs::path dir = fs::path(SOURCE_ROOT) / folder;
    const auto files = list_dir(dir);
    ASSERT_TRUE(files);
    for (const auto& file : *files) {
      if (file == "40-gpu-rule.yaml") continue;
      auto parts = parse_yaml(*read_file(dir / file), file);
      ASSERT_TRUE(parts) << parts.error().text();
      for (const auto& part : *parts)
        wanted.insert(str(get_string(part.value, {"kind"})) + "/" +
                      str(get_string(part.value, {"metadata", "name"})));
    }
  }
  EXPECT_EQ(built, wanted);
}

// The plain manifests grant what the chart grants.
TEST(chart, rules_equal_those_of_the_plain_manifests) {
  const auto objects = rendered("{}");
  const fs::path file = fs::path(SOURCE_ROOT) / "deploy/manifests/10-operator-rbac.yaml";
  const auto text = read_file(file);
  ASSERT_TRUE(text);
  auto documents = parse_yaml(*text, file.string());
  ASSERT_TRUE(documents);
  for (const auto& document : *documents) {
    const Json* rules = find(document.value, {"rules"});
    if (!rules) continue;
    const Json ours =
        only(objects, get_string(document.value, {"kind"}), get_string(document.value, {"metadata", "name"}));
    EXPECT_EQ(differences(*find(ours, {"rules"}), *rules), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace gpuop
