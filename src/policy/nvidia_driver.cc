// The declaration of NVIDIADriver: every field of operator.md §1.4, once.
#include "policy/nvidia_driver.h"

#include "policy/crds.h"
#include "policy/schema.h"
#include "policy/upgrade_policy.h"

namespace gpuop::policy {

namespace {

constexpr const char* kDefaultRule = "default NVIDIADriver must not use nodeSelector";

}  // namespace

void describe(Fields<DriverUpgradePolicy>& f) {
  add_upgrade_policy(f, true);
}

void describe(Fields<NvidiaDriverSpec::Licensing>& f) {
  using Licensing = NvidiaDriverSpec::Licensing;
  f.add("secretName", &Licensing::secret_name, "Secret with gridd.conf and the client token.");
  f.add("name", &Licensing::name, "ConfigMap with gridd.conf.")
      .deprecated("put gridd.conf in a Secret and name it in secretName");
  f.add("nlsEnabled", &Licensing::nls_enabled, "Also mount the token of the NVIDIA License System.");
}

void describe(Fields<NvidiaDriverSpec>& f) {
  using Spec = NvidiaDriverSpec;
  f.schema().rules.emplace_back(
      "!(has(self.default) && self.default) || !has(self.nodeSelector) || size(self.nodeSelector) == 0",
      kDefaultRule);
  f.add("default", &Spec::is_default, "Own the GPU nodes that no other NVIDIADriver selects.")
      .default_value(false)
      .required();
  f.add("driverType", &Spec::driver_type, "What kind of driver; cannot be changed.")
      .one_of({"gpu", "vgpu", "vgpu-host-manager"})
      .default_value("gpu")
      .rule("self == oldSelf", "driverType is an immutable field")
      .required();
  f.add("usePrecompiled", &Spec::use_precompiled,
        "Use precompiled modules: one DaemonSet per kernel; cannot be changed.")
      .rule("self == oldSelf", "usePrecompiled is an immutable field");
  f.add("useOpenKernelModules", &Spec::use_open_kernel_modules, "Open kernel modules.")
      .deprecated("has no effect; use kernelModuleType");
  f.add("kernelModuleType", &Spec::kernel_module_type, "Which kernel modules to load.")
      .one_of({"auto", "open", "proprietary"})
      .default_value("auto");
  f.add("startupProbe", &Spec::startup_probe, "Startup probe of the driver container.");
  f.add("livenessProbe", &Spec::liveness_probe, "Liveness probe of the driver container.");
  f.add("readinessProbe", &Spec::readiness_probe, "Readiness probe of the driver container.");
  f.add("rdma", &Spec::rdma, "GPUDirect RDMA.");
  f.add("gds", &Spec::gds, "GPUDirect Storage.");
  f.add("gdrcopy", &Spec::gdrcopy, "GDRCopy.");
  f.add("repository", &Spec::repository, "Registry and path of the image, without its name.");
  f.add("image", &Spec::image, "Image name; with repository and version empty, the whole reference.")
      .default_value("nvcr.io/nvidia/driver")
      .required();
  f.add("version", &Spec::version, "Image tag, or a digest as sha256:HEX.");
  f.add("imagePullPolicy", &Spec::image_pull_policy,
        "Always, Never or IfNotPresent; anything else counts as IfNotPresent.");
  f.add("imagePullSecrets", &Spec::image_pull_secrets, "Names of pull secrets in the operator's namespace.");
  f.add("manager", &Spec::manager, "The driver manager, an init container that frees the GPUs.");
  add_resources(f);
  f.add("args", &Spec::args, "Arguments appended to the driver's.");
  add_env(f);
  f.add("repoConfig", &Spec::repo_config, "Package repositories for building the driver.");
  f.add("certConfig", &Spec::cert_config, "CA certificates for those repositories.");
  f.add("kernelModuleConfig", &Spec::kernel_module_config,
        "Kernel module parameters, one file MODULE.conf a module.");
  f.add("virtualTopologyConfig", &Spec::virtual_topology_config, "vGPU topology daemon.");
  f.add("licensingConfig", &Spec::licensing_config, "vGPU licensing.");
  f.add("secretEnv", &Spec::secret_env, "Secret whose keys become environment variables of the driver.");
  f.add("upgradePolicy", &Spec::upgrade_policy, "Automatic driver upgrades.");
  f.add("nodeSelector", &Spec::node_selector, "Nodes that this resource is for; all GPU nodes when empty.");
  f.add("nodeAffinity", &Spec::node_affinity, "Further conditions on nodes.").as(node_affinity_schema());
  f.add("labels", &Spec::labels, "Labels of the driver's DaemonSets and pods.");
  f.add("annotations", &Spec::annotations, "Annotations of the driver's DaemonSets and pods.");
  f.add("tolerations", &Spec::tolerations, "Tolerations added to that of nvidia.com/gpu.")
      .items(toleration_schema());
  f.add("priorityClassName", &Spec::priority_class_name, "Replaces system-node-critical.");
  f.add("podSecurityContext", &Spec::pod_security_context, "Security context of the driver's pods.")
      .as(pod_security_context_schema());
  f.add("hostNetwork", &Spec::host_network, "Run the pod in the host's network namespace.");
}

const Schema& nvidia_driver_spec_schema() {
  return schema_of<NvidiaDriverSpec>();
}

Result<NvidiaDriver> parse_nvidia_driver(const Json& object) {
  NvidiaDriver driver;
  driver.name = str(get_string(object, {"metadata", "name"}));
  driver.uid = str(get_string(object, {"metadata", "uid"}));
  std::string doing = "load NVIDIADriver '" + driver.name + "'";
  TRY_IN(read_spec(nvidia_driver_spec_schema(), object, &driver.spec, driver.notes), doing);
  if (driver.spec.is_default && !driver.spec.node_selector.empty())
    return fail(Code::kInvalid, doing + ": spec.nodeSelector: " + kDefaultRule);
  return driver;
}

}  // namespace gpuop::policy
