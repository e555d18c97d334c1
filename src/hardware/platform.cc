#include "hardware/platform.h"

#include <dlfcn.h>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::hardware {
namespace {

bool has_tegra_files() {
  if (file_exists(kernel_path("/etc/nv_tegra_release"))) return true;
  auto family = read_file(kernel_path("/sys/devices/soc0/family"), 256);
  return family && to_lower(*family).starts_with("tegra");
}

}  // namespace

bool library_loads(const std::filesystem::path& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

bool is_integrated_gpu(std::string_view name) {
  return name.find("(nvgpu)") != std::string_view::npos || name.find("NVIDIA Thor") != std::string_view::npos;
}

Platform detect_platform(const std::filesystem::path& nvml_library) {
  if (library_loads("libdxcore.so")) return Platform::kWsl;
  bool nvml = library_loads(nvml_library);
  if (!nvml && has_tegra_files()) return Platform::kTegra;
  return nvml ? Platform::kNvml : Platform::kNone;
}

}  // namespace gpuop::hardware
