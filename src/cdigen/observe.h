// The facts that a CDI spec for NVIDIA devices is decided on: the driver's files beneath its root, the device
// nodes beneath the dev root, the GPUs. (container-toolkit-cdi.md §2.3–§2.5)
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "hardware/inventory.h"
#include "hardware/mig.h"

namespace gpuop::cdigen {

// A file to be mounted: where it is inside the driver root, and where it goes in a container.
struct DriverFile {
  std::string host;  // inside the root, symlinks followed
  std::string container;
  bool operator==(const DriverFile&) const = default;
};

struct Library {
  std::string path;  // inside the root, symlinks followed: also the path in containers
  // From the file's ELF data and its folder; empty and false when it cannot be read.
  std::string soname;
  bool readable = false;
  bool has_soname_link = false;  // <dir>/<soname> is a symlink on the host
  bool has_plain_link = false;   // <dir>/lib<x>.so is one
};

struct DriverFiles {
  std::string version;
  std::vector<std::string> library_dirs;
  std::vector<Library> libraries;
  std::vector<Library> compat32;  // the same for 32-bit programs
  std::vector<std::string> binaries;
  std::vector<std::string> firmware;
  std::vector<std::string> ipc;  // sockets and the MPS folder
  // Graphics.
  std::vector<Library> graphics_libraries;
  std::optional<std::string> allocator_dir;  // folder of libnvidia-allocator.so.<V>
  std::vector<std::string> graphics_binaries;
  std::vector<DriverFile> configs;
  std::vector<std::string> xorg;
};

struct DriverSearch {
  std::string version;  // from NVML; empty: from the files
  std::vector<std::string> library_search_paths;
  std::vector<std::string> config_search_paths;
  std::vector<std::string> explicit_libraries;  // more names, as "libEGL.so"
};

// Everything of the driver beneath `root`. An error when no version or no library is found.
Result<DriverFiles> observe_driver(const Root& root, const DriverSearch& search = {});

struct Node {
  std::string path;  // in containers: "/dev/nvidia0"
  std::int64_t major = 0;
  std::int64_t minor = 0;
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t gid = 0;
  bool operator==(const Node&) const = default;
};

struct DeviceFiles {
  std::map<std::string, Node> nodes;                    // by path; character devices only
  std::map<std::string, std::string> links;             // /dev/dri/by-path/… to its target's text
  std::map<std::string, std::vector<std::string>> drm;  // bus id to entries of its drm folder
  hardware::MigMinors mig_minors;
};

// Every device node beneath `dev_root`/dev that some mode may inject.
Result<DeviceFiles> observe_devices(const Root& dev_root);

struct Facts {
  DriverFiles driver;
  DeviceFiles devices;
  hardware::Inventory inventory;
};

}  // namespace gpuop::cdigen
