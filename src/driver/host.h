// The driver on this host: whether it is loaded, whose it is, and taking it out.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpuop::driver {

bool module_is_loaded();                       // /sys/module/nvidia/refcnt
bool module_is_loaded(std::string_view name);  // in /proc/modules

// The version of a driver that the host brought itself: its nvidia-smi, run in the host's root. nullopt:
// there is none. kUnavailable: it is there and does not work; the text says how.
Result<std::optional<std::string>> host_driver_version(const std::filesystem::path& host_root);

// Unloads every module of the driver, those that depend on others first; all are tried. The error names the
// first that stayed and who holds device nodes open.
Result<> unload_driver(const std::filesystem::path& host_root);
// One module; nothing when it is not loaded.
Result<> unload_module(const std::filesystem::path& host_root, const std::string& name);

// Processes that have /dev/nvidia* open: "pid 12 (name)".
std::vector<std::string> device_holders();

// Unmounts everything at and below a folder, the innermost first (lazily). Nothing mounted is fine.
Result<> unmount_tree(const std::filesystem::path& folder);

// Frees NVIDIA functions that a VFIO driver has.
Result<> unbind_vfio();

}  // namespace gpuop::driver
