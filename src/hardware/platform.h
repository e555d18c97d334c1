// What kind of GPU platform this is, before NVML is initialised (device-plugin-gfd-mps.md §3.3,
// container-toolkit-cdi.md §2.2).
#pragma once

#include <filesystem>
#include <string_view>

namespace gpuop::hardware {

// kNone: no NVML library, and none of the others either.
enum class Platform { kNvml, kWsl, kTegra, kNone };

// By libraries that load and files of the kernel. A Tegra whose NVML loads shows itself only by its GPUs'
// names: see is_integrated_gpu().
Platform detect_platform(const std::filesystem::path& nvml_library);
// Whether the dynamic loader takes it; nothing is initialised.
bool library_loads(const std::filesystem::path& library);
// A GPU of a Tegra system: "(nvgpu)" or "NVIDIA Thor" in its NVML name.
bool is_integrated_gpu(std::string_view name);

}  // namespace gpuop::hardware
