// How each operand's DaemonSet is shaped after the policy (operator.md §5). Private to this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operator/render.h"

namespace gpuop::op {

// What every step sees.
struct View {
  const policy::ClusterPolicy& policy;
  const policy::ClusterPolicySpec& spec;
  const ClusterFacts& facts;
};

// --- for any operand (shape_common.cc) ---

// Update strategy, priority, tolerations, security context.
Result<> shape_common(const View& view, Json& daemonset);
// hostPaths.rootFS, driverInstallDir and kubeletRootDir.
void shape_host_paths(const View& view, Json& daemonset);
// Init containers whose name holds "validation".
Result<> shape_validations(const View& view, Json& daemonset);
// runtimeClassName, or the NRI annotation for `container`.
void shape_runtime_class(const View& view, Json& daemonset, std::string_view container);
// daemonsets.labels and annotations, on the pod template and the object.
void shape_metadata(const View& view, Json& daemonset);
// Image, resources, env, args and host network of an operand's main container, as most operands have them.
// `env` and `args` say whether the policy's apply.
Result<> shape_main(const View& view, Json& daemonset, std::string_view container,
                    const policy::Operand& operand, std::string_view what, std::string_view variable,
                    bool env = true, bool args = true);
// Our own image needs no shell loops, no delays and no entry point script (architecture §7).
void shape_own_image(const View& view, Json& daemonset);

// --- operands ---

Result<> shape_toolkit(const View& view, Json& daemonset);
Result<> shape_validator(const View& view, Json& daemonset);
Result<> shape_device_plugin(const View& view, Json& daemonset);
Result<> shape_mps(const View& view, Json& daemonset);
Result<> shape_dcgm(const View& view, Json& daemonset);
Result<> shape_dcgm_exporter(const View& view, Json& daemonset);
Result<> shape_gfd(const View& view, Json& daemonset);
Result<> shape_mig_manager(const View& view, Json& daemonset);
Result<> shape_node_status_exporter(const View& view, Json& daemonset);
// Whether pod labels or UIDs are put on metrics, by field or by raw variable.
bool wants_pod_metadata(const policy::DcgmExporterSpec& exporter);

// --- driver (shape_driver.cc) ---

// One layout of the driver DaemonSet.
struct DriverLayout {
  std::string name;  // of the DaemonSet
  GpuNode node;      // a node that it is for: OS and, when precompiled, kernel
  bool precompiled = false;
  std::string rhcos;  // RHCOS version with the driver toolkit; "" without
};
// The layouts that the GPU nodes ask for, of DaemonSets called `base`; kInvalid when the policy and the nodes
// do not fit.
Result<std::vector<DriverLayout>> driver_layouts(const View& view, const std::string& base, bool precompiled);
Result<> shape_driver(const View& view, Json& daemonset, const DriverLayout& layout);
bool uses_driver_toolkit(const View& view);

// What the driver's and the vGPU manager's DaemonSets share: the image, which carries the OS in its tag
// unless a digest names it; name, labels and node selector of a layout; module parameters from a ConfigMap
// ("": none) as files of /drivers; the driver toolkit's container and the commands that go through it
// (OpenShift).
Result<std::string> os_image(const View& view, const policy::ImageSpec& spec, std::string_view what,
                             std::string_view variable, const std::string& suffix);
void name_layout(const View& view, Json& daemonset, const DriverLayout& layout);
Result<> mount_kernel_module_config(const View& view, Json& pod,
                                    std::initializer_list<std::string_view> containers,
                                    const std::string& name, std::string_view field);
// Says on the DaemonSet which content they have, and on its pods once that has changed.
void note_module_config(const View& view, Json& daemonset, const std::string& name);
void shape_driver_toolkit(const View& view, Json& pod, const DriverLayout& layout, std::string_view main,
                          const std::string& main_image);

// --- virtual machine workloads (shape_vm.cc) ---

Result<> shape_vgpu_manager(const View& view, Json& daemonset, const DriverLayout& layout);
Result<> shape_vgpu_device_manager(const View& view, Json& daemonset);
Result<> shape_sandbox_validator(const View& view, Json& daemonset);
Result<> shape_vfio_manager(const View& view, Json& daemonset);
Result<> shape_sandbox_device_plugin(const View& view, Json& daemonset);
Result<> shape_kata_device_plugin(const View& view, Json& daemonset);
Result<> shape_cc_manager(const View& view, Json& daemonset);

}  // namespace gpuop::op
