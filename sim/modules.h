// What the kernel shows of its modules: shared by the tree's builder, modprobe and the driver's installer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "sim/state/state.h"

namespace gpuop::sim {

fs::path hardware_state_path(const fs::path& kernel_root);

// A simulated module file: lines "version=…" and "vermagic=…".
std::string module_text(std::string_view version, std::string_view kernel_release);
// The release that the tree was built for.
Result<std::string> tree_release(const fs::path& kernel_root);

// /proc/devices without any NVIDIA driver.
std::string base_devices();
// Character majors of the NVIDIA drivers.
constexpr unsigned kMajorNvidia = 195, kMajorUvm = 508, kMajorCaps = 511;

// driver links of every GPU that nothing else has taken, /proc/driver/nvidia and the MIG capabilities.
Result<> bind_gpu_driver(const fs::path& kernel_root, const State& state);
Result<> unbind_gpu_driver(const fs::path& kernel_root);
// What `modprobe -r name` takes out: the module, then what it alone had needed.
std::vector<std::string> removal_order(const std::string& name);
// "key=value" words as /sys/module/NAME/parameters shows them.
Result<> set_module_parameters(const fs::path& kernel_root, const std::string& name,
                               const std::vector<std::string>& words);
// Writes /proc/driver/nvidia/capabilities for the instances that exist now.
Result<> put_capabilities(const fs::path& kernel_root, const State& state);

}  // namespace gpuop::sim
