// PCI functions as sysfs shows them, read beneath kernel_path("/sys") (no NVML, no driver needed).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpuop::hardware {

inline constexpr std::uint16_t kNvidiaVendor = 0x10de;
inline constexpr std::uint16_t kMellanoxVendor = 0x15b3;

struct PciFunction {
  std::string address;  // "0000:3b:00.0"
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint32_t class_code = 0;  // 0x030200: class, subclass, interface
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  int numa_node = -1;
  std::string driver;  // the bound driver's name, empty when none
  std::optional<int> iommu_group;
  bool is_virtual_function = false;  // has a physfn link
  std::optional<unsigned> sriov_total_vfs;
  std::optional<unsigned> sriov_num_vfs;
  std::vector<std::string> drm;  // entries of drm/: "card0", "renderD128"

  bool operator==(const PciFunction&) const = default;
  // A display or 3D controller of NVIDIA: class 0x0300xx or 0x0302xx.
  bool is_nvidia_gpu() const;
  // Class 0x0680xx of NVIDIA.
  bool is_nvswitch() const;
};

// Every function, by address. An unreadable attribute leaves its default; a missing /sys/bus/pci is an empty
// list.
Result<std::vector<PciFunction>> scan_pci();
// Only NVIDIA's GPUs, physical functions first by address, virtual ones among them marked.
Result<std::vector<PciFunction>> scan_nvidia_gpus();
// The first `limit` bytes of a function's configuration space.
Result<std::string> pci_config(std::string_view address, std::size_t limit = 256);

// NVML's "00000000:3B:00.0" to sysfs' "0000:3b:00.0": lower case, a zero high half of the domain dropped.
std::string sysfs_bus_id(std::string_view nvml_bus_id);

}  // namespace gpuop::hardware
