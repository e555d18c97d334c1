// What is said of an administrator's values file before helm is run.
#include "fleet/values.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "fleet/image_reference.h"
#include "fleet/own_images.h"
#include "fleet/value_schema.h"

namespace gpuop::fleet {
namespace {

std::vector<ValuesFinding> found(const std::vector<std::string>& files) {
  std::vector<YamlDocument> documents;
  for (const auto& yaml : files) {
    auto document = parse_yaml_one(yaml, "values.yaml");
    EXPECT_TRUE(document) << document.error().text();
    if (document) documents.push_back(std::move(*document));
  }
  return check_values(documents, chart_rules());
}

// "LINE KIND PATH: TEXT" a line; "FILE:LINE …" from the second file on.
std::string findings_of(const std::vector<std::string>& files) {
  std::string out;
  for (const auto& finding : found(files)) {
    static const char* const kWords[] = {"unknown", "duplicate", "no-effect", "refused", "broken"};
    if (finding.file > 0) out += std::to_string(finding.file) + ":";
    out += std::to_string(finding.line) + " " + kWords[static_cast<int>(finding.kind)] + " " + finding.path +
           ": " + finding.text + "\n";
  }
  return out;
}
std::string findings(const std::string& yaml) {
  return findings_of({yaml});
}

bool says(const std::string& yaml, const std::string& line) {
  const std::string all = findings(yaml);
  if (all.find(line) != std::string::npos) return true;
  ADD_FAILURE() << "wanted " << line << " in\n" << all;
  return false;
}

TEST(fleet_values, files_of_administrators_that_are_right_are_passed_in_silence) {
  const auto names = list_dir(fs::path(SOURCE_ROOT) / "tests/chart/values");
  ASSERT_TRUE(names);
  ASSERT_EQ(names->size(), 10u);
  for (const auto& name : *names) {
    // It asks for what our toolkit does not offer, and is told so.
    if (name.starts_with("09-nri")) continue;
    EXPECT_EQ(findings(*read_file(fs::path(SOURCE_ROOT) / "tests/chart/values" / name)), "") << name;
  }
}

TEST(fleet_values, unknown_keys_get_the_nearest_right_name) {
  says("driver:\n  verion: '1'\n",
       "2 unknown driver.verion: this chart has no such key; it does nothing (did you mean "
       "'driver.version'?)");
  says("dcgmexporter: {}\n", "did you mean 'dcgmExporter'?");
  says("upgradePolicy: {autoUpgrade: true}\n", "did you mean 'driver.upgradePolicy'?");
  says("sharing:\n  timeSlicing: {}\n",
       "1 unknown sharing: this chart has no such key; it does nothing; sharing is configured in "
       "devicePlugin.config\n");
  EXPECT_EQ(findings("daemonsets: {labels: {anything: goes}}\n"), "");
  EXPECT_EQ(findings("node-feature-discovery: {worker: {whatever: 1}}\n"), "");
}

TEST(fleet_values, keys_with_dots_and_empty_keys_are_shown_as_they_are) {
  EXPECT_EQ(
      findings("driver.upgradePolicy.autoUpgrade: true\n"),
      "1 unknown driver.upgradePolicy.autoUpgrade: is one key with dots in it, which does nothing; in a "
      "file each part is a key of its own: driver: {upgradePolicy: {autoUpgrade: …}}\n");
  says("a.b: 1\n", "unknown a.b: this chart has no such key");
  says("driver:\n  '': 1\n", "2 unknown driver.'': this chart has no such key");
}

TEST(fleet_values, duplicates_are_named_with_their_line) {
  says("driver: {enabled: true}\ntoolkit: {}\ndriver: {enabled: false}\n",
       "duplicate driver: is written twice");
}

TEST(fleet_values, wrong_types_are_refused_by_path) {
  says("driver:\n  enabled: 'true'\n",
       "2 refused driver.enabled: must be a boolean; got the string \"true\"");
  says("toolkit: {env: {A: b}}\n", "refused toolkit.env: must be a list; got the map");
  says("driver: {env: [{name: A, value: 1}]}\n",
       "refused driver.env[0].value: must be a string; got the integer 1");
  says("driver: {env: [null]}\n", "refused driver.env[0]: must be a map; got nothing\n");
  says("driver: {env: [{value: x}]}\n", "refused driver.env[0]: must have the key 'name'");
  says("mig: {strategy: mixd}\n",
       "refused mig.strategy: must be one of none, single, mixed; got mixd (did you mean 'mixed'?)");
  says("driver: {env: [{nmae: A}]}\n", "refused driver.env[0]: must have the key 'name'; it has 'nmae'");
  says("daemonsets: {labels: {a: 1}}\n", "refused daemonsets.labels.a: must be a string");
  EXPECT_EQ(findings("driver: {enabled: null}\n"), "");
  says("driver:\ncdi: {enabled: true}\n", "1 refused driver: is empty, which takes its defaults away");
  says("fleet: {startupTaint: {enabled: true, key: bad key}}\n",
       "refused fleet.startupTaint.key: must be a key such as nvidia.com/gpu; got \"bad key\"");
  EXPECT_EQ(findings("fleet: {dedicatedTaint: {enabled: true, key: example.com/gpu}}\n"), "");
}

TEST(fleet_values, values_that_do_nothing_or_something_else_are_explained) {
  says("operator:\n  defaultRuntime: containerd\n",
       "2 no-effect operator.defaultRuntime: 'containerd': nothing;");
  says("driver: {version: 570.10}\n", "no-effect driver.version: '570.1': reads 570.10 without quotes");
  says("devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: envvar}]}\n",
       "no-effect devicePlugin.env DEVICE_LIST_STRATEGY: 'envvar': hands GPUs");
  says("cdi: {nriPluginEnabled: true}\n",
       "no-effect cdi.nriPluginEnabled: 'true': keeps GPUs from every node");
  EXPECT_EQ(
      findings(
          "{cdi: {enabled: false}, devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: envvar}]}}\n"),
      "");
}

// A copy of upstream's old defaults is not told of what it does not ask for.
TEST(fleet_values, values_that_ask_for_nothing_else_than_what_is_are_passed_in_silence) {
  for (const char* quiet :
       {"operator: {initContainer: {}}\n", "psp: {enabled: false}\n",
        "cdi: {enabled: false, default: false}\n", "driver: {licensingConfig: {configMapName: ''}}\n",
        "toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: nvidia}]}\n",
        "{operator: {runtimeClass: n}, toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: n}]}}\n",
        "toolkit: {env: [{name: CONTAINERD_SET_AS_DEFAULT, value: 'false'}]}\n",
        "devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: 'cdi-cri,volume-mounts'}]}\n",
        "driver: {version: 550}\n", "kataManager: {enabled: false}\n", "vfioManager: {image: cuda}\n",
        "toolkit: {enabled: false, env: [{name: CONTAINERD_SET_AS_DEFAULT, value: 'true'}]}\n",
        "toolkit: {enabled: false, env: [{name: CONTAINERD_CONFIG, value: /c.toml.tmpl}]}\n",
        "devicePlugin: {enabled: false, env: [{name: PASS_DEVICE_SPECS, value: 'true'}]}\n"})
    EXPECT_EQ(findings(quiet), "") << quiet;
}

TEST(fleet_values, values_that_ask_for_more_than_they_get_are_explained) {
  says("driver: {useOpenKernelModules: true}\n", "Instead: driver.kernelModuleType: open\n");
  says("driver: {useOpenKernelModules: false}\n",
       "Instead: remove it, or driver.kernelModuleType=proprietary");
  says("psp: {enabled: true}\n", "no-effect psp.enabled: 'true': nothing");
  says("devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: volume-mounts}]}\n",
       "'volume-mounts': hands GPUs to pods by mounts");
  says("toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: other}]}\n",
       "names the runtime on the nodes otherwise than operator.runtimeClass");
  says("gds: {version: 2.20}\n", "no-effect gds.version: '2.2': reads 570.10 without quotes");
  says("hostPaths: {driverInstallDir: /}\n", "keeps every node from being validated");
  says("{sandboxWorkloads: {enabled: true}, vfioManager: {image: cuda}}\n",
       "vfioManager.image: 'cuda': has no");
  says("{sandboxWorkloads: {enabled: true}, vgpuManager: {enabled: true}}\n",
       "vgpuManager.enabled: 'true': runs an image of no registry");
  const Json spec =
      *parse_json(R"({"hostPaths":{"driverInstallDir":"/"},"operator":{"runtimeClass":"runc"}})");
  const auto told = check_policy_env(spec);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].path, "hostPaths.driverInstallDir");
  EXPECT_EQ(told[1].path, "operator.runtimeClass");
  EXPECT_EQ(told[1].kind, ValuesFinding::Kind::kRefused);
}

// Values of another chart, of an old one, and of one that has this as a part.
TEST(fleet_values, keys_that_are_not_the_chart_s_are_told_with_what_is_known_of_them) {
  says("gpu-operator: {driver: {enabled: false}}\n",
       "1 unknown gpu-operator: this chart has no such key; it does nothing; what lies below it belongs at "
       "the top");
  says("nodeSelector: {a: b}\n", "it does nothing; operands go where GPUs are");
  says("gfd: {securityContext: {}}\n",
       "unknown gfd.securityContext: this chart has no such key; it does nothing; "
       "each operand has what it needs\n");
  says("driver: {maxParallelUpgrades: 5}\n", "(did you mean 'driver.upgradePolicy.maxParallelUpgrades'?)");
  says("migManager: {default: all-balanced}\n", "(did you mean 'migManager.config.default'?)");
  EXPECT_EQ(findings("operator: {controller: {}}\n"),
            "1 unknown operator.controller: this chart has no such key; it does nothing\n");
}

TEST(fleet_values, images_of_what_is_switched_off_are_nobody_s_concern) {
  const std::string odd = "repository: 'r/\"\"', image: i, version: v";
  EXPECT_EQ(findings("vgpuManager: {enabled: false, " + odd + "}\n"), "");
  EXPECT_EQ(findings("vfioManager: {" + odd + "}\n"), "");
  EXPECT_EQ(findings("driver: {enabled: false, manager: {" + odd + "}}\n"), "");
  EXPECT_EQ(findings("draDriver: {" + odd + "}\n"), "");
  // Ignored, and named once.
  const std::string old = findings("operator: {initContainer: {repository: r, image: cuda}}\n");
  EXPECT_EQ(old,
            "1 no-effect operator.initContainer: nothing; no operand needs that image any more. Instead: "
            "remove it\n");
  says("gds: {enabled: true, " + odd + "}\n", "broken gds.repository: makes ");
  says("{sandboxWorkloads: {enabled: true}, vfioManager: {" + odd + "}}\n", "broken vfioManager.repository");
  says("driver: {version: ''}\n",
       "broken driver.version: is empty; the operator needs repository, image and");
}

// As the chart of old had it; helm leaves the map that is there.
TEST(fleet_values, feature_discovery_s_configuration_may_be_text) {
  EXPECT_EQ(findings("node-feature-discovery: {worker: {config: 'sources: {}'}}\n"), "");
}

TEST(fleet_values, objects_that_hold_values_are_none) {
  auto told = [](const std::string& yaml) { return no_values_file(parse_yaml_one(yaml, "f")->value); };
  EXPECT_EQ(told("{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, spec: {values: {}}}"),
            "is a HelmRelease, not a values file; give what is in spec.values alone");
  EXPECT_EQ(told("{apiVersion: v1, kind: ConfigMap}"), "is a ConfigMap, not a values file");
  EXPECT_EQ(told("driver: {enabled: false}"), "");
}

TEST(fleet_values, what_is_refused_is_told_once) {
  const std::string told = findings("toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: runc}]}\n");
  EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
}

TEST(fleet_values, images_that_are_none_are_told_before_the_operator_finds_them) {
  says("driver:\n  version: not a version!\n",
       "2 broken driver.version: makes 'nvcr.io/nvidia/driver:not a version!', which is not an image "
       "reference; the "
       "operator refuses it\n");
  says("toolkit: {repository: r, image: 'a b', version: c}\n", "broken toolkit.image: makes ");
  says("toolkit: {repository: 'http://x y', image: a, version: b}\n", "broken toolkit.repository: makes ");
  EXPECT_EQ(findings("driver: {version: 'sha256:0123abc'}\n"), "");
  EXPECT_EQ(findings("toolkit: {repository: 'registry.local:5000/a', image: b, version: v1.2_3-x}\n"), "");
  EXPECT_EQ(findings("toolkit: {repository: '', version: '', image: 'r/i:t'}\n"), "");
  EXPECT_FALSE(installable(found({"driver: {version: 'a b'}\n"})));
}

// What administrators' copies of upstream's defaults name, and what runs.
TEST(fleet_values, images_of_our_programs_are_found_from_upstream_s_names) {
  auto image = [](std::string_view key, const std::string& yaml) {
    const auto values = parse_yaml_one(yaml, "f");
    return own_image(chart_rules().images, key, values->value, "v0.1.0").reference();
  };
  const std::string ours = "ghcr.io/gpu-operator/gpu-operator:v0.1.0";
  EXPECT_EQ(image("toolkit", "{}"), ours);
  EXPECT_EQ(image("toolkit", "toolkit: {version: v1.17.5}"), "nvcr.io/nvidia/k8s/container-toolkit:v1.17.5");
  EXPECT_EQ(image("toolkit", "toolkit: {image: container-toolkit}"),
            "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0");
  EXPECT_EQ(image("toolkit", "toolkit: {repository: r}"), "r/gpu-operator:v0.1.0");
  EXPECT_EQ(image("toolkit", "toolkit: {version: v0.1.0}"), ours);
  EXPECT_EQ(image("toolkit", "toolkit: {repository: r, image: gpu-operator, version: v0.1.1}"),
            "r/gpu-operator:v0.1.1");
  EXPECT_EQ(image("toolkit", "toolkit: {repository: ghcr.io/gpu-operator, version: v0.1.1}"),
            "ghcr.io/gpu-operator/gpu-operator:v0.1.1");
  EXPECT_EQ(image("toolkit", "{operator: {repository: m}, toolkit: {}}"), "m/gpu-operator:v0.1.0");
  EXPECT_EQ(image("toolkit", "toolkit: {image: 'r/i:t'}"), "r/i:t");
  EXPECT_EQ(image("devicePlugin", "devicePlugin: {repository: nvcr.io/nvidia, version: v0.17.1}"),
            "nvcr.io/nvidia/k8s-device-plugin:v0.17.1");
  EXPECT_EQ(image("devicePlugin", "devicePlugin: {version: 'sha256:00'}"),
            "nvcr.io/nvidia/k8s-device-plugin@sha256:00");
  EXPECT_EQ(image("driver.manager", "driver: {manager: {version: v0.8.0}}"),
            "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.8.0");
  EXPECT_EQ(
      image("operator", "operator: {repository: nvcr.io/nvidia, image: gpu-operator, version: v25.3.0}"),
      ours);
  EXPECT_EQ(image("operator", "operator: {repository: m, version: v1.8.1}"), "m/gpu-operator:v0.1.0");
  EXPECT_EQ(image("operator", "operator: {repository: m, image: mine, version: v0.1.2}"), "m/mine:v0.1.2");
  EXPECT_EQ(image("validator",
                  "{operator: {repository: m}, validator: {repository: m/x, image: "
                  "gpu-operator-validator}}"),
            "m/gpu-operator:v0.1.0");
  EXPECT_EQ(image("validator", "validator: {repository: m, image: gpu-operator-validator, version: v24.9.0}"),
            "m/gpu-operator-validator:v24.9.0");
  EXPECT_EQ(image("gfd", "gfd: {repository: nvcr.io/nvidia, image: gpu-feature-discovery}"), ours);
  EXPECT_EQ(image("gfd", "gfd: {repository: m, image: gpu-feature-discovery, version: v0.8.2}"),
            "m/gpu-feature-discovery:v0.8.2");
}

TEST(fleet_values, upstream_s_names_that_cannot_serve_are_told_once) {
  EXPECT_EQ(findings("operator:\n  repository: nvcr.io/nvidia\n  image: gpu-operator\n"),
            "2 no-effect operator.repository: 'nvcr.io/nvidia': names upstream's program, which cannot serve "
            "this chart; ghcr.io/gpu-operator/gpu-operator:v0.1.0 runs in its place. Instead: leave "
            "repository, image and version out, or name a copy of that image\n");
  says("operator: {repository: m, version: v1.8.1}\n", "1 no-effect operator.version: 'v1.8.1': names");
  says("validator: {image: gpu-operator-validator}\n", "no-effect validator.image: 'gpu-operator-validator'");
  EXPECT_EQ(findings("nodeStatusExporter: {enabled: false, image: gpu-operator-validator}\n"), "");
  EXPECT_EQ(findings("toolkit: {version: v1.17.5-ubuntu20.04}\n"), "");
  EXPECT_EQ(findings("devicePlugin: {repository: nvcr.io/nvidia, version: v0.17.1}\n"), "");
  says("toolkit: {version: 'v 1'}\n",
       "broken toolkit.version: makes 'nvcr.io/nvidia/k8s/container-toolkit:v 1'");
}

TEST(fleet_values, what_is_an_image_reference) {
  for (const char* good : {"a", "a/b:c", "r:5000/a/b:1.2-x_y", "a@sha256:00ff", "a:t@sha256:00ff"})
    EXPECT_TRUE(is_image_reference(good)) << good;
  for (const char* bad : {"", "a:", "a b", "a/b:c d", "a//b", "a@md5:00", "a@sha256:", "a:-x", "a:.x", "/a"})
    EXPECT_FALSE(is_image_reference(bad)) << bad;
}

TEST(fleet_values, two_taints_with_one_key_are_one_taint) {
  const std::string both =
      "dedicatedTaint: {enabled: true}, startupTaint: {enabled: true, key: nvidia.com/gpu}";
  says("fleet: {" + both + "}\n",
       "1 no-effect fleet.startupTaint.key: 'nvidia.com/gpu': nothing beside the dedicated taint of the same "
       "key");
  EXPECT_EQ(findings("fleet: {dedicatedTaint: {enabled: true}, startupTaint: {enabled: true}}\n"), "");
  EXPECT_EQ(findings("fleet: {startupTaint: {enabled: true, key: nvidia.com/gpu}}\n"), "");
  const Json spec = *parse_json(
      R"({"fleet":{"dedicatedTaint":{"enabled":true,"key":"a/b"},"startupTaint":{"enabled":true,"key":"a/b"}}})");
  ASSERT_EQ(check_policy_env(spec).size(), 1u);
  EXPECT_EQ(check_policy_env(spec)[0].path, "fleet.startupTaint.key");
}

TEST(fleet_values, what_would_ruin_nodes_or_cannot_work_is_refused) {
  says("toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: runc}]}\n",
       "refused toolkit.env CONTAINERD_RUNTIME_CLASS: 'runc': would replace");
  says("toolkit: {env: [{name: CONTAINERD_CONFIG, value: etc/x}]}\n",
       "refused toolkit.env CONTAINERD_CONFIG: 'etc/x': must be an absolute path");
  says("toolkit: {env: [{name: RUNTIME_CONFIG, value: /c.toml.tmpl}]}\n", "is a template");
  says("{cdi: {nriPluginEnabled: true}, toolkit: {enabled: false}}\n", "refused cdi.nriPluginEnabled");
  says("gpuCluster: {deployCR: true}\n", "refused clusterPolicy.deployCR");
  says("devicePlugin: {config: {create: true, name: a}}\n", "refused devicePlugin.config.create");
  EXPECT_FALSE(installable(found({"gpuCluster: {deployCR: true}\n"})));
  EXPECT_TRUE(installable(found({"cdi: {default: true}\n"})));
}

TEST(fleet_values, a_misspelt_key_of_ours_is_refused_as_helm_refuses_it) {
  says("fleet:\n  startupTaint:\n    kay: a/b\n",
       "3 refused fleet.startupTaint.kay: is no key here (did you mean 'fleet.startupTaint.key'?)");
  says("fleet: {startTaint: {}}\n",
       "refused fleet.startTaint: is no key here (did you mean 'fleet.startupTaint'?)");
}

TEST(fleet_values, numbers_and_quantities_out_of_range_are_refused) {
  says("driver:\n  upgradePolicy:\n    maxParallelUpgrades: -1\n",
       "3 refused driver.upgradePolicy.maxParallelUpgrades: must be at least 0; got -1");
  says("driver: {startupProbe: {periodSeconds: 0}}\n",
       "refused driver.startupProbe.periodSeconds: must be at least 1");
  says("driver: {livenessProbe: {successThreshold: 2}}\n", "must be at most 1; got 2");
  says("driver: {resources: {limits: {cpu: abc}}}\n",
       "refused driver.resources.limits.cpu: must be a quantity such as 500m, 2 or 1Gi; got \"abc\"");
  says("toolkit: {resources: {limits: {memory: -1Gi}}}\n", "refused toolkit.resources.limits.memory");
  says("toolkit: {resources: {limits: {cpu: 0.5}}}\n", "must be a string or an integer");
  EXPECT_EQ(findings("operator: {resources: {requests: {cpu: 0.1}}}\n"), "");
  EXPECT_EQ(findings("toolkit: {resources: {limits: {cpu: 2, memory: 1.5Gi}, requests: {cpu: 500m}}}\n"), "");
  says("toolkit: {resources: {limits: {cpu: 1}, requests: {cpu: 2}}}\n",
       "broken toolkit.resources.requests.cpu: must be at most the limit, 1; got 2; the API server refuses "
       "it");
  says("toolkit: {resources: {limits: {memry: 1}}}\n", "(did you mean 'memory'?)");
  says("toolkit: {resources: {requests: {nvidia.com/gpu: 1}}}\n", "needs the same limit");
  says("daemonsets: {rollingUpdate: {maxUnavailable: 0}}\n",
       "refused daemonsets.rollingUpdate.maxUnavailable");
  says("daemonsets: {rollingUpdate: {maxUnavailable: 101%}}\n", "at most 100% and not 0; got \"101%\"");
  EXPECT_EQ(findings("daemonsets: {rollingUpdate: {maxUnavailable: 100%}}\n"), "");
  EXPECT_EQ(findings("driver: {upgradePolicy: {maxUnavailable: 0}, startupProbe: {periodSeconds: 3.0}}\n"),
            "");
}

TEST(fleet_values, what_the_api_server_refuses_is_refused_by_path) {
  says("daemonsets:\n  tolerations:\n    - {key: a, operator: Exist}\n",
       "3 refused daemonsets.tolerations[0].operator: must be one of Exists, Equal; got Exist (did you mean "
       "'Exists'?)");
  says("operator: {tolerations: [{key: a, effect: NoShedule}]}\n", "(did you mean 'NoSchedule'?)");
  says("daemonsets: {tolerations: [{operator: Equal}]}\n",
       "broken daemonsets.tolerations[0].operator: must be Exists where no key is given");
  says("daemonsets: {tolerations: [{key: a, operator: Exists, value: b}]}\n",
       "broken daemonsets.tolerations[0].value: must be empty with operator Exists");
  says("daemonsets: {tolerations: [{key: a, operator: Exists, tolerationSeconds: 3}]}\n",
       "broken daemonsets.tolerations[0].effect: must be NoExecute");
  says("daemonsets: {tolerations: [{key: a, opertor: Exists}]}\n",
       "unknown daemonsets.tolerations[0].opertor: is no key here; it does nothing (did you mean "
       "'operator'?)");
  says("daemonsets: {labels: {'bad key': x}}\n",
       "refused daemonsets.labels.bad key: the key must be a key such as");
  says("daemonsets: {labels: {a: 'bad value!'}}\n", "refused daemonsets.labels.a: must be a label's value");
  says("operator: {nodeSelector: {a: '-x'}}\n", "refused operator.nodeSelector.a: must be a label's value");
  says("dcgmExporter: {annotations: {'a b': x}}\n", "refused dcgmExporter.annotations.a b");
  EXPECT_EQ(findings("daemonsets: {annotations: {Example.com/Note: 'anything at all!'}}\n"), "");
  says("driver: {env: [{name: 'A=B', value: x}]}\n",
       "refused driver.env[0].name: must be the name of an environment");
  says("driver: {env: [{name: ''}]}\n", "refused driver.env[0].name");
  says("driver: {env: [{name: 1A, value: x}]}\n",
       "no-effect driver.env[0].name: '1A' is refused by Kubernetes before 1.32");
  says("operator: {imagePullPolicy: Allways}\n",
       "refused operator.imagePullPolicy: must be one of Always, IfNotPresent, Never; got Allways (did you "
       "mean 'Always'?)");
  says("driver: {imagePullPolicy: Allways}\n",
       "no-effect driver.imagePullPolicy: 'Allways' counts as IfNotPresent");
  says("dcgmExporter: {service: {type: ClusterIp}}\n", "(did you mean 'ClusterIP'?)");
  says("dcgmExporter: {serviceMonitor: {interval: 15 s}}\n", "must be a Prometheus duration");
  says("migManager: {config: {default: all-balanced}}\n", "must be one of all-disabled");
  says("operator: {runtimeClass: Nvidia}\n", "refused operator.runtimeClass");
  says("hostPaths: {driverInstallDir: run/nvidia}\n",
       "refused hostPaths.driverInstallDir: must be an absolute path");
  says("hostPaths: {driverInstallDir: /run/../etc}\n", "refused hostPaths.driverInstallDir");
  says("devicePlugin: {config: {create: true, name: a, data: {'a b': x}}}\n",
       "refused devicePlugin.config.data.a b");
  says("driver: {secretEnv: My_Secret}\n", "refused driver.secretEnv");
  says("driver: {upgradePolicy: {drain: {podSelector: 'a=b=c'}}}\n",
       "broken driver.upgradePolicy.drain.podSelector");
  says("daemonsets: {podSecurityContext: {seccompProfile: {type: Runtime}}}\n",
       "refused daemonsets.podSecurityContext.seccompProfile.type");
  says("operator: {logging: {level: verbose}}\n", "must be debug, info, warn, error, panic");
  says("node-feature-discovery: {worker: {tolerations: [{key: a, operator: Exist}]}}\n",
       "refused node-feature-discovery.worker.tolerations[0].operator");
}

TEST(fleet_values, extra_objects_are_objects) {
  says("extraObjects: ['5']\n", "broken extraObjects[0]: must be an object");
  says("extraObjects: ['a: [']\n", "broken extraObjects[0]: read 'extraObjects[0]': line 1");
  says("extraObjects: [{kind: ConfigMap}]\n", "broken extraObjects[0]: must have apiVersion and kind");
  says("extraObjects: [{apiVersion: v1, kind: ConfigMap}]\n",
       "broken extraObjects[0]: ConfigMap must have metadata.name");
  EXPECT_EQ(findings("extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, '{{ .x }}', "
                     "\"apiVersion: v1\\nkind: Secret\\nmetadata: {generateName: a-}\\n\"]\n"),
            "");
}

TEST(fleet_values, quoting_slips_get_their_cure) {
  says("driver: {enabled: 'true'}\n", "(write it without quotes)");
  says("dcgm: {hostPort: '5555'}\n", "(write it without quotes)");
  says("driver: {env: [{name: A, value: true}]}\n", "(put it in quotes)");
  says("ccManager: {defaultMode: on}\n", "put it in quotes");
}

// As with helm: the later of two files wins, and both are judged as one.
TEST(fleet_values, several_files_are_one_set_of_values) {
  EXPECT_EQ(findings_of({"driver: {enabled: 'x'}\n", "driver: {enabled: true}\n"}), "");
  EXPECT_EQ(findings_of({"mig: {strategy: mixed}\n", "mig: {strategy: null}\n"}), "");
  const std::string both = findings_of({"toolkit: {enabled: false}\n", "cdi:\n  nriPluginEnabled: true\n"});
  EXPECT_NE(both.find("1:2 refused cdi.nriPluginEnabled"), std::string::npos) << both;
}

TEST(fleet_values, affinity_is_checked_by_field) {
  const std::string node =
      "operator: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ";
  const auto requirement = [&](const std::string& one) {
    return findings_of({node + "{nodeSelectorTerms: [{matchExpressions: [" + one + "]}]}}}}"});
  };
  const auto says = [](const std::string& all, const std::string& part) {
    EXPECT_NE(all.find(part), std::string::npos) << all << "\nwanted: " << part;
  };
  EXPECT_EQ(requirement("{key: a/b, operator: In, values: ['']}"), "");
  EXPECT_EQ(requirement("{key: a/b, operator: Gt, values: ['3']}"), "");
  EXPECT_EQ(requirement("{key: a/b, operator: Exists}"), "");
  says(requirement("{key: a/b, operator: Exist}"), "did you mean 'Exists'?");
  says(requirement("{key: a/b, operator: In}"), "values: must not be empty with operator In");
  says(requirement("{key: a/b, operator: Exists, values: [x]}"),
       "values: must be empty with operator Exists");
  says(requirement("{key: a/b, operator: Lt, values: [x]}"), "values: must be one whole number");
  says(requirement("{key: a/b, operator: In, value: [x]}"), "(did you mean 'values'?)");
  says(findings_of({node + "[{matchExpressions: []}]}}}"}), "refused operator.affinity.nodeAffinity");
  const std::string pods =
      "operator: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: ";
  EXPECT_EQ(findings_of({pods + "[{weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, "
                                "labelSelector: {matchLabels: {app: gpu-operator}}}}]}}}"}),
            "");
  says(findings_of({pods + "[{weight: 101, podAffinityTerm: {topologyKey: a}}]}}}"}), "weight");
  says(findings_of({pods + "[{weight: 1, podAffinityTerm: {}}]}}}"}), "topologyKey");
  says(findings_of({"operator: {affinity: {podAffinty: {}}}"}),
       "did you mean 'operator.affinity.podAffinity'?");
}

// Both helm and we go by the same file: nothing in it may be beyond us.
TEST(fleet_values, every_keyword_of_the_schema_is_known) {
  EXPECT_EQ(foreign_keywords(chart_rules().schema), std::set<std::string>());
  EXPECT_EQ(foreign_keywords(*parse_json(R"({"properties":{"a":{"oneOf":[]}}})")),
            std::set<std::string>{"oneOf"});
}

TEST(fleet_values, the_list_of_keys_is_the_schema_s) {
  EXPECT_EQ(*read_file(fs::path(SOURCE_ROOT) / "deploy/chart/files/keys.txt"),
            keys_file(chart_rules().schema))
      << "run build/debug/bin/gpuop-generate";
}

}  // namespace
}  // namespace gpuop::fleet
