// Where the driver's files are: a driver root is the host's own root or what a driver container left at
// /run/nvidia/driver. Its content is not trusted to stay inside itself: every search goes beneath a Root.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::hardware {

// Folders inside a driver root in which the validator and the device plugin look for libnvidia-ml.so.1
// (operands-driver-validator.md §4.2, device-plugin-gfd-mps.md §3.5) and for nvidia-smi.
std::span<const std::string_view> library_dirs();
std::span<const std::string_view> binary_dirs();
// Folders under /host in which a preinstalled driver's nvidia-smi is looked for, the WSL one among them.
std::span<const std::string_view> host_binary_dirs();

// The first of `dirs` that holds `name` as a regular file (through symlinks that stay inside), as a path
// inside the root with symlinks followed. kNotFound names the folders.
Result<std::filesystem::path> find_library(const Root& root, std::string_view name,
                                           std::span<const std::string_view> dirs = library_dirs());
// The same for a program: it must not be empty and must have an execute bit. The path is the candidate's own,
// not its target's: a program behind a symlink keeps its name.
Result<std::filesystem::path> find_program(const Root& root, std::string_view name,
                                           std::span<const std::string_view> dirs = binary_dirs());

// What to hand to Nvml::open for a driver root in the container's own view: the resolved library beneath it,
// or the plain soname for "", "/" and a root that has none.
std::filesystem::path nvml_library(const std::filesystem::path& driver_root);

// The root that holds the device nodes: the driver root if it has a dev folder, else "/".
std::filesystem::path dev_root_of(const std::filesystem::path& driver_root);

// The driver's version as its files say: the suffix of libcuda.so.<V>, then of libnvidia-ml.so.<V> (only
// names with at least two numbers). Used where NVML cannot be asked (container-toolkit-cdi.md §2.4).
Result<std::string> driver_version_from_files(const Root& root,
                                              std::span<const std::string_view> dirs = library_dirs());

// The content of the driver-ready gate (operands-driver-validator.md §4.2).
struct DriverReady {
  bool is_host_driver = false;
  std::string driver_root;           // as the host sees it
  std::string driver_root_ctr_path;  // as operands see it
  std::string dev_root;
  std::string dev_root_ctr_path;

  bool operator==(const DriverReady&) const = default;
};
std::string format_driver_ready(const DriverReady& facts);
// Unknown keys are left alone; a missing one is an error that names it.
Result<DriverReady> parse_driver_ready(std::string_view text);

}  // namespace gpuop::hardware
