// The declaration of ClusterPolicy: every field of operator.md §1.3, once.
#include "policy/cluster_policy.h"

#include <algorithm>
#include <cctype>

#include "policy/crds.h"
#include "policy/schema.h"
#include "policy/upgrade_policy.h"

namespace gpuop::policy {

namespace {

constexpr const char* kDetected = "ignored; the runtime is detected";
constexpr const char* kNoEffect = "ignored";

// As the API server takes a taint's key: [prefix/]name.
bool matches_taint_key(std::string_view text) {
  const auto slash = text.find('/');
  const auto name = slash == std::string_view::npos ? text : text.substr(slash + 1);
  const auto word = [](std::string_view part, std::size_t most) {
    const auto edge = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    return !part.empty() && part.size() <= most && edge(part.front()) && edge(part.back()) &&
           std::ranges::all_of(part, [&](char c) { return edge(c) || c == '-' || c == '_' || c == '.'; });
  };
  return word(name, 63) && (slash == std::string_view::npos || word(text.substr(0, slash), 253));
}

constexpr const char* kTaintKey =
    "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

}  // namespace

void describe(Fields<OperatorSpec::Metrics>& f) {
  f.add("serviceMonitor", &OperatorSpec::Metrics::service_monitor,
        "Settings of the operator's own ServiceMonitor.");
}

void describe(Fields<OperatorSpec>& f) {
  f.add("defaultRuntime", &OperatorSpec::default_runtime, "Container runtime.").deprecated(kDetected);
  f.add("runtimeClass", &OperatorSpec::runtime_class, "Name and handler of the main RuntimeClass.")
      .default_value("nvidia");
  f.add("initContainer", &OperatorSpec::init_container, "Image of init containers.").deprecated(kNoEffect);
  f.add("labels", &OperatorSpec::labels, "Labels of the operator; accepted, not used by the controller.");
  f.add("annotations", &OperatorSpec::annotations,
        "Annotations of the operator; accepted, not used by the controller.");
  f.add("metrics", &OperatorSpec::metrics, "The operator's own metrics.");
  f.add("use_ocp_driver_toolkit", &OperatorSpec::use_ocp_driver_toolkit,
        "Build kernel modules in OpenShift's driver-toolkit image; when absent, true on OpenShift.");
}

void describe(Fields<DaemonsetsSpec::RollingUpdate>& f) {
  f.add("maxUnavailable", &DaemonsetsSpec::RollingUpdate::max_unavailable,
        "How many pods of a DaemonSet may be away during an update: a count or N%.");
}

void describe(Fields<DaemonsetsSpec>& f) {
  f.add("labels", &DaemonsetsSpec::labels, "Labels merged into every operand's DaemonSet and pods.");
  f.add("annotations", &DaemonsetsSpec::annotations,
        "Annotations merged into every operand's DaemonSet and pods.");
  f.add("tolerations", &DaemonsetsSpec::tolerations, "When not empty, replaces the operands' tolerations.")
      .items(toleration_schema());
  f.add("priorityClassName", &DaemonsetsSpec::priority_class_name, "Replaces system-node-critical.");
  f.add("updateStrategy", &DaemonsetsSpec::update_strategy,
        "How operands are updated; drivers always OnDelete.")
      .one_of({"RollingUpdate", "OnDelete"})
      .default_value("RollingUpdate");
  f.add("rollingUpdate", &DaemonsetsSpec::rolling_update, "Settings of rolling updates.");
  f.add("podSecurityContext", &DaemonsetsSpec::pod_security_context,
        "Replaces the security context of operand pods.")
      .as(pod_security_context_schema());
}

void describe(Fields<DriverSpec::RepoConfig>& f) {
  f.add("configMapName", &DriverSpec::RepoConfig::config_map_name,
        "ConfigMap with package repository files.");
}
void describe(Fields<DriverSpec::Licensing>& f) {
  f.add("configMapName", &DriverSpec::Licensing::config_map_name, "ConfigMap with gridd.conf.")
      .deprecated("put gridd.conf in a Secret and name it in secretName");
  f.add("secretName", &DriverSpec::Licensing::secret_name, "Secret with gridd.conf and the client token.");
  f.add("nlsEnabled", &DriverSpec::Licensing::nls_enabled,
        "Also mount the token of the NVIDIA License System.");
}
void describe(Fields<DriverSpec::VirtualTopology>& f) {
  f.add("config", &DriverSpec::VirtualTopology::config, "ConfigMap with nvidia-topologyd.conf.");
}

void describe(Fields<DriverSpec>& f) {
  add_enabled(f, "Deploy the driver in a container; off for nodes whose image brings it.");
  f.add("useNvidiaDriverCRD", &DriverSpec::use_nvidia_driver_crd, "Leave drivers to NVIDIADriver resources.");
  f.add("usePrecompiled", &DriverSpec::use_precompiled, "Use precompiled modules: one DaemonSet per kernel.");
  f.add("useOpenKernelModules", &DriverSpec::use_open_kernel_modules, "Open kernel modules.")
      .deprecated("has no effect; use kernelModuleType");
  f.add("kernelModuleType", &DriverSpec::kernel_module_type, "Which kernel modules to load.")
      .one_of({"auto", "open", "proprietary"})
      .default_value("auto");
  f.add("startupProbe", &DriverSpec::startup_probe, "Startup probe of the driver container.");
  f.add("livenessProbe", &DriverSpec::liveness_probe, "Liveness probe of the driver container.");
  f.add("readinessProbe", &DriverSpec::readiness_probe, "Readiness probe of the driver container.");
  f.add("rdma", &DriverSpec::rdma, "GPUDirect RDMA.");
  f.add("upgradePolicy", &DriverSpec::upgrade_policy, "Automatic driver upgrades; when absent they are off.");
  add_container(f);
  f.add("manager", &DriverSpec::manager, "The driver manager, an init container that frees the GPUs.");
  f.add("repoConfig", &DriverSpec::repo_config, "Package repositories for building the driver.");
  f.add("certConfig", &DriverSpec::cert_config, "CA certificates for those repositories.");
  f.add("licensingConfig", &DriverSpec::licensing_config, "vGPU licensing.");
  f.add("virtualTopology", &DriverSpec::virtual_topology, "vGPU topology daemon.");
  f.add("kernelModuleConfig", &DriverSpec::kernel_module_config,
        "Kernel module parameters, one file MODULE.conf a module.");
  f.add("secretEnv", &DriverSpec::secret_env,
        "Secret whose keys become environment variables of the driver.");
}

void describe(Fields<ToolkitSpec>& f) {
  add_enabled(f, "Deploy the container toolkit.");
  add_container(f);
  f.add("installDir", &ToolkitSpec::install_dir, "Where the toolkit is installed on the host.")
      .default_value("/usr/local/nvidia");
}

void describe(Fields<DefaultedConfig>& f) {
  f.add("name", &DefaultedConfig::name, "ConfigMap with one configuration a key.");
  f.add("default", &DefaultedConfig::default_config, "Key for nodes that select none.");
}
void describe(Fields<DevicePluginSpec::Mps>& f) {
  f.add("root", &DevicePluginSpec::Mps::root, "MPS root on the host.").default_value("/run/nvidia/mps");
}
void describe(Fields<DevicePluginSpec>& f) {
  add_enabled(f, "Deploy the device plugin, and the MPS control daemon with it.");
  add_container(f);
  f.add("config", &DevicePluginSpec::config, "Device plugin configurations.");
  f.add("mps", &DevicePluginSpec::mps, "Multi-Process Service.");
}

void describe(Fields<DcgmSpec>& f) {
  add_enabled(f, "Deploy a standalone DCGM host engine.");
  f.add("hostPort", &DcgmSpec::host_port, "Port on the host.").int32().deprecated(kNoEffect);
  add_container(f);
}

void describe(Fields<DcgmExporterSpec::Service>& f) {
  f.add("type", &DcgmExporterSpec::Service::type, "Type of the Service.");
  f.add("internalTrafficPolicy", &DcgmExporterSpec::Service::internal_traffic_policy, "Cluster or Local.");
}
void describe(Fields<DcgmExporterSpec::HpcJobMapping>& f) {
  f.add("enabled", &DcgmExporterSpec::HpcJobMapping::enabled, "Add HPC job labels to metrics.");
  f.add("directory", &DcgmExporterSpec::HpcJobMapping::directory,
        "Folder on the host with job mapping files.")
      .default_value("/var/lib/dcgm-exporter/job-mapping");
}
void describe(Fields<DcgmExporterSpec>& f) {
  add_enabled(f, "Deploy the metrics exporter.");
  add_container(f);
  f.add("annotations", &DcgmExporterSpec::annotations, "Annotations of the exporter's pods.");
  f.add("config", &DcgmExporterSpec::config, "ConfigMap whose key dcgm-metrics.csv lists the metrics.");
  f.add("serviceMonitor", &DcgmExporterSpec::service_monitor,
        "ServiceMonitor of the exporter; none when absent.");
  f.add("service", &DcgmExporterSpec::service, "Settings of the exporter's Service.");
  f.add("hostPID", &DcgmExporterSpec::host_pid, "Share the host's PID namespace.");
  f.add("hpcJobMapping", &DcgmExporterSpec::hpc_job_mapping, "Mapping of GPUs to HPC jobs.");
  f.add("enablePodLabels", &DcgmExporterSpec::enable_pod_labels, "Add pod labels to metrics.");
  f.add("enablePodUID", &DcgmExporterSpec::enable_pod_uid, "Add the pod's UID to metrics.");
  f.add("podLabelAllowlistRegex", &DcgmExporterSpec::pod_label_allowlist_regex,
        "Expressions that a pod label's key must match to be added.");
}

void describe(Fields<ClusterPolicySpec::Mig>& f) {
  f.add("strategy", &ClusterPolicySpec::Mig::strategy,
        "How MIG devices are advertised; when absent, the device plugin decides.")
      .one_of({"none", "single", "mixed"});
}

void describe(Fields<MigManagerSpec::Config>& f) {
  f.add("name", &MigManagerSpec::Config::name, "ConfigMap with key config.yaml.");
  f.add("default", &MigManagerSpec::Config::default_config,
        "Initial nvidia.com/mig.config label of a MIG-capable node.")
      .one_of({"all-disabled", ""})
      .default_value("all-disabled");
}
void describe(Fields<MigManagerSpec>& f) {
  add_enabled(f, "Deploy the MIG manager.");
  add_container(f);
  f.add("config", &MigManagerSpec::config, "MIG geometries.");
  f.add("gpuClientsConfig", &MigManagerSpec::gpu_clients_config,
        "ConfigMap whose key clients.yaml lists host services to stop during a change.");
}

void describe(Fields<ValidatorSpec::Check>& f) {
  add_env(f);
}
void describe(Fields<ValidatorSpec>& f) {
  add_container(f);
  f.add("plugin", &ValidatorSpec::plugin, "The device plugin's check.");
  f.add("toolkit", &ValidatorSpec::toolkit, "The toolkit's check.");
  f.add("driver", &ValidatorSpec::driver, "The driver's check.");
  f.add("cuda", &ValidatorSpec::cuda, "The CUDA check.");
  f.add("vfioPCI", &ValidatorSpec::vfio_pci, "The VFIO check.");
  f.add("vgpuManager", &ValidatorSpec::vgpu_manager, "The vGPU manager's check.");
  f.add("vgpuDevices", &ValidatorSpec::vgpu_devices, "The vGPU devices' check.");
}

void describe(Fields<Sidecar>& f) {
  add_enabled(f, "Run this container beside the driver.");
  add_image(f);
  add_args(f);
  add_env(f);
}

void describe(Fields<SandboxWorkloadsSpec>& f) {
  f.add("enabled", &SandboxWorkloadsSpec::enabled, "Allow GPU workloads in virtual machines.");
  f.add("defaultWorkload", &SandboxWorkloadsSpec::default_workload,
        "Workload of nodes without nvidia.com/gpu.workload.config.")
      .one_of({"container", "vm-passthrough", "vm-vgpu"})
      .default_value("container");
  f.add("mode", &SandboxWorkloadsSpec::mode, "Who runs the virtual machines.")
      .one_of({"kubevirt", "kata"})
      .default_value("kubevirt");
}

void describe(Fields<VfioManagerSpec>& f) {
  add_enabled(f, "Deploy the VFIO manager.");
  add_container(f);
  f.add("driverManager", &VfioManagerSpec::driver_manager, "Its init container.");
}
void describe(Fields<Operand>& f) {
  add_enabled(f, "Deploy this operand.");
  add_container(f);
}
void describe(Fields<VgpuManagerSpec>& f) {
  add_enabled(f, "Deploy the vGPU host driver.");
  add_container(f);
  f.add("driverManager", &VgpuManagerSpec::driver_manager, "Its init container.");
  f.add("kernelModuleConfig", &VgpuManagerSpec::kernel_module_config,
        "Kernel module parameters, one file MODULE.conf a module.");
}
void describe(Fields<VgpuDeviceManagerSpec::Config>& f) {
  f.add("name", &VgpuDeviceManagerSpec::Config::name, "ConfigMap with vGPU device configurations.");
  f.add("default", &VgpuDeviceManagerSpec::Config::default_config, "Configuration of nodes that select none.")
      .default_value("default");
}
void describe(Fields<VgpuDeviceManagerSpec>& f) {
  add_enabled(f, "Deploy the vGPU device manager.");
  add_container(f);
  f.add("config", &VgpuDeviceManagerSpec::config, "vGPU device configurations.");
}

void describe(Fields<CdiSpec>& f) {
  f.add("enabled", &CdiSpec::enabled, "Give containers their GPUs by the Container Device Interface.")
      .default_value(true);
  f.add("default", &CdiSpec::is_default, "Make CDI the default mode.")
      .default_value(false)
      .deprecated(kNoEffect);
  f.add("nriPluginEnabled", &CdiSpec::nri_plugin_enabled,
        "Inject devices by the runtime's NRI plugin, without RuntimeClasses.")
      .default_value(false);
}

void describe(Fields<KataManagerSpec::RuntimeClass::Artifacts>& f) {
  using Artifacts = KataManagerSpec::RuntimeClass::Artifacts;
  f.add("url", &Artifacts::url, "Where the artifacts are.").required();
  f.add("pullSecret", &Artifacts::pull_secret, "Secret for that place.");
}
void describe(Fields<KataManagerSpec::RuntimeClass>& f) {
  using RuntimeClass = KataManagerSpec::RuntimeClass;
  f.add("name", &RuntimeClass::name, "Name of the RuntimeClass.").required();
  f.add("artifacts", &RuntimeClass::artifacts, "Kata artifacts.").required();
  f.add("nodeSelector", &RuntimeClass::node_selector, "Nodes for it.");
}
void describe(Fields<KataManagerSpec::Config>& f) {
  f.add("artifactsDir", &KataManagerSpec::Config::artifacts_dir, "Folder on the host for artifacts.")
      .default_value("/opt/nvidia-gpu-operator/artifacts/runtimeclasses");
  f.add("runtimeClasses", &KataManagerSpec::Config::runtime_classes, "Kata RuntimeClasses.");
}
void describe(Fields<KataManagerSpec>& f) {
  add_enabled(f, "Deploy the Kata manager.");
  add_container(f);
  f.add("config", &KataManagerSpec::config, "Kata configuration.");
}

void describe(Fields<CcManagerSpec>& f) {
  add_enabled(f, "Deploy the confidential computing manager.");
  add_container(f);
  f.add("defaultMode", &CcManagerSpec::default_mode, "Confidential computing mode of nodes that select none.")
      .one_of({"on", "off", "devtools"});
}

void describe(Fields<HostPaths>& f) {
  f.add("rootFS", &HostPaths::root_fs, "The host's root file system, where chroot works; / when absent.");
  f.add("driverInstallDir", &HostPaths::driver_install_dir,
        "Where the driver's files are on the host; /run/nvidia/driver when absent.");
  f.add("kubeletRootDir", &HostPaths::kubelet_root_dir, "The kubelet's root directory.")
      .default_value("/var/lib/kubelet");
}

void describe(Fields<FleetSpec::StartupTaint>& f) {
  using Taint = FleetSpec::StartupTaint;
  f.add("enabled", &Taint::enabled,
        "Keep pods off a GPU node by a NoSchedule taint from when it joins or starts until its GPUs are "
        "validated.");
  f.add("key", &Taint::key, "The taint's key.")
      .pattern(kTaintKey, matches_taint_key, "be a key such as example.com/gpu.not-ready");
}

void describe(Fields<FleetSpec::DedicatedTaint>& f) {
  using Taint = FleetSpec::DedicatedTaint;
  f.add("enabled", &Taint::enabled,
        "Keep pods that do not tolerate it off GPU nodes by a NoSchedule taint; Kubernetes tolerates it for "
        "pods "
        "that ask for GPUs where the admission plugin ExtendedResourceToleration is on.");
  f.add("key", &Taint::key, "The taint's key.")
      .pattern(kTaintKey, matches_taint_key, "be a key such as nvidia.com/gpu");
}

void describe(Fields<FleetSpec>& f) {
  f.add("startupTaint", &FleetSpec::startup_taint, "A taint of GPU nodes that are not ready yet.");
  f.add("dedicatedTaint", &FleetSpec::dedicated_taint, "A taint of every GPU node.");
}

void describe(Fields<ClusterPolicySpec>& f) {
  using Spec = ClusterPolicySpec;
  f.add("operator", &Spec::op, "The operator itself.").required();
  f.add("daemonsets", &Spec::daemonsets, "What all operand DaemonSets have in common.").required();
  f.add("driver", &Spec::driver, "The GPU driver.").required();
  f.add("toolkit", &Spec::toolkit, "The container toolkit.").required();
  f.add("devicePlugin", &Spec::device_plugin, "The Kubernetes device plugin.").required();
  f.add("dcgmExporter", &Spec::dcgm_exporter, "The metrics exporter.").required();
  f.add("dcgm", &Spec::dcgm, "The standalone DCGM host engine.").required();
  f.add("nodeStatusExporter", &Spec::node_status_exporter, "The exporter of node status.").required();
  f.add("gfd", &Spec::gfd, "GPU feature discovery.").required();
  f.add("mig", &Spec::mig, "Multi-Instance GPU.");
  f.add("migManager", &Spec::mig_manager, "The MIG manager.");
  f.add("psp", &Spec::psp, "Pod security policies.").deprecated(kNoEffect);
  f.add("psa", &Spec::psa, "Label the operator's namespace for Pod Security Admission.");
  f.add("validator", &Spec::validator, "The validator.");
  f.add("gds", &Spec::gds, "GPUDirect Storage.");
  f.add("gdrcopy", &Spec::gdrcopy, "GDRCopy.");
  f.add("sandboxWorkloads", &Spec::sandbox_workloads, "GPU workloads in virtual machines.");
  f.add("vfioManager", &Spec::vfio_manager, "The VFIO manager.");
  f.add("sandboxDevicePlugin", &Spec::sandbox_device_plugin, "The device plugin for KubeVirt.");
  f.add("kataSandboxDevicePlugin", &Spec::kata_sandbox_device_plugin, "The device plugin for Kata.");
  f.add("vgpuManager", &Spec::vgpu_manager, "The vGPU host driver.");
  f.add("vgpuDeviceManager", &Spec::vgpu_device_manager, "The vGPU device manager.");
  f.add("cdi", &Spec::cdi, "The Container Device Interface.");
  f.add("kataManager", &Spec::kata_manager, "The Kata manager.")
      .deprecated("ignored; install Kata Containers itself");
  f.add("ccManager", &Spec::cc_manager, "The confidential computing manager.");
  f.add("hostPaths", &Spec::host_paths, "Paths on the host.");
  f.add("fleet", &Spec::fleet, "Additions that upstream's operator does not have and leaves alone.");
}

const Schema& cluster_policy_spec_schema() {
  return schema_of<ClusterPolicySpec>();
}

Result<ClusterPolicy> parse_cluster_policy(const Json& object) {
  ClusterPolicy policy;
  policy.name = str(get_string(object, {"metadata", "name"}));
  policy.uid = str(get_string(object, {"metadata", "uid"}));
  const Schema& schema = cluster_policy_spec_schema();
  TRY_IN(read_spec(schema, object, &policy.spec, policy.notes), "load ClusterPolicy '" + policy.name + "'");
  return policy;
}

Result<> check(const ClusterPolicySpec& spec) {
  if (!spec.cdi.nri_plugin_enabled) return {};
  if (!spec.cdi.enabled) return fail(Code::kInvalid, "the NRI Plugin cannot be enabled when CDI is disabled");
  if (!spec.toolkit.enabled)
    return fail(Code::kInvalid, "the NRI Plugin cannot be enabled when the Container Toolkit is disabled");
  return {};
}

}  // namespace gpuop::policy
