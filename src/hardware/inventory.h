// The node's GPUs as plain facts, read once from NVML. What every operand decides on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hardware/nvml.h"

namespace gpuop::hardware {

struct MigDevice {
  unsigned index = 0;  // NVML's MIG index on its GPU
  std::string uuid;    // "MIG-…"
  unsigned gpu_instance_id = 0;
  unsigned compute_instance_id = 0;
  std::string profile;                 // "1g.10gb"; empty when the library cannot say
  abi::DeviceAttributes attributes{};  // memory in MiB
};

struct Gpu {
  unsigned index = 0;
  unsigned minor = 0;               // the number of /dev/nvidia<minor>
  std::string uuid;                 // "GPU-…"
  std::string name;                 // "NVIDIA A100-SXM4-80GB"
  std::string serial;               // empty where the board has none
  std::string bus_id;               // as sysfs writes it: "0000:3b:00.0"
  std::uint32_t pci_device_id = 0;  // device << 16 | vendor
  std::uint32_t pci_subsystem_id = 0;
  std::optional<std::uint64_t> memory_bytes;  // absent on unified-memory GPUs
  ComputeCapability compute_capability;
  int brand = 0;
  unsigned architecture = 0xFFFFFFFF;
  std::optional<unsigned> addressing_mode;  // 0 none, 1 HMM, 2 ATS (coherent)
  int numa_node = -1;                       // CPU NUMA node, from sysfs
  bool mig_capable = false;
  MigMode mig_mode;
  std::vector<MigDevice> mig_devices;  // by index; empty unless mig_mode.current
};

struct Inventory {
  std::string driver_version;  // "580.95.05"
  std::string nvml_version;
  int cuda_version = 0;   // 12040 = 12.4
  std::vector<Gpu> gpus;  // by NVML index; a "DGX Display" adapter is left out, numbers of others stay
  std::vector<std::string> warnings;  // GPUs that could not be read (lost, excluded) and why
  unsigned unread = 0;                // how many GPUs NVML counts that could not be read

  const Gpu* by_uuid(std::string_view uuid) const;
  // The GPU that holds the MIG device, and the device.
  std::pair<const Gpu*, const MigDevice*> mig_by_uuid(std::string_view uuid) const;
};

// Reads everything. A GPU whose handle or UUID cannot be read is left out with a warning (it fell off the
// bus); a failing system call (driver version, count) is an error.
Result<Inventory> observe(const Nvml& nvml);
// The same, beneath a driver root in this process' own view.
Result<Inventory> observe(const std::filesystem::path& driver_root);

// The profile text of an existing MIG device (device-plugin-gfd-mps.md §7.5).
Result<std::string> mig_profile(const Nvml& nvml, Nvml::Device parent, Nvml::Device mig,
                                std::uint64_t parent_bytes);

}  // namespace gpuop::hardware
