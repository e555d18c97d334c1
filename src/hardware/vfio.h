// Which VFIO driver suits a PCI function: the generic vfio-pci, or a variant that a kernel module offers for
// its kind (operands-driver-validator.md §8.3).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpuop::hardware {

// The module whose alias "vfio_pci:…" in `aliases` (the text of modules.alias) says most of the function that
// `modalias` ("pci:v000010DEd00002941sv…") describes; "vfio-pci" where none fits. Lines that cannot be read
// are passed over; a modalias that cannot is kInvalid. Pure.
Result<std::string> best_vfio_driver(std::string_view modalias, std::string_view aliases);
// The same of a function by its address, as sysfs describes it.
Result<std::string> best_vfio_driver_of(std::string_view address, std::string_view aliases);

// modules.alias of the running kernel: beneath the kernel root or, in a container that has none of its own,
// beneath `host`. Empty when neither has one.
Result<std::string> read_module_aliases(const std::filesystem::path& host);

// A module and a driver may spell their name differently: nvgrace_gpu_vfio_pci, nvgrace-gpu-vfio-pci.
bool same_driver(std::string_view one, std::string_view other);

}  // namespace gpuop::hardware
