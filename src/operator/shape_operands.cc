#include "base/text.h"
#include "operator/pod.h"
#include "operator/shape.h"

namespace gpuop::op {

namespace {

constexpr std::string_view kDevicePluginImage = "DEVICE_PLUGIN_IMAGE";

// MIG_STRATEGY and what goes with it (operator.md §5.6).
void set_mig(const View& view, Json& container) {
  const std::string& strategy = view.spec.mig.strategy;
  if (!strategy.empty()) set_env(container, "MIG_STRATEGY", strategy);
  if (strategy != "none") set_env(container, "NVIDIA_MIG_MONITOR_DEVICES", "all");
}

void set_cdi_hook(const View& view, Json& container) {
  if (view.spec.toolkit.enabled)
    set_env(
        container, "NVIDIA_CDI_HOOK_PATH",
        (fs::path(view.spec.toolkit.install_dir) / "toolkit/nvidia-cdi-hook").lexically_normal().string());
}

// The pair of containers that picks a node's plugin configuration, and what its neighbours see of it.
// `resources` are those of the operand, for both. Their image is the device plugin's whatever the operand;
// pull secrets are the operand's own.
Result<> shape_config_manager(const View& view, Json& daemonset, std::string_view main,
                              const Json& resources) {
  Json& pod = pod_spec(daemonset);
  const policy::DevicePluginSpec& plugin = view.spec.device_plugin;
  const std::string& config = plugin.config.name;
  if (config.empty()) {
    drop_container(pod, "config-manager-init");
    drop_container(pod, "config-manager");
    return {};
  }
  std::string image = TRY(resolve_image(plugin, "devicePlugin", kDevicePluginImage, view.facts.env));
  for (std::string_view name : {"config-manager-init", "config-manager"}) {
    Json* container = find_container(pod, name);
    if (!container) continue;
    set_image(*container, image, plugin);
    set_resources(*container, resources);
    insert_env(*container, "SEND_SIGNAL", "DEFAULT_CONFIG", plugin.config.default_config);
    set_env(*container, "FALLBACK_STRATEGIES", "empty");
  }
  for (std::string_view name :
       {std::string_view("config-manager-init"), std::string_view("config-manager"), main}) {
    if (Json* container = find_container(pod, name)) {
      add_mount(*container, JsonObject{{"name", "config"}, {"mountPath", "/config"}});
      add_mount(*container, JsonObject{{"name", config}, {"mountPath", "/available-configs"}});
    }
  }
  add_volume(pod, config_map_volume(config, config, {}));
  add_volume(pod, JsonObject{{"name", "config"}, {"emptyDir", JsonObject{}}});
  if (!get_bool(pod, {"hostPID"})) set(pod, {"shareProcessNamespace"}, true);
  return {};
}

void move_mps_root(const View& view, Json& pod) {
  const std::string& root = view.spec.device_plugin.mps.root;
  if (root.empty() || root == "/run/nvidia/mps") return;
  if (Json* volume = find_volume(pod, "mps-root")) set(*volume, {"hostPath", "path"}, root);
  if (Json* volume = find_volume(pod, "mps-shm"))
    set(*volume, {"hostPath", "path"}, (fs::path(root) / "shm").lexically_normal().string());
}

}  // namespace

Result<> shape_validator(const View& view, Json& daemonset) {
  const policy::ValidatorSpec& validator = view.spec.validator;
  TRY(shape_main(view, daemonset, "nvidia-operator-validator", validator, "validator", "VALIDATOR_IMAGE"));
  if (!view.spec.device_plugin.enabled) drop_container(pod_spec(daemonset), "plugin-validation");
  shape_runtime_class(view, daemonset, "toolkit-validation");
  Json& pod = pod_spec(daemonset);
  std::string image = TRY(resolve_image(validator, "validator", "VALIDATOR_IMAGE", view.facts.env));
  for (std::string_view name : {"cuda-validation", "plugin-validation"}) {
    Json* check = find_container(pod, "initContainers", name);
    if (!check) continue;
    if (name == "plugin-validation") insert_env(*check, "NODE_NAME", "MIG_STRATEGY", view.spec.mig.strategy);
    set_env(*check, "VALIDATOR_IMAGE", image);
    set_env(*check, "VALIDATOR_IMAGE_PULL_POLICY", validator.image_pull_policy);
    if (!validator.image_pull_secrets.empty())
      set_env(*check, "VALIDATOR_IMAGE_PULL_SECRETS", join(validator.image_pull_secrets, ","));
    if (std::string_view name_of_class = get_string(pod, {"runtimeClassName"}); !name_of_class.empty())
      set_env(*check, "VALIDATOR_RUNTIME_CLASS", name_of_class);
    set_env(*check, name == "cuda-validation" ? validator.cuda.env : validator.plugin.env);
  }
  return {};
}

Result<> shape_device_plugin(const View& view, Json& daemonset) {
  const policy::DevicePluginSpec& plugin = view.spec.device_plugin;
  TRY(shape_main(view, daemonset, "nvidia-device-plugin", plugin, "devicePlugin", kDevicePluginImage, false));
  Json& pod = pod_spec(daemonset);
  Json* main = find_container(pod, "containers", "nvidia-device-plugin");
  if (view.spec.gds.enabled) {
    set_env(*main, "GDS_ENABLED", "true");
    set_env(*main, "MOFED_ENABLED", "true");
  }
  if (view.spec.gdrcopy.enabled) set_env(*main, "GDRCOPY_ENABLED", "true");
  if (!plugin.config.name.empty()) set_env(*main, "CONFIG_FILE", "/config/config.yaml");
  set_mig(view, *main);
  if (view.spec.cdi.enabled) {
    set_env(*main, "CDI_ENABLED", "true");
    set_env(*main, "DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri");
    set_env(*main, "CDI_ANNOTATION_PREFIX", "cdi.k8s.io/");
    set_cdi_hook(view, *main);
  }
  if (!plugin.mps.root.empty()) set_env(*main, "MPS_ROOT", plugin.mps.root);
  set_env(*main, plugin.env);
  move_mps_root(view, pod);
  shape_runtime_class(view, daemonset, "nvidia-device-plugin");
  return shape_config_manager(view, daemonset, "nvidia-device-plugin", plugin.resources);
}

Result<> shape_mps(const View& view, Json& daemonset) {
  const policy::DevicePluginSpec& plugin = view.spec.device_plugin;
  TRY(shape_main(view, daemonset, "mps-control-daemon-ctr", plugin, "devicePlugin", kDevicePluginImage, false,
                 false));
  Json& pod = pod_spec(daemonset);
  Json* main = find_container(pod, "containers", "mps-control-daemon-ctr");
  if (Json* mounts = find_container(pod, "initContainers", "mps-control-daemon-mounts")) {
    set_image(pod, *mounts, str(get_string(*main, {"image"})), plugin);
    set_resources(*mounts, plugin.resources);
  }
  if (!plugin.config.name.empty()) set_env(*main, "CONFIG_FILE", "/config/config.yaml");
  set_mig(view, *main);
  move_mps_root(view, pod);
  shape_runtime_class(view, daemonset, "mps-control-daemon-ctr");
  return shape_config_manager(view, daemonset, "mps-control-daemon-ctr", plugin.resources);
}

Result<> shape_dcgm(const View& view, Json& daemonset) {
  TRY(shape_main(view, daemonset, "nvidia-dcgm-ctr", view.spec.dcgm, "dcgm", "DCGM_IMAGE"));
  shape_runtime_class(view, daemonset, "nvidia-dcgm-ctr");
  return {};
}

bool wants_pod_metadata(const policy::DcgmExporterSpec& exporter) {
  if (exporter.enable_pod_labels || exporter.enable_pod_uid) return true;
  for (const policy::EnvVar& variable : exporter.env)
    if ((variable.name == "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS" ||
         variable.name == "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID") &&
        to_lower(variable.value) == "true")
      return true;
  return false;
}

Result<> shape_dcgm_exporter(const View& view, Json& daemonset) {
  const policy::DcgmExporterSpec& exporter = view.spec.dcgm_exporter;
  TRY(shape_main(view, daemonset, "nvidia-dcgm-exporter", exporter, "dcgmExporter", "DCGM_EXPORTER_IMAGE",
                 false));
  Json& pod = pod_spec(daemonset);
  Json* main = find_container(pod, "containers", "nvidia-dcgm-exporter");
  if (view.spec.dcgm.enabled) set_env(*main, "DCGM_REMOTE_HOSTENGINE_INFO", "nvidia-dcgm:5555");
  if (exporter.hpc_job_mapping.enabled) {
    const std::string& directory = exporter.hpc_job_mapping.directory;
    set_env(*main, "DCGM_HPC_JOB_MAPPING_DIR", directory);
    add_mount(*main, JsonObject{{"name", "hpc-job-mapping"}, {"mountPath", directory}, {"readOnly", true}});
    add_volume(pod, host_path_volume("hpc-job-mapping", directory, "DirectoryOrCreate"));
  }
  if (exporter.enable_pod_labels) set_env(*main, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "true");
  if (exporter.enable_pod_uid) set_env(*main, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "true");
  if (!exporter.pod_label_allowlist_regex.empty())
    set_env(*main, "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
            join(exporter.pod_label_allowlist_regex, ","));
  if (!exporter.config.name.empty()) {
    constexpr std::string_view kFile = "/etc/dcgm-exporter/dcgm-metrics.csv";
    const std::string key = "dcgm-metrics.csv";
    set_env(*main, "DCGM_EXPORTER_COLLECTORS", kFile);
    add_mount(
        *main,
        JsonObject{{"name", "metrics-config"}, {"mountPath", kFile}, {"subPath", key}, {"readOnly", true}});
    add_volume(pod, config_map_volume("metrics-config", exporter.config.name, std::vector<std::string>{key}));
  }
  set_env(*main, exporter.env);
  // After the user's variables, so that one of theirs counts (operands-driver-validator.md, D-05).
  if (!view.spec.dcgm.enabled && env_value(*main, "DCGM_REMOTE_HOSTENGINE_INFO").starts_with("localhost"))
    use_host_network(pod);
  std::string from_config_map = env_value(*main, "DCGM_EXPORTER_CONFIGMAP_DATA");
  if (wants_pod_metadata(exporter) || (!from_config_map.empty() && from_config_map != "none"))
    set(pod, {"automountServiceAccountToken"}, true);
  if (exporter.host_pid) set(pod, {"hostPID"}, true);
  for (const auto& [key, value] : exporter.annotations)
    set(daemonset, {"spec", "template", "metadata", "annotations", key}, value);
  shape_runtime_class(view, daemonset, "nvidia-dcgm-exporter");
  return {};
}

Result<> shape_gfd(const View& view, Json& daemonset) {
  TRY(shape_main(view, daemonset, "gpu-feature-discovery", view.spec.gfd, "gfd", "GFD_IMAGE", false));
  Json* main = find_container(pod_spec(daemonset), "containers", "gpu-feature-discovery");
  if (view.facts.openshift()) set_env(*main, "USE_NODE_FEATURE_API", "false");
  set_env(*main, view.spec.gfd.env);
  if (!view.spec.device_plugin.config.name.empty()) set_env(*main, "CONFIG_FILE", "/config/config.yaml");
  set_mig(view, *main);
  shape_runtime_class(view, daemonset, "gpu-feature-discovery");
  return shape_config_manager(view, daemonset, "gpu-feature-discovery", view.spec.gfd.resources);
}

Result<> shape_mig_manager(const View& view, Json& daemonset) {
  const policy::MigManagerSpec& manager = view.spec.mig_manager;
  TRY(shape_main(view, daemonset, "nvidia-mig-manager", manager, "migManager", "MIG_MANAGER_IMAGE", false));
  Json& pod = pod_spec(daemonset);
  Json* main = find_container(pod, "containers", "nvidia-mig-manager");
  Json* volume = find_volume(pod, "mig-parted-config");
  if (!manager.config.name.empty() && manager.config.name != "default-mig-parted-config") {
    set_env(*main, "CONFIG_FILE", "/mig-parted-config/config.yaml");
    if (volume) set(*volume, {"configMap", "name"}, manager.config.name);
  } else {
    set_env(*main, "DEFAULT_CONFIG_FILE", "/mig-parted-config/config-default.yaml");
    if (volume)
      set(*volume, {"configMap", "items"},
          JsonArray{JsonObject{{"key", "config.yaml"}, {"path", "config-default.yaml"}}});
  }
  if (!manager.gpu_clients_config.name.empty())
    if (Json* clients = find_volume(pod, "gpu-clients"))
      set(*clients, {"configMap", "name"}, manager.gpu_clients_config.name);
  if (view.spec.cdi.enabled) {
    set_env(*main, "CDI_ENABLED", "true");
    set_cdi_hook(view, *main);
  }
  set_env(*main, manager.env);
  shape_runtime_class(view, daemonset, "nvidia-mig-manager");
  return {};
}

Result<> shape_node_status_exporter(const View& view, Json& daemonset) {
  return shape_main(view, daemonset, "nvidia-node-status-exporter", view.spec.node_status_exporter,
                    "nodeStatusExporter", "VALIDATOR_IMAGE");
}

}  // namespace gpuop::op
