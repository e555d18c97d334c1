// Acceptance cases of operator.md and operands-driver-validator.md that rendering decides.
#include "operator/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "operator/digest.h"
#include "operator/pod.h"
#include "operator/wake.h"
#include "render_fixture.h"

namespace gpuop::op {
namespace {

const Assets& assets() {
  static const Assets loaded = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  return loaded;
}

// One rendered cluster and short ways to look at it.
struct Rendered {
  Plan plan;

  Rendered(const std::string& changes, const ClusterFacts& facts = facts_of_cases())
      : plan(render(policy_with(changes), facts, assets())) {}

  const State& state(std::string_view name) const { return *find_state(plan, name); }
  std::string error(std::string_view name) const {
    return state(name).error ? state(name).error->text() : "";
  }
  const Json& object(std::string_view kind, std::string_view name) const {
    static const Json none;
    for (const State& state : plan.states)
      for (const Json& object : state.objects)
        if (get_string(object, {"kind"}) == kind && get_string(object, {"metadata", "name"}) == name)
          return object;
    return none;
  }
  bool has_object(std::string_view kind, std::string_view name) const {
    return object(kind, name).is_object();
  }
  const Json& pod(std::string_view daemonset) const { return pod_spec(object("DaemonSet", daemonset)); }
  const Json& container(std::string_view daemonset, std::string_view name) const {
    static const Json none;
    const Json* found = find_container(pod(daemonset), name);
    return found ? *found : none;
  }
  std::string image(std::string_view daemonset, std::string_view name) const {
    return str(get_string(container(daemonset, name), {"image"}));
  }
  std::string env(std::string_view daemonset, std::string_view name, std::string_view variable) const {
    return env_value(container(daemonset, name), variable);
  }
  std::string digest() const {
    return env("nvidia-driver-daemonset", "nvidia-driver-ctr", "DRIVER_CONFIG_DIGEST");
  }
  std::vector<std::string> daemonsets() const {
    std::vector<std::string> names;
    for (const State& state : plan.states)
      for (const Json& object : state.objects)
        if (get_string(object, {"kind"}) == "DaemonSet")
          names.push_back(str(get_string(object, {"metadata", "name"})));
    return names;
  }
};

std::string host_path(const Json& pod, std::string_view volume) {
  for (const Json& each : get_array(pod, {"volumes"}))
    if (get_string(each, {"name"}) == volume) return str(get_string(each, {"hostPath", "path"}));
  return "";
}

std::string mount_path(const Json& container, std::string_view volume) {
  for (const Json& each : get_array(container, {"volumeMounts"}))
    if (get_string(each, {"name"}) == volume) return str(get_string(each, {"mountPath"}));
  return "";
}

ClusterFacts with_os(const std::string& id, const std::string& version,
                     const std::string& kernel = "5.14.0") {
  ClusterFacts facts = facts_of_cases();
  facts.gpu_nodes = {{"n1", id, version, kernel, ""}};
  return facts;
}

constexpr const char* kPlugin = "nvidia-device-plugin-daemonset";
constexpr const char* kDriverSet = "nvidia-driver-daemonset";
constexpr const char* kToolkitSet = "nvidia-container-toolkit-daemonset";
constexpr const char* kToolkitCtr = "nvidia-container-toolkit-ctr";

TEST(operator_render, case01_driver_image_carries_the_os) {
  EXPECT_EQ(Rendered("{}", with_os("ubuntu", "24.04")).image(kDriverSet, "nvidia-driver-ctr"),
            "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04");
}

TEST(operator_render, case02_an_image_alone_is_taken_as_it_is) {
  ClusterFacts facts = facts_of_cases();
  facts.env["CONTAINER_TOOLKIT_IMAGE"] = "other:1";
  Rendered r("{toolkit: {repository: '', version: '', image: 'registry.local/ct@sha256:ab12'}}", facts);
  EXPECT_EQ(r.image(kToolkitSet, kToolkitCtr), "registry.local/ct@sha256:ab12");
}

TEST(operator_render, case03_half_an_image_is_an_error_of_its_state_alone) {
  Rendered r("{dcgm: {enabled: true, repository: x, image: dcgm, version: ''}}");
  EXPECT_EQ(r.error("state-dcgm"),
            "resolve image of 'dcgm': repository, image and version must all be set, or the image alone; got "
            "repository=x, image=dcgm, version=empty");
  EXPECT_TRUE(r.state("state-dcgm").objects.empty());
  EXPECT_EQ(r.error("state-dcgm-exporter"), "");
  EXPECT_TRUE(r.has_object("DaemonSet", "nvidia-dcgm-exporter"));
}

TEST(operator_render, case04_no_image_falls_back_to_the_environment) {
  const char* bare = "{gfd: {repository: null, image: null, version: null}}";
  EXPECT_TRUE(Rendered(bare).error("gpu-feature-discovery").contains("GFD_IMAGE"));
  ClusterFacts facts = facts_of_cases();
  facts.env["GFD_IMAGE"] = "a/b:c";
  EXPECT_EQ(Rendered(bare, facts).image("gpu-feature-discovery", "gpu-feature-discovery"), "a/b:c");
}

TEST(operator_render, case05_os_tags) {
  auto tag = [](const std::string& id, const std::string& version) {
    return os_tag({"n", id, version, "", ""});
  };
  EXPECT_EQ(tag("rhel", "9.4"), "rhel9");
  EXPECT_EQ(tag("rocky", "9.7"), "rocky9");
  EXPECT_EQ(tag("sles", "15.6"), "sles15.6");
  EXPECT_EQ(tag("ubuntu", "22.04"), "ubuntu22.04");
  EXPECT_EQ(tag("rhcos", "4.19"), "rhcos4.19");
}

TEST(operator_render, case06_precompiled_drivers_are_one_daemonset_a_kernel) {
  Rendered r("{driver: {usePrecompiled: true, version: '580'}}",
             with_os("ubuntu", "24.04", "6.8.0-60-generic"));
  const char* name = "nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04";
  ASSERT_TRUE(r.has_object("DaemonSet", name)) << r.error("state-driver");
  EXPECT_EQ(r.image(name, "nvidia-driver-ctr"), "nvcr.io/nvidia/driver:580-6.8.0-60-generic-ubuntu24.04");
  const Json& daemonset = r.object("DaemonSet", name);
  EXPECT_EQ(get_string(daemonset, {"spec", "template", "spec", "nodeSelector",
                                   "feature.node.kubernetes.io/kernel-version.full"}),
            "6.8.0-60-generic");
  EXPECT_EQ(get_string(daemonset, {"spec", "template", "metadata", "labels", "nvidia.com/precompiled"}),
            "true");
  EXPECT_EQ(get_string(daemonset, {"metadata", "labels", "nvidia.com/precompiled"}), "true");
  EXPECT_EQ(r.state("state-driver").sweeps.at(0).name_prefix, "nvidia-driver-daemonset");
}

TEST(operator_render, case07_kernels_in_names) {
  EXPECT_EQ(sanitized_kernel("5.14.0-503.11.1.el9_5.aarch64_64k"), "5.14.0-503.11.1.el9.5");
  EXPECT_EQ(sanitized_kernel("5.14.0-503.11.1.el9_5.x86_64"), "5.14.0-503.11.1.el9.5");
  EXPECT_EQ(sanitized_kernel("6.8.0-60-generic"), "6.8.0-60-generic");
}

TEST(operator_render, case09_case10_digests) {
  std::map<std::string, std::string> fields = {
      {"DriverImage", "(string)nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"},
      {"DriverManagerImage", "(string)nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"},
      {"DriverType", "(string)gpu"},
      {"KernelModuleType", "(string)auto"},
      {"HostRoot", "(string)/"}};
  EXPECT_EQ(digest_of(fields), "2591032175");
  fields["KernelModuleType"] = "(string)open";
  fields["DriverEnv"] = "([]config.EnvVar)[{Name:(string)A Value:(string)1} {Name:(string)B Value:(string)}]";
  EXPECT_EQ(digest_of(fields), "3255330262");
}

TEST(operator_render, case20_device_plugin_configurations) {
  Rendered r("{devicePlugin: {config: {name: plugin-cfg, default: any}}}");
  for (const char* name : {"config-manager-init", "config-manager"}) {
    EXPECT_EQ(r.env(kPlugin, name, "DEFAULT_CONFIG"), "any");
    EXPECT_EQ(r.env(kPlugin, name, "FALLBACK_STRATEGIES"), "empty");
    EXPECT_EQ(mount_path(r.container(kPlugin, name), "config"), "/config");
    EXPECT_EQ(mount_path(r.container(kPlugin, name), "plugin-cfg"), "/available-configs");
  }
  EXPECT_EQ(r.env(kPlugin, "nvidia-device-plugin", "CONFIG_FILE"), "/config/config.yaml");
  EXPECT_TRUE(get_bool(r.pod(kPlugin), {"shareProcessNamespace"}));
  Rendered without("{}");
  EXPECT_FALSE(without.container(kPlugin, "config-manager").is_object());
  EXPECT_FALSE(without.container(kPlugin, "config-manager-init").is_object());
  EXPECT_FALSE(has(without.pod(kPlugin), {"shareProcessNamespace"}));
}

TEST(operator_render, case21_rolling_updates) {
  auto limit = [](const std::string& text, const char* daemonset) {
    Rendered r("{daemonsets: {rollingUpdate: {maxUnavailable: '" + text + "'}}}");
    const Json* found =
        find(r.object("DaemonSet", daemonset), {"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"});
    return found ? to_text(*found) : r.error("state-container-toolkit") + "-";
  };
  EXPECT_EQ(limit("10%", kToolkitSet), "\"10%\"");
  EXPECT_EQ(limit("3", kToolkitSet), "3");
  EXPECT_EQ(limit("3", kDriverSet), "-");
  EXPECT_TRUE(limit("10%x", kToolkitSet).contains("must be a count or a percentage; got '10%x'"));
  EXPECT_EQ(get_string(Rendered("{daemonsets: {updateStrategy: OnDelete}}").object("DaemonSet", kPlugin),
                       {"spec", "updateStrategy", "type"}),
            "OnDelete");
  EXPECT_EQ(get_string(Rendered("{}").object("DaemonSet", kDriverSet), {"spec", "updateStrategy", "type"}),
            "OnDelete");
}

TEST(operator_render, case22_common_labels_leave_selectors_alone) {
  Rendered r(
      "{daemonsets: {labels: {app: x, app.kubernetes.io/part-of: y, team: ml}, annotations: {note: n}}}");
  const Json& daemonset = r.object("DaemonSet", kPlugin);
  for (Keys keys : {Keys{"metadata", "labels"}, Keys{"spec", "template", "metadata", "labels"}}) {
    const JsonObject& labels = get_object(daemonset, keys);
    EXPECT_EQ(as_text(labels.at("app")), kPlugin);
    EXPECT_EQ(as_text(labels.at("team")), "ml");
    EXPECT_FALSE(labels.contains("app.kubernetes.io/part-of"));
  }
  EXPECT_EQ(get_string(daemonset, {"metadata", "annotations", "note"}), "n");
  EXPECT_EQ(get_string(daemonset, {"spec", "template", "metadata", "annotations", "note"}), "n");
}

TEST(operator_render, case36_toolkit_on_containerd) {
  Rendered r("{}");
  const std::pair<const char*, const char*> wanted[] = {
      {"RUNTIME", "containerd"},
      {"CONTAINERD_RUNTIME_CLASS", "nvidia"},
      {"RUNTIME_CONFIG", "/runtime/config-dir/config.toml"},
      {"RUNTIME_DROP_IN_CONFIG", "/runtime/config-dir.d/99-nvidia.toml"},
      {"RUNTIME_DROP_IN_CONFIG_HOST_PATH", "/etc/containerd/conf.d/99-nvidia.toml"},
      {"RUNTIME_SOCKET", "/runtime/sock-dir/containerd.sock"},
      {"NVIDIA_RUNTIME_SET_AS_DEFAULT", "false"}};
  for (const auto& [name, value] : wanted) EXPECT_EQ(r.env(kToolkitSet, kToolkitCtr, name), value) << name;
}

TEST(operator_render, case37_toolkit_on_k3s) {
  Rendered r("{toolkit: {env: [{name: CONTAINERD_SOCKET, value: /run/k3s/containerd/containerd.sock}]}}");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "containerd-socket"), "/run/k3s/containerd");
  EXPECT_EQ(mount_path(r.container(kToolkitSet, kToolkitCtr), "containerd-socket"), "/runtime/sock-dir/");
  EXPECT_EQ(r.env(kToolkitSet, kToolkitCtr, "CONTAINERD_SOCKET"), "/runtime/sock-dir/containerd.sock");
  EXPECT_EQ(r.env(kToolkitSet, kToolkitCtr, "RUNTIME_SOCKET"), "/runtime/sock-dir/containerd.sock");
}

TEST(operator_render, case38_nri) {
  Rendered r("{cdi: {nriPluginEnabled: true}}");
  EXPECT_FALSE(r.state("pre-requisites").enabled);
  EXPECT_EQ(r.state("pre-requisites").absent.size(), 3u);
  for (const std::string& name : r.daemonsets()) EXPECT_FALSE(has(r.pod(name), {"runtimeClassName"})) << name;
  EXPECT_EQ(get_string(r.object("DaemonSet", kPlugin), {"spec", "template", "metadata", "annotations",
                                                        "nvidia.cdi.k8s.io/container.nvidia-device-plugin"}),
            "management.nvidia.com/gpu=all");
  EXPECT_EQ(r.env(kToolkitSet, kToolkitCtr, "NRI_SOCKET"), "/runtime/nri-sock-dir/nri.sock");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "nri-socket"), "/var/run/nri");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "containerd-config"), "");
}

TEST(operator_render, case39_without_cdi) {
  ClusterFacts facts = facts_of_cases();
  facts.runtime = "crio";
  Rendered r("{cdi: {enabled: false}}", facts);
  EXPECT_EQ(r.state("pre-requisites").absent.size(), 2u);
  EXPECT_TRUE(r.has_object("RuntimeClass", "nvidia"));
  EXPECT_FALSE(r.has_object("RuntimeClass", "nvidia-cdi"));
  EXPECT_FALSE(has(r.pod(kPlugin), {"runtimeClassName"}));
  EXPECT_EQ(r.env(kToolkitSet, kToolkitCtr, "CRIO_CONFIG_MODE"), "hook");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "crio-hooks"), "/usr/share/containers/oci/hooks.d");
}

TEST(operator_render, case42_mps_root) {
  Rendered r("{devicePlugin: {mps: {root: /mnt/mps}}}");
  EXPECT_EQ(host_path(r.pod(kPlugin), "mps-root"), "/mnt/mps");
  EXPECT_EQ(host_path(r.pod(kPlugin), "mps-shm"), "/mnt/mps/shm");
  EXPECT_EQ(r.env(kPlugin, "nvidia-device-plugin", "MPS_ROOT"), "/mnt/mps");
}

TEST(operand_manifests, case31_precompiled_on_rhel) {
  Rendered r("{driver: {usePrecompiled: true, version: '580'}}",
             with_os("rhel", "9.5", "5.14.0-503.11.1.el9_5.x86_64"));
  const char* name = "nvidia-driver-daemonset-5.14.0-503.11.1.el9.5-rhel9.5";
  ASSERT_TRUE(r.has_object("DaemonSet", name)) << r.error("state-driver");
  EXPECT_EQ(get_string(r.pod(name), {"nodeSelector", "feature.node.kubernetes.io/kernel-version.full"}),
            "5.14.0-503.11.1.el9_5.x86_64");
  EXPECT_EQ(r.image(name, "nvidia-driver-ctr"),
            "nvcr.io/nvidia/driver:580-5.14.0-503.11.1.el9_5.x86_64-rhel9");
}

TEST(operand_manifests, case33_rolling_updates_leave_the_driver_alone) {
  Rendered r("{daemonsets: {updateStrategy: RollingUpdate, rollingUpdate: {maxUnavailable: '1'}}}");
  for (const std::string& name : r.daemonsets()) {
    const Json& strategy = *find(r.object("DaemonSet", name), {"spec", "updateStrategy"});
    EXPECT_EQ(to_text(strategy), name == kDriverSet
                                     ? R"({"type":"OnDelete"})"
                                     : R"({"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1}})")
        << name;
  }
}

TEST(operand_manifests, case43_nri_needs_no_runtime_class) {
  Rendered r("{cdi: {nriPluginEnabled: true}}");
  for (const std::string& name : r.daemonsets()) EXPECT_FALSE(has(r.pod(name), {"runtimeClassName"})) << name;
  EXPECT_FALSE(r.has_object("RuntimeClass", "nvidia"));
  EXPECT_EQ(get_string(r.object("DaemonSet", "nvidia-dcgm-exporter"),
                       {"spec", "template", "metadata", "annotations",
                        "nvidia.cdi.k8s.io/container.nvidia-dcgm-exporter"}),
            "management.nvidia.com/gpu=all");
}

TEST(operand_manifests, case32_gds_with_precompiled_is_an_error) {
  std::string error =
      Rendered("{driver: {usePrecompiled: true}, gds: {enabled: true}}").error("state-driver");
  EXPECT_TRUE(error.contains("nvidia-fs") && error.contains("precompiled")) << error;
}

TEST(operand_manifests, case34_a_liveness_probe_of_the_driver) {
  Rendered r("{driver: {livenessProbe: {periodSeconds: 20}}}");
  const Json& probe = *find(r.container(kDriverSet, "nvidia-driver-ctr"), {"livenessProbe"});
  EXPECT_EQ(get_int(probe, {"periodSeconds"}), 20);
  EXPECT_EQ(get_array(probe, {"exec", "command"}).size(), 2u);
}

// A probe that fails is a Warning event.
TEST(operand_manifests, a_driver_is_waited_for_by_few_probes) {
  const auto probe = [](const std::string& spec) {
    const Rendered r("{driver: {" + spec + "}}");
    const Json& found = *find(r.container(kDriverSet, "nvidia-driver-ctr"), {"startupProbe"});
    std::string text;
    for (const Json& word : get_array(found, {"exec", "command"})) text += str(as_text(word)) + " ";
    for (const char* field : {"initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"})
      text += std::to_string(get_int(found, {field})) + " ";
    return text;
  };
  EXPECT_EQ(probe("startupProbe: null"), "sh /usr/local/bin/startup-probe.sh 290 0 1 300 4 ");
  const std::string unset = "initialDelaySeconds: null, periodSeconds: null, failureThreshold: null";
  EXPECT_EQ(probe("startupProbe: {" + unset + ", timeoutSeconds: 60}"),
            "sh /usr/local/bin/startup-probe.sh 50 0 1 60 20 ");
  EXPECT_EQ(probe("startupProbe: {periodSeconds: 3}"), "sh /usr/local/bin/startup-probe.sh 60 3 60 120 ");
}

TEST(operand_manifests, case35_what_moves_the_digest) {
  std::string plain = Rendered("{}").digest();
  ASSERT_FALSE(plain.empty());
  for (const char* same :
       {"{driver: {resources: {limits: {cpu: 1}}}}", "{driver: {imagePullPolicy: Always}}",
        "{daemonsets: {tolerations: [{operator: Exists}]}}", "{driver: {startupProbe: {periodSeconds: 3}}}"})
    EXPECT_EQ(Rendered(same).digest(), plain) << same;
  for (const char* other :
       {"{driver: {version: '1'}}", "{driver: {args: [x]}}", "{driver: {env: [{name: A, value: b}]}}",
        "{driver: {rdma: {enabled: true}}}", "{driver: {kernelModuleType: open}}"})
    EXPECT_NE(Rendered(other).digest(), plain) << other;
}

TEST(operand_manifests, case44_no_plugin_no_check_of_it) {
  Rendered r("{devicePlugin: {enabled: false}}");
  EXPECT_FALSE(r.container("nvidia-operator-validator", "plugin-validation").is_object());
  EXPECT_TRUE(r.container("nvidia-operator-validator", "cuda-validation").is_object());
  const State& plugin = r.state("state-device-plugin");
  EXPECT_FALSE(plugin.enabled);
  EXPECT_NE(std::ranges::find(plugin.absent, ObjectRef{"apps/v1", "DaemonSet", "gpu-operator", kPlugin}),
            plugin.absent.end());
}

TEST(operator_render, no_gpu_node_no_daemonset) {
  ClusterFacts facts = facts_of_cases();
  facts.gpu_nodes.clear();
  Rendered r("{}", facts);
  EXPECT_TRUE(r.daemonsets().empty());
  EXPECT_TRUE(r.has_object("RuntimeClass", "nvidia"));
  EXPECT_TRUE(r.state("state-device-plugin").enabled);
  EXPECT_TRUE(r.state("state-driver").sweeps.empty()) << "drivers that are there stay";
}

TEST(operator_render, two_operating_systems_are_an_error_of_the_driver_alone) {
  ClusterFacts facts = facts_of_cases();
  facts.gpu_nodes.push_back({"r", "rhel", "9.4", "5.14", ""});
  Rendered r("{}", facts);
  EXPECT_TRUE(r.error("state-driver")
                  .contains("rhel9 ('r'), ubuntu22.04 ('plain-a'); one ClusterPolicy's driver serves one"))
      << r.error("state-driver");
  EXPECT_TRUE(r.has_object("DaemonSet", kPlugin));
}

TEST(operator_render, what_a_driver_refers_to_must_be_there) {
  EXPECT_EQ(Rendered("{driver: {kernelModuleConfig: {name: nope}}}").error("state-driver"),
            "spec.driver.kernelModuleConfig: ConfigMap 'nope' does not exist in namespace 'gpu-operator'");
  EXPECT_EQ(Rendered("{driver: {secretEnv: nope}}").error("state-driver"),
            "spec.driver.secretEnv: Secret 'nope' does not exist in namespace 'gpu-operator'");
  EXPECT_EQ(
      config_map_refs(
          policy_with("{driver: {kernelModuleConfig: {name: a}, repoConfig: {configMapName: b}}}").spec),
      (std::vector<std::string>{"a", "b"}));
}

TEST(operator_render, host_paths_move) {
  Rendered r("{hostPaths: {rootFS: /writable, driverInstallDir: /opt/drv, kubeletRootDir: /data/kubelet}}");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "host-root"), "/writable");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "host-dev-char"), "/writable/dev/char");
  EXPECT_EQ(r.env(kToolkitSet, kToolkitCtr, "HOST_ROOT"), "/writable");
  EXPECT_EQ(host_path(r.pod(kToolkitSet), "driver-install-dir"), "/opt/drv");
  EXPECT_EQ(mount_path(r.container(kToolkitSet, "driver-validation"), "driver-install-dir"), "/opt/drv");
  EXPECT_EQ(r.env(kToolkitSet, "driver-validation", "DRIVER_INSTALL_DIR"), "/opt/drv");
  EXPECT_EQ(host_path(r.pod(kPlugin), "device-plugin"), "/data/kubelet/device-plugins");
  EXPECT_EQ(host_path(r.pod("nvidia-dcgm-exporter"), "pod-gpu-resources"), "/data/kubelet/pod-resources");
}

TEST(operator_render, a_handover_to_nvidiadriver_orphans_driver_pods) {
  Rendered r("{driver: {useNvidiaDriverCRD: true}}");
  const State& driver = r.state("state-driver");
  EXPECT_FALSE(driver.enabled);
  EXPECT_TRUE(driver.objects.empty() && driver.absent.empty());
  ASSERT_EQ(driver.sweeps.size(), 1u);
  EXPECT_TRUE(driver.sweeps[0].orphan_pods);
}

TEST(operator_render, every_object_is_owned_and_placed) {
  ClusterFacts facts = facts_of_cases();
  facts.operator_namespace = "elsewhere";
  facts.has_service_monitors = true;
  Rendered r("{}", facts);
  int count = 0;
  for (const State& state : r.plan.states)
    for (const Json& object : state.objects) {
      ++count;
      EXPECT_EQ(get_string(get_array(object, {"metadata", "ownerReferences"}).at(0), {"uid"}),
                "11111111-2222-3333-4444-555555555555");
      EXPECT_FALSE(to_text(object).contains("\"namespace\":\"gpu-operator\"")) << to_text(object);
      EXPECT_FALSE(to_text(object).contains("set-by-the-operator")) << to_text(object);
      if (get_string(object, {"kind"}) == "DaemonSet") {
        EXPECT_EQ(get_string(object, {"metadata", "annotations", kHashAnnotation}), object_hash(object));
      }
    }
  EXPECT_GT(count, 50);
  EXPECT_TRUE(r.has_object("ServiceMonitor", "nvidia-dcgm-exporter"));
}

TEST(operator_render, what_a_kata_manager_of_old_left_goes) {
  ClusterFacts facts = facts_of_cases();
  facts.kata_runtime_classes = {"kata-qemu-nvidia-gpu"};
  // Whatever the policy says of it.
  const Rendered r(
      "{kataManager: {enabled: true, config: {runtimeClasses: [{name: a, artifacts: {url: u}}]}}}", facts);
  const State& kata = r.state("state-kata-manager");
  EXPECT_FALSE(kata.enabled);
  EXPECT_TRUE(kata.objects.empty());
  std::string gone;
  for (const ObjectRef& ref : kata.absent) gone += ref.kind + "/" + ref.name + " ";
  EXPECT_EQ(gone,
            "DaemonSet/nvidia-kata-manager ConfigMap/nvidia-kata-manager-config "
            "ConfigMap/nvidia-kata-manager-entrypoint ClusterRoleBinding/nvidia-kata-manager "
            "RoleBinding/nvidia-kata-manager ClusterRole/nvidia-kata-manager Role/nvidia-kata-manager "
            "ServiceAccount/nvidia-kata-manager RuntimeClass/kata-qemu-nvidia-gpu ");
}

TEST(operator_render, runtime_classes_are_of_the_version_that_the_server_has) {
  ClusterFacts facts = facts_of_cases();
  const auto version = [&](const char* kubernetes) {
    facts.kubernetes_version = kubernetes;
    return str(get_string(Rendered("{}", facts).object("RuntimeClass", "nvidia"), {"apiVersion"}));
  };
  EXPECT_EQ(version("v1.19.16"), "node.k8s.io/v1beta1");
  EXPECT_EQ(version("v1.20.0"), "node.k8s.io/v1beta1");
  EXPECT_EQ(version("v1.20.1"), "node.k8s.io/v1");
  EXPECT_EQ(version("v1.34.4-gke.1"), "node.k8s.io/v1");
}

TEST(operator_render, same_facts_same_bytes) {
  auto text = [] {
    std::string all;
    for (const State& state : Rendered("{}").plan.states)
      for (const Json& object : state.objects) all += to_text(object);
    return all;
  };
  EXPECT_EQ(text(), text());
}

TEST(operator_render, openshift_gets_its_own_objects) {
  ClusterFacts facts = with_os("rhcos", "4.19");
  facts.openshift_version = "4.19";
  facts.runtime = "crio";
  facts.has_prometheus_rules = true;
  facts.gpu_nodes[0].ostree = "419.96";
  facts.driver_toolkit_images = std::map<std::string, std::string>{{"419.96", "quay.io/dtk@sha256:12"}};
  facts.proxy = ClusterFacts::Proxy{.http = "", .https = "http://p:1", .no_proxy = "x", .trusted_ca = true};
  Rendered r("{}", facts);
  ASSERT_EQ(r.error("state-driver"), "");
  const char* name = "nvidia-driver-daemonset-419.96";
  EXPECT_EQ(get_string(r.object("DaemonSet", name), {"spec", "selector", "matchLabels", "app"}), name);
  EXPECT_EQ(r.image(name, "openshift-driver-toolkit-ctr"), "quay.io/dtk@sha256:12");
  EXPECT_EQ(as_text(get_array(r.container(name, "nvidia-driver-ctr"), {"args"}).at(0)),
            "nv-ctr-run-with-dtk");
  EXPECT_EQ(r.env(name, "nvidia-driver-ctr", "OPENSHIFT_VERSION"), "4.19");
  EXPECT_EQ(r.env(name, "nvidia-driver-ctr", "https_proxy"), "http://p:1");
  EXPECT_FALSE(has_env(r.container(name, "nvidia-driver-ctr"), "HTTP_PROXY"));
  EXPECT_EQ(r.env(name, "openshift-driver-toolkit-ctr", "RHCOS_VERSION"), "419.96");
  const Json& scc = r.object("SecurityContextConstraints", "nvidia-driver");
  EXPECT_EQ(as_text(get_array(scc, {"users"}).at(0)), "system:serviceaccount:gpu-operator:nvidia-driver");
  EXPECT_TRUE(r.has_object("PrometheusRule", "nvidia-gpu-operator-metrics"));
  EXPECT_EQ(
      get_string(get_array(r.object("RoleBinding", "prometheus-k8s"), {"subjects"}).at(0), {"namespace"}),
      "openshift-monitoring");
  EXPECT_EQ(r.env("gpu-feature-discovery", "gpu-feature-discovery", "USE_NODE_FEATURE_API"), "false");
}

// --- our own image ---

constexpr const char* kOurs = "ghcr.io/gpu-operator/gpu-operator:v0.1.0";

Rendered with_own_image(const std::string& more = "{}") {
  ClusterFacts facts = facts_of_cases();
  facts.own_image = kOurs;
  Json blocks = parse_yaml_one(more, "more").value().value;
  for (const char* block : {"validator", "toolkit", "devicePlugin", "gfd", "dcgm", "dcgmExporter",
                            "migManager", "nodeStatusExporter"}) {
    set(blocks, {block, "repository"}, "ghcr.io/gpu-operator");
    set(blocks, {block, "image"}, "gpu-operator");
    set(blocks, {block, "version"}, "v0.1.0");
    if (std::string(block) != "validator") set(blocks, {block, "enabled"}, true);
  }
  set(blocks, {"driver", "manager"}, JsonObject{{"repository", ""}, {"version", ""}, {"image", kOurs}});
  return Rendered(to_text(blocks), facts);
}

std::string command_of(const Json& container) {
  std::string text;
  for (Keys keys : {Keys{"command"}, Keys{"args"}})
    for (const Json& word : get_array(container, keys))
      text += (text.empty() ? "" : " ") + str(as_text(word));
  return text;
}

TEST(operator_render, our_image_runs_roles_without_shells_and_delays) {
  Rendered r = with_own_image();
  const std::tuple<const char*, const char*, const char*> wanted[] = {
      {kToolkitSet, kToolkitCtr,
       "gpu-node validations --record=/run/nvidia/validations/.passed-for-nvidia-container-toolkit-ctr "
       "driver "
       "WITH_WAIT=true -- nvidia-toolkit"},
      {kPlugin, "toolkit-validation", "gpu-node wait-for /run/nvidia/validations/toolkit-ready"},
      {kPlugin, "nvidia-device-plugin", "nvidia-device-plugin"},
      {"gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery"},
      {"nvidia-dcgm-exporter", "nvidia-dcgm-exporter", "dcgm-exporter"},
      {"nvidia-mig-manager", "nvidia-mig-manager", "nvidia-mig-manager"},
      {"nvidia-node-status-exporter", "nvidia-node-status-exporter", "nvidia-validator"},
      {kDriverSet, "k8s-driver-manager", "driver-manager uninstall_driver"},
      {kDriverSet, "nvidia-driver-ctr", "nvidia-driver init"},
  };
  for (const auto& [daemonset, container, command] : wanted)
    EXPECT_EQ(command_of(r.container(daemonset, container)), command) << daemonset << " " << container;
  for (const std::string& name : r.daemonsets()) {
    std::string text = to_text(r.pod(name));
    EXPECT_FALSE(text.contains("sleep")) << name;
    EXPECT_FALSE(text.contains("entrypoint")) << name;
    if (name != kDriverSet) {
      EXPECT_FALSE(text.contains("initialDelaySeconds")) << name;
    }
  }
}

// Every init container costs a kubelet's second.
TEST(operator_render, validations_of_ours_are_steps_of_one_container) {
  constexpr const char* kValidator = "nvidia-operator-validator";
  Rendered ours = with_own_image(
      "{validator: {driver: {env: [{name: DISABLE_DEV_CHAR_SYMLINK_CREATION, value: 'true'}]}, plugin: {env: "
      "[{name: WITH_WORKLOAD, value: 'true'}]}}, hostPaths: {kubeletRootDir: /data/kubelet}}");
  EXPECT_FALSE(has(ours.pod(kValidator), {"initContainers"}));
  EXPECT_FALSE(has(ours.pod(kToolkitSet), {"initContainers"}));
  const Json& main = ours.container(kValidator, kValidator);
  const std::string command = command_of(main);
  const auto after = [&command](std::string_view text, std::size_t from) {
    const auto at = command.find(text, from);
    EXPECT_NE(at, std::string::npos) << text << " in " << command;
    return at;
  };
  // In order, and each variable only where its init container had it.
  auto at = after(" driver ", 0);
  at = after("DISABLE_DEV_CHAR_SYMLINK_CREATION=true", at);
  at = after(
      " toolkit WITH_WAIT=false cuda VALIDATOR_PROOF_FOLDER=/run/nvidia/validations "
      "TOOLKIT_CONFIGURED_FILE=/run/nvidia/validations/.toolkit-configured WITH_WAIT=false ",
      at);
  at = after("VALIDATOR_IMAGE=" + std::string(kOurs), at);
  at = after(" plugin ", at);
  at = after("WITH_WORKLOAD=true", at);
  after(" -- gpu-node pause all validations are successful", at);
  EXPECT_EQ(env_value(main, "NVIDIA_VISIBLE_DEVICES"), "all") << "which the runtime reads";
  EXPECT_FALSE(has_env(main, "WITH_WAIT"));
  for (const char* from_pod : {"NODE_NAME", "OPERATOR_NAMESPACE", "POD_UID", "POD_NAME", "POD_NAMESPACE"})
    EXPECT_TRUE(has_env(main, from_pod)) << from_pod;
  // It tells of itself, and gets to know what an earlier container told; the toolkit may not patch pods.
  after(" --tell ", 0);
  EXPECT_NE(to_text(get_array(main, {"env"})).find("metadata.annotations['nvidia.com/gpu-validation']"),
            std::string::npos);
  EXPECT_FALSE(command_of(ours.container(kToolkitSet, kToolkitCtr)).contains("--tell"));
  // Ready when all have passed.
  const JsonArray& probe = get_array(main, {"startupProbe", "exec", "command"});
  ASSERT_FALSE(probe.empty());
  EXPECT_TRUE(command.contains("--passed-file=" + str(as_text(probe.back()))));
  EXPECT_EQ(mount_path(main, "pod-gpu-resources"), "/var/lib/kubelet/pod-resources");
  EXPECT_EQ(host_path(ours.pod(kValidator), "pod-gpu-resources"), "/data/kubelet/pod-resources");
  EXPECT_EQ(mount_path(main, "host-dev-char"), "/host-dev-char");

  Rendered upstream("{toolkit: {enabled: true}}");
  EXPECT_TRUE(upstream.container(kValidator, "cuda-validation").is_object());
  EXPECT_TRUE(upstream.container(kToolkitSet, "driver-validation").is_object());
}

TEST(operator_render, a_validator_waits_for_a_toolkit_of_ours_alone) {
  const std::string name = "nvidia-operator-validator";
  ClusterFacts facts = facts_of_cases();
  facts.own_image = kOurs;
  for (const char* toolkit : {"{enabled: false}", "{enabled: true, repository: r, image: i, version: v}"}) {
    const Rendered ours(
        "{validator: {repository: ghcr.io/gpu-operator, image: gpu-operator, version: v0.1.0}, toolkit: " +
            std::string(toolkit) + "}",
        facts);
    const std::string command = command_of(ours.container(name, name));
    EXPECT_TRUE(command.contains(" cuda VALIDATOR_PROOF_FOLDER=")) << command;
    EXPECT_FALSE(command.contains("TOOLKIT_CONFIGURED_FILE")) << toolkit;
  }
}

// What another validator has written by then stays.
TEST(operator_render, a_validator_of_ours_removes_its_own_gates_at_its_end) {
  constexpr const char* kValidator = "nvidia-operator-validator";
  const auto hook = [](const Rendered& r) {
    return to_text(*find(r.container(kValidator, kValidator), {"lifecycle", "preStop", "exec", "command"}));
  };
  const Rendered ours = with_own_image();
  const std::string owner = "--gate-owner=/run/nvidia/validations/.gate-owner";
  EXPECT_EQ(hook(ours), R"(["gpu-node","validations","--release",")" + owner + "\"]");
  EXPECT_TRUE(command_of(ours.container(kValidator, kValidator)).contains(" " + owner + " "));
  EXPECT_FALSE(command_of(ours.container(kToolkitSet, kToolkitCtr)).contains("--gate-owner"))
      << "it has no gate of its own";
  EXPECT_EQ(hook(Rendered("{toolkit: {enabled: true}}")),
            R"(["sh","-c","rm -f /run/nvidia/validations/*-ready"])");
}

TEST(operator_render, an_injected_device_goes_to_the_container_that_validates) {
  const auto annotations = [](const Rendered& r) {
    return to_text(*find(r.object("DaemonSet", "nvidia-operator-validator"),
                         {"spec", "template", "metadata", "annotations"}));
  };
  const std::string nri = "{cdi: {nriPluginEnabled: true}, toolkit: {enabled: true}}";
  EXPECT_TRUE(annotations(Rendered(nri)).contains("container.toolkit-validation"));
  const std::string ours = annotations(with_own_image("{cdi: {nriPluginEnabled: true}}"));
  EXPECT_TRUE(ours.contains("container.nvidia-operator-validator")) << ours;
  EXPECT_FALSE(ours.contains("toolkit-validation")) << ours;
}

TEST(operator_render, a_toolkit_of_ours_is_ready_when_the_runtime_is_configured) {
  Rendered ours = with_own_image();
  const Json& container = ours.container(kToolkitSet, kToolkitCtr);
  const auto files = split(env_value(container, "TOOLKIT_CONFIGURED_FILE"), ',');
  ASSERT_EQ(files.size(), 2u);
  const std::string& file = files[0];
  EXPECT_EQ(files[1], "/run/nvidia/validations/.toolkit-configured") << "a validator waits for it";
  const JsonArray& command = get_array(container, {"startupProbe", "exec", "command"});
  ASSERT_FALSE(command.empty());
  EXPECT_EQ(as_text(command.back()), file);
  EXPECT_FALSE(file.starts_with("/run/nvidia/")) << "on the host it would outlive the container";
  const auto told = [](const Rendered& r) {
    return get_string(r.object("DaemonSet", kToolkitSet),
                      {"spec", "template", "metadata", "labels", kTellsRuntime});
  };
  EXPECT_EQ(told(ours), "true");
  Rendered upstream("{toolkit: {enabled: true}}");
  EXPECT_EQ(told(upstream), "");
  EXPECT_FALSE(has(upstream.container(kToolkitSet, kToolkitCtr), {"startupProbe"}));
}

TEST(operator_render, roles_of_ours_see_the_driver_by_mounts_too) {
  Rendered r = with_own_image();
  for (const auto& [daemonset, name] : {std::pair{"gpu-feature-discovery", "gpu-feature-discovery"},
                                        std::pair{"nvidia-dcgm-exporter", "nvidia-dcgm-exporter"},
                                        std::pair{kPlugin, "nvidia-device-plugin"}}) {
    const Json& container = r.container(daemonset, name);
    std::set<std::string> at;
    for (const Json& mount : get_array(container, {"volumeMounts"}))
      at.insert(str(get_string(mount, {"mountPath"})));
    for (const char* path : {"/run/nvidia/validations", "/driver-root", "/host"})
      EXPECT_TRUE(at.contains(path)) << name << path;
    EXPECT_EQ(env_value(container, "NVIDIA_VISIBLE_DEVICES"), "all");
    for (const Json& mount : get_array(container, {"volumeMounts"})) {
      bool declared = std::ranges::any_of(get_array(r.pod(daemonset), {"volumes"}), [&](const Json& volume) {
        return get_string(volume, {"name"}) == get_string(mount, {"name"});
      });
      EXPECT_TRUE(declared) << name << " " << get_string(mount, {"name"});
    }
  }
}

TEST(operator_render, a_driver_of_ours_starts_without_delay_unless_the_user_or_a_takeover_says_so) {
  auto delay = [](const Rendered& r) {
    const Json& driver = r.container(kDriverSet, "nvidia-driver-ctr");
    return std::pair(get_int(driver, {"startupProbe", "initialDelaySeconds"}),
                     get_int(driver, {"startupProbe", "periodSeconds"}));
  };
  EXPECT_EQ(delay(Rendered("{driver: {startupProbe: null}}")), std::pair(0l, 1l));
  EXPECT_EQ(delay(Rendered("{}")), std::pair(60l, 10l)) << "the chart's default policy sets it";
  ClusterFacts facts = facts_of_cases();
  facts.taken_over = {kDriverSet};
  Keys required = {"affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"};
  EXPECT_FALSE(has(Rendered("{}").pod(kDriverSet), required));
  EXPECT_TRUE(has(Rendered("{}", facts).pod(kDriverSet), required));
  EXPECT_EQ(Rendered("{}", facts).digest(), Rendered("{}").digest());
  EXPECT_EQ(delay(Rendered("{driver: {startupProbe: null}}", facts)).first, 60l);
}

// --- virtual machine workloads ---

constexpr const char* kSandbox =
    "{sandboxWorkloads: {enabled: true}, vgpuManager: {enabled: true, repository: r, version: '570.1'}}";

TEST(operator_render, vm_states_follow_mode_and_switches) {
  auto wanted = [](const Rendered& r) {
    std::vector<std::string> names;
    for (const std::string& name : r.daemonsets()) {
      if (name.contains("sandbox") || name.contains("vgpu") || name.contains("vfio") ||
          name.contains("cc-")) {
        names.push_back(name);
      }
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(wanted(Rendered("{}")), Names());
  EXPECT_EQ(wanted(Rendered(kSandbox)),
            (Names{"nvidia-vgpu-manager-daemonset", "nvidia-vgpu-device-manager", "nvidia-sandbox-validator",
                   "nvidia-vfio-manager", "nvidia-sandbox-device-plugin-daemonset"}));
  Rendered kata("{sandboxWorkloads: {enabled: true, mode: kata}, vfioManager: {enabled: false}}");
  EXPECT_EQ(wanted(kata), (Names{"nvidia-vgpu-device-manager", "nvidia-sandbox-validator",
                                 "nvidia-kata-sandbox-device-plugin-daemonset", "nvidia-cc-manager"}));
  EXPECT_EQ(kata.env("nvidia-cc-manager", "nvidia-cc-manager", "DEFAULT_CC_MODE"), "on");
  EXPECT_FALSE(Rendered("{}").state("state-vfio-manager").absent.empty());
  EXPECT_TRUE(Rendered("{}").has_object("DaemonSet", kDriverSet));
}

TEST(operator_render, vm_checks_know_the_default_workload_and_their_variables) {
  Rendered r(
      "{sandboxWorkloads: {enabled: true, defaultWorkload: vm-vgpu}, ccManager: {enabled: false}, validator: "
      "{vgpuDevices: {env: [{name: A, value: b}]}}}");
  const char* name = "nvidia-sandbox-validator";
  for (const char* check : {"vfio-pci-validation", "vgpu-manager-validation", "vgpu-devices-validation"})
    EXPECT_EQ(r.env(name, check, "DEFAULT_GPU_WORKLOAD_CONFIG"), "vm-vgpu") << check;
  EXPECT_EQ(r.env(name, "vgpu-devices-validation", "A"), "b");
  EXPECT_TRUE(r.container(name, "cc-manager-validation").is_null());
}

TEST(operator_render, a_vgpu_manager_is_made_by_operating_system_and_handed_over) {
  Rendered r(kSandbox);
  EXPECT_EQ(r.image("nvidia-vgpu-manager-daemonset", "nvidia-vgpu-manager-ctr"),
            "r/vgpu-manager:570.1-ubuntu22.04");
  EXPECT_TRUE(r.container("nvidia-vgpu-manager-daemonset", "openshift-driver-toolkit-ctr").is_null());
  ClusterFacts facts = with_os("rhcos", "4.19");
  facts.openshift_version = "4.19";
  facts.gpu_nodes[0].ostree = "419.96";
  facts.driver_toolkit_images = std::map<std::string, std::string>{};
  Rendered openshift(kSandbox, facts);
  const char* name = "nvidia-vgpu-manager-daemonset-419.96";
  ASSERT_TRUE(openshift.has_object("DaemonSet", name)) << openshift.error("state-vgpu-manager");
  EXPECT_EQ(openshift.env(name, "nvidia-vgpu-manager-ctr", "RHCOS_IMAGE_MISSING"), "true");
  EXPECT_EQ(openshift.image(name, "openshift-driver-toolkit-ctr"), "r/vgpu-manager:570.1-rhcos4.19");
  EXPECT_TRUE(openshift.has_object("SecurityContextConstraints", "nvidia-vgpu-manager"));

  Rendered over(
      R"({sandboxWorkloads: {enabled: true}, vgpuManager: {enabled: true, repository: r, version: '1'},
                    driver: {useNvidiaDriverCRD: true}})");
  const State& state = over.state("state-vgpu-manager");
  EXPECT_TRUE(state.objects.empty());
  EXPECT_TRUE(state.absent.empty());
  ASSERT_EQ(state.sweeps.size(), 1u);
  EXPECT_EQ(state.sweeps[0].name_prefix, "nvidia-vgpu-manager-daemonset");
  EXPECT_TRUE(state.sweeps[0].orphan_pods);
}

TEST(operator_render, vm_gates_of_our_image_wait_without_a_shell) {
  Rendered r = with_own_image("{sandboxWorkloads: {enabled: true}}");
  const std::string dir = "/run/nvidia/validations/";
  EXPECT_EQ(command_of(r.container("nvidia-vgpu-device-manager", "vgpu-manager-validation")),
            "gpu-node wait-for --any " + dir + "vgpu-manager-ready " + dir + "host-vgpu-manager-ready");
  EXPECT_EQ(command_of(r.container("nvidia-sandbox-device-plugin-daemonset", "vfio-pci-validation")),
            "gpu-node wait-for --if=" + dir + "workload-type=vm-passthrough " + dir + "vfio-pci-ready");
  EXPECT_EQ(command_of(r.container("nvidia-sandbox-device-plugin-daemonset", "vgpu-devices-validation")),
            "gpu-node wait-for --if=" + dir + "workload-type=vm-vgpu " + dir + "vgpu-devices-ready");
  EXPECT_EQ(command_of(r.container("nvidia-sandbox-validator", "vfio-pci-validation")), "nvidia-validator");
  EXPECT_EQ(command_of(r.container("nvidia-sandbox-validator", "nvidia-sandbox-validator")),
            "gpu-node pause");
}

}  // namespace
}  // namespace gpuop::op
