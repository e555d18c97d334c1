#include "labels/sources.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "hardware/pci.h"

namespace gpuop::labels {
namespace {

constexpr std::uint64_t kMemory64 = 0x00100000;  // IORESOURCE_MEM_64
constexpr int kComputeMajor = 75, kComputeMinor = 76;

// libcuda's few functions that are asked, each an int status and out-parameters.
class Cuda {
 public:
  static Result<Cuda> open() {
    void* handle = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!handle) {
      const char* why = dlerror();
      return fail(Code::kUnavailable, std::string("load libcuda.so.1: ") + (why ? why : "unknown"));
    }
    Cuda cuda(handle);
    TRY(cuda.call("cuInit", 0u));
    return cuda;
  }
  Cuda(Cuda&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Cuda& operator=(Cuda&&) = delete;
  ~Cuda() {
    if (handle_) dlclose(handle_);
  }

  template <class... Args>
  Result<> call(const char* name, Args... args) const {
    auto function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    if (!function) return fail(Code::kUnsupported, std::string(name) + ": this libcuda does not offer it");
    int code = function(args...);
    if (code != 0)
      return fail(Code::kUnavailable, std::string(name) + ": CUDA error " + std::to_string(code));
    return {};
  }

 private:
  explicit Cuda(void* handle) : handle_(handle) {}
  void* handle_;
};

std::string pci_ids() {
  for (const char* path : {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"}) {
    if (auto text = read_file(path)) return std::move(*text);
  }
  return {};
}

}  // namespace

Result<hardware::Inventory> observe_tegra() {
  Cuda cuda = TRY(Cuda::open());
  hardware::Inventory out;
  out.driver_version = "unknown.unknown.unknown";
  TRY(cuda.call("cuDriverGetVersion", &out.cuda_version));
  int count = 0;
  TRY(cuda.call("cuDeviceGetCount", &count));
  for (int i = 0; i < count; ++i) {
    int device = 0;
    TRY(cuda.call("cuDeviceGet", &device, i));
    hardware::Gpu gpu;
    gpu.index = static_cast<unsigned>(i);
    std::array<char, 256> name{};
    TRY(cuda.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()), device));
    gpu.name.assign(name.data(), strnlen(name.data(), name.size()));
    std::size_t memory = 0;
    if (cuda.call("cuDeviceTotalMem_v2", &memory, device) || cuda.call("cuDeviceTotalMem", &memory, device)) {
      gpu.memory_bytes = memory;
    }
    TRY(cuda.call("cuDeviceGetAttribute", &gpu.compute_capability.major, kComputeMajor, device));
    TRY(cuda.call("cuDeviceGetAttribute", &gpu.compute_capability.minor, kComputeMinor, device));
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

Result<hardware::Inventory> observe_vfio() {
  hardware::Inventory out;
  std::string database = pci_ids();
  for (const hardware::PciFunction& function : TRY(hardware::scan_nvidia_gpus())) {
    bool display = function.class_code == 0x030000 || function.class_code == 0x030200;
    if (!display || function.driver != "vfio-pci") continue;
    hardware::Gpu gpu;
    gpu.index = static_cast<unsigned>(out.gpus.size());
    gpu.bus_id = function.address;
    gpu.pci_device_id = static_cast<std::uint32_t>(function.device) << 16 | function.vendor;
    gpu.name = pci_device_name(database, function.vendor, function.device);
    if (gpu.name.empty()) gpu.name = "UNKNOWN_DEVICE";
    auto resource = read_file(kernel_path("/sys/bus/pci/devices") / function.address / "resource", 8192);
    if (resource) gpu.memory_bytes = bar_memory(*resource);
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

std::uint64_t bar_memory(std::string_view resource) {
  std::uint64_t total = 0;
  for (const std::string& line : split(resource, '\n')) {
    auto fields = split_fields(line);
    if (fields.size() != 3) continue;
    auto start = parse_hex(fields[0]), end = parse_hex(fields[1]), flags = parse_hex(fields[2]);
    if (!start || !end || !flags || (*flags & kMemory64) == 0 || *end <= *start) continue;
    total += *end - *start + 1;
  }
  if (total == 0 || total > (1ull << 62)) return 0;
  return std::bit_ceil(total);
}

std::string pci_device_name(std::string_view database, std::uint16_t vendor, std::uint16_t device) {
  bool ours = false;
  for (std::size_t at = 0; at < database.size();) {
    std::size_t end = std::min(database.find('\n', at), database.size());
    std::string_view line = database.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != '\t') {
      if (ours) return {};  // vendors are listed once
      auto id = parse_hex(line.substr(0, 4));
      ours = id && *id == vendor;
    } else if (ours && line.size() > 6 && line[1] != '\t') {
      auto id = parse_hex(line.substr(1, 4));
      if (id && *id == device) return std::string(trim(line.substr(5)));
    }
  }
  return {};
}

}  // namespace gpuop::labels
