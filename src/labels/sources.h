// GPUs that NVML does not know of (device-plugin-gfd-mps.md §6.8): of a Tegra system, through libcuda; and
// those that are bound to vfio-pci, from sysfs alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "labels/facts.h"

namespace gpuop::labels {

// An error: libcuda cannot be loaded, or its initialisation fails.
Result<hardware::Inventory> observe_tegra();
// Every NVIDIA GPU whose driver is vfio-pci. Names come from the PCI ID database of the image, if it has one.
Result<hardware::Inventory> observe_vfio();

// Total of the 64-bit memory BARs in a sysfs `resource` text, rounded up to a power of two; bytes.
std::uint64_t bar_memory(std::string_view resource);
// The device's name in a pci.ids text; "" when it is not listed.
std::string pci_device_name(std::string_view database, std::uint16_t vendor, std::uint16_t device);

}  // namespace gpuop::labels
