// Operands of virtual machine workloads (operator.md §3.1, §5.7; operands-driver-validator.md §3.14 to
// §3.19).
#include "base/text.h"
#include "operator/pod.h"
#include "operator/shape.h"

namespace gpuop::op {

namespace {

constexpr std::string_view kManager = "k8s-driver-manager";

// The driver manager beside a vGPU or VFIO manager.
Result<> shape_manager(const View& view, Json& daemonset, const policy::Manager& manager,
                       std::string_view what) {
  Json& pod = pod_spec(daemonset);
  Json* container = find_container(pod, "initContainers", kManager);
  if (!container) return {};
  set_image(pod, *container, TRY(resolve_image(manager, what, "DRIVER_MANAGER_IMAGE", view.facts.env)),
            manager);
  set_env(*container, manager.env);
  return {};
}

}  // namespace

Result<> shape_vgpu_manager(const View& view, Json& daemonset, const DriverLayout& layout) {
  const policy::VgpuManagerSpec& manager = view.spec.vgpu_manager;
  constexpr std::string_view kContainer = "nvidia-vgpu-manager-ctr";
  name_layout(view, daemonset, layout);
  Json& pod = pod_spec(daemonset);
  const std::string image =
      TRY(os_image(view, manager, "vgpuManager", "VGPU_MANAGER_IMAGE", os_tag(layout.node)));
  TRY(shape_manager(view, daemonset, manager.driver_manager, "vgpuManager.driverManager"));
  Json* main = find_container(pod, "containers", kContainer);
  set_image(pod, *main, image, manager);
  set_resources(*main, manager.resources);
  set_args(*main, manager.args);
  if (view.facts.openshift()) set_env(*main, "OPENSHIFT_VERSION", view.facts.openshift_version);
  set_env(*main, manager.env);
  TRY(mount_kernel_module_config(view, pod, {kContainer}, manager.kernel_module_config.name,
                                 "spec.vgpuManager.kernelModuleConfig"));
  shape_driver_toolkit(view, pod, layout, kContainer, image);
  if (manager.host_network) use_host_network(pod);
  note_module_config(view, daemonset, manager.kernel_module_config.name);
  return {};
}

Result<> shape_vgpu_device_manager(const View& view, Json& daemonset) {
  const policy::VgpuDeviceManagerSpec& manager = view.spec.vgpu_device_manager;
  constexpr std::string_view kContainer = "nvidia-vgpu-device-manager";
  TRY(shape_main(view, daemonset, kContainer, manager, "vgpuDeviceManager", "VGPU_DEVICE_MANAGER_IMAGE"));
  Json& pod = pod_spec(daemonset);
  if (!manager.config.name.empty()) {
    if (Json* volume = find_volume(pod, "vgpu-config"))
      set(*volume, {"configMap", "name"}, manager.config.name);
  }
  const std::string& chosen = manager.config.default_config;
  set_env(*find_container(pod, "containers", kContainer), "DEFAULT_VGPU_CONFIG",
          chosen.empty() ? "default" : chosen);
  return {};
}

Result<> shape_sandbox_validator(const View& view, Json& daemonset) {
  const policy::ValidatorSpec& validator = view.spec.validator;
  TRY(shape_main(view, daemonset, "nvidia-sandbox-validator", validator, "validator", "VALIDATOR_IMAGE"));
  Json& pod = pod_spec(daemonset);
  if (!view.spec.cc_manager.enabled) drop_container(pod, "cc-manager-validation");
  const std::string& workload = view.spec.sandbox_workloads.default_workload;
  const std::pair<std::string_view, const policy::ValidatorSpec::Check*> checks[] = {
      {"vfio-pci-validation", &validator.vfio_pci},
      {"vgpu-manager-validation", &validator.vgpu_manager},
      {"vgpu-devices-validation", &validator.vgpu_devices}};
  for (const auto& [name, check] : checks) {
    Json* container = find_container(pod, "initContainers", name);
    if (!container) continue;
    set_env(*container, "DEFAULT_GPU_WORKLOAD_CONFIG", workload.empty() ? "container" : workload);
    set_env(*container, check->env);
  }
  return {};
}

Result<> shape_vfio_manager(const View& view, Json& daemonset) {
  const policy::VfioManagerSpec& manager = view.spec.vfio_manager;
  TRY(shape_manager(view, daemonset, manager.driver_manager, "vfioManager.driverManager"));
  return shape_main(view, daemonset, "nvidia-vfio-manager", manager, "vfioManager", "VFIO_MANAGER_IMAGE");
}

Result<> shape_sandbox_device_plugin(const View& view, Json& daemonset) {
  return shape_main(view, daemonset, "nvidia-sandbox-device-plugin-ctr", view.spec.sandbox_device_plugin,
                    "sandboxDevicePlugin", "SANDBOX_DEVICE_PLUGIN_IMAGE");
}

Result<> shape_kata_device_plugin(const View& view, Json& daemonset) {
  return shape_main(view, daemonset, "nvidia-kata-sandbox-device-plugin-ctr",
                    view.spec.kata_sandbox_device_plugin, "kataSandboxDevicePlugin",
                    "KATA_SANDBOX_DEVICE_PLUGIN_IMAGE");
}

Result<> shape_cc_manager(const View& view, Json& daemonset) {
  const policy::CcManagerSpec& manager = view.spec.cc_manager;
  constexpr std::string_view kContainer = "nvidia-cc-manager";
  TRY(shape_main(view, daemonset, kContainer, manager, "ccManager", "CC_MANAGER_IMAGE", false));
  Json& main = *find_container(pod_spec(daemonset), "containers", kContainer);
  if (!manager.default_mode.empty()) set_env(main, "DEFAULT_CC_MODE", manager.default_mode);
  set_env(main, manager.env);
  return {};
}

}  // namespace gpuop::op
