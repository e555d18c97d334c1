#include "hardware/inventory.h"

#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "hardware/mig.h"
#include "hardware/pci.h"

namespace gpuop::hardware {

namespace {

bool is_display_adapter(std::string_view name) {
  return name == "DGX Display" || name == "NVIDIA DGX Display";
}

int cpu_numa_node(const std::string& bus_id) {
  auto text = read_file(kernel_path("/sys/bus/pci/devices") / bus_id / "numa_node", 64);
  return text ? static_cast<int>(parse_int(trim(*text)).value_or(-1)) : -1;
}

// The compute instance's slices, by looking for the enumerator that has its profile id.
std::optional<unsigned> compute_slices(const Nvml& nvml, abi::GpuInstance instance, unsigned profile_id) {
  for (unsigned profile = 0; profile < abi::kComputeInstanceProfiles; ++profile) {
    auto info = nvml.compute_instance_profile(instance, profile);
    if (info && info->id == profile_id) return compute_instance_slices(profile);
  }
  return std::nullopt;
}

Result<MigDevice> read_mig(const Nvml& nvml, const Gpu& gpu, Nvml::Device parent, Nvml::Device handle,
                           unsigned index) {
  MigDevice mig;
  mig.index = index;
  mig.uuid = TRY(nvml.uuid(handle));
  mig.gpu_instance_id = TRY(nvml.gpu_instance_id(handle));
  mig.compute_instance_id = TRY(nvml.compute_instance_id(handle));
  if (auto attributes = nvml.attributes(handle)) mig.attributes = *attributes;
  if (gpu.memory_bytes) {
    if (auto profile = mig_profile(nvml, parent, handle, *gpu.memory_bytes))
      mig.profile = std::move(*profile);
  }
  return mig;
}

void read_mig_devices(const Nvml& nvml, Nvml::Device device, Gpu& gpu, std::vector<std::string>& warnings) {
  auto count = nvml.max_mig_devices(device);
  for (unsigned i = 0; count && i < *count; ++i) {
    auto handle = nvml.mig_device(device, i);
    if (!handle) continue;  // a hole
    auto mig = read_mig(nvml, gpu, device, *handle, i);
    if (mig) {
      gpu.mig_devices.push_back(std::move(*mig));
    } else {
      warnings.push_back("MIG device " + std::to_string(gpu.index) + ":" + std::to_string(i) + ": " +
                         mig.error().text());
    }
  }
}

Result<Gpu> read_gpu(const Nvml& nvml, unsigned index, std::vector<std::string>& warnings) {
  Gpu gpu;
  gpu.index = index;
  Nvml::Device device = TRY(nvml.device_by_index(index));
  gpu.uuid = TRY(nvml.uuid(device));
  gpu.name = TRY(nvml.name(device));
  gpu.minor = TRY(nvml.minor_number(device));
  auto pci = TRY(nvml.pci_info(device));
  gpu.bus_id = sysfs_bus_id(std::string(pci.bus_id, strnlen(pci.bus_id, sizeof(pci.bus_id))));
  gpu.pci_device_id = pci.pci_device_id;
  gpu.pci_subsystem_id = pci.pci_subsystem_id;
  gpu.numa_node = cpu_numa_node(gpu.bus_id);
  gpu.compute_capability = nvml.compute_capability(device).value_or(ComputeCapability{});
  gpu.brand = nvml.brand(device).value_or(0);
  gpu.architecture = nvml.architecture(device).value_or(0xFFFFFFFF);
  gpu.serial = nvml.serial(device).value_or("");
  if (auto memory = nvml.memory_v1(device)) gpu.memory_bytes = memory->total;
  if (auto mode = nvml.addressing_mode(device)) gpu.addressing_mode = *mode;
  if (auto mode = nvml.mig_mode(device)) {
    gpu.mig_capable = true;
    gpu.mig_mode = *mode;
    if (mode->current) read_mig_devices(nvml, device, gpu, warnings);
  }
  return gpu;
}

}  // namespace

const Gpu* Inventory::by_uuid(std::string_view uuid) const {
  for (const auto& gpu : gpus) {
    if (gpu.uuid == uuid) return &gpu;
  }
  return nullptr;
}

std::pair<const Gpu*, const MigDevice*> Inventory::mig_by_uuid(std::string_view uuid) const {
  for (const auto& gpu : gpus) {
    for (const auto& mig : gpu.mig_devices) {
      if (mig.uuid == uuid) return {&gpu, &mig};
    }
  }
  return {nullptr, nullptr};
}

Result<std::string> mig_profile(const Nvml& nvml, Nvml::Device parent, Nvml::Device mig,
                                std::uint64_t parent_bytes) {
  auto attributes = TRY(nvml.attributes(mig));
  unsigned gi_id = TRY(nvml.gpu_instance_id(mig));
  unsigned ci_id = TRY(nvml.compute_instance_id(mig));
  auto gi = TRY(nvml.gpu_instance(parent, gi_id));
  auto ci = TRY(nvml.compute_instance(gi, ci_id));
  auto gi_info = TRY(nvml.info(gi));
  auto ci_info = TRY(nvml.info(ci));
  for (unsigned profile = 0; profile < abi::kGpuInstanceProfiles; ++profile) {
    auto info = nvml.gpu_instance_profile(parent, profile);
    if (!info || info->id != gi_info.profile_id) continue;
    auto kind = gpu_instance_kind(profile);
    auto slices = compute_slices(nvml, gi, ci_info.profile_id);
    if (!kind || !slices) break;
    return mig_profile_text(*kind, *slices, attributes.memory_size_mib, parent_bytes);
  }
  return fail(Code::kNotFound, "find the MIG profile of GPU instance " + std::to_string(gi_id) +
                                   ": profile id " + std::to_string(gi_info.profile_id) +
                                   " is none of the library's");
}

Result<Inventory> observe(const Nvml& nvml) {
  Inventory inventory;
  inventory.driver_version = TRY_IN(nvml.driver_version(), "read the GPUs");
  inventory.nvml_version = nvml.nvml_version().value_or("");
  inventory.cuda_version = nvml.cuda_version().value_or(0);
  unsigned count = TRY_IN(nvml.device_count(), "read the GPUs");
  for (unsigned i = 0; i < count; ++i) {
    auto gpu = read_gpu(nvml, i, inventory.warnings);
    if (!gpu) {
      ++inventory.unread;
      inventory.warnings.push_back("GPU " + std::to_string(i) + ": " + gpu.error().text());
    } else if (!is_display_adapter(gpu->name)) {
      inventory.gpus.push_back(std::move(*gpu));
    }
  }
  return inventory;
}

Result<Inventory> observe(const std::filesystem::path& driver_root) {
  auto nvml = TRY(Nvml::open_root(driver_root));
  return observe(*nvml);
}

}  // namespace gpuop::hardware
