// What GPU feature discovery observes (device-plugin-gfd-mps.md §6).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hardware/inventory.h"
#include "hardware/platform.h"
#include "sharing/settings.h"

namespace gpuop::labels {

// What a vGPU guest's PCI function says of the host's driver.
struct VgpuHost {
  std::string driver_version, driver_branch;
};
// From 256 bytes of configuration space (§6.6). nullopt: not a vGPU. kInvalid: the capability has no version
// record.
Result<std::optional<VgpuHost>> parse_vgpu(std::string_view config);

struct FabricFact {
  std::optional<hardware::Fabric> info;  // absent: not supported
  std::string error;                     // why it could not be read
};

struct Facts {
  hardware::Platform platform = hardware::Platform::kNone;
  std::string init_error;  // why NVML could not be initialised; empty when it was
  hardware::Inventory inventory;
  bool has_versions = true;  // of driver and CUDA; false when no driver was asked
  // By position in inventory.gpus.
  std::vector<std::optional<std::uint32_t>> pci_classes;
  std::vector<FabricFact> fabrics;
  std::optional<std::string> machine;  // content of the machine-type file; absent: unreadable
  // Absent: PCI configuration space could not be read, as `vgpu_error` says.
  std::optional<std::vector<VgpuHost>> vgpus;
  std::string vgpu_error;
};

// Only what needs the machine; an NVML that cannot be initialised is a fact. An error: the driver's own
// queries fail.
Result<Facts> observe(const sharing::Settings& settings);

}  // namespace gpuop::labels
