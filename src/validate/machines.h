// What is proven on nodes whose GPUs go to virtual machines (operands-driver-validator.md §4.2): whole ones
// by VFIO, or shares of them by the vGPU manager. Everything is read anew at each call: sysfs announces
// nothing of it. kNotFound: it may only not have happened yet.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "validate/driver.h"

namespace gpuop::validate {

inline constexpr std::string_view kPassthrough = "vm-passthrough";
inline constexpr std::string_view kVgpu = "vm-vgpu";

// container, vm-passthrough or vm-vgpu: the node's label nvidia.com/gpu.workload.config or, where that is
// absent or none of them, the default; vm-passthrough where that is none either. Pure.
std::string workload_of(const Json& node, std::string_view default_workload);

// Each GPU is bound to the VFIO driver that suits it (hardware/vfio.h; `host`: where the host's root is, for
// its module aliases). The message names those that are not, their driver and their IOMMU group.
Result<> check_vfio(const std::filesystem::path& host);

// The driver of a vGPU host answers. true: one that the host has; false: the vGPU manager container's beneath
// paths.install_dir_ctr.
Result<bool> find_vgpu_manager(const DriverPaths& paths, const RunSmi& run = run_smi);

// GPUs can be shared: all of their virtual functions are there or, where no GPU has any, at least one parent
// of mediated devices is.
Result<> check_vgpu_parents();

// At least one vGPU of NVIDIA is there: a mediated device or, on kernels where the driver has none, a virtual
// function that is given a type.
Result<> check_vgpus();

}  // namespace gpuop::validate
