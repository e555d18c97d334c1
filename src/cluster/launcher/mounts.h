// Mounts by file descriptor: sources are cloned, attributes set while nothing can see them, and the result is
// put on a destination that was resolved inside the root. No path of a container is ever followed by the
// kernel on our behalf (container-toolkit-cdi.md §6.3).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "cluster/launcher/oci_spec.h"

namespace gpuop::cluster {

// What mount options say.
struct MountOptions {
  bool bind = false;
  bool recursive = false;
  std::uint64_t set = 0, clear = 0;  // MOUNT_ATTR_*
  std::uint64_t recursive_set = 0;   // MOUNT_ATTR_* for the whole tree ("rro")
  std::uint64_t propagation = 0;     // MS_PRIVATE, MS_SLAVE, MS_SHARED or 0
  bool propagation_recursive = false;
  std::vector<std::pair<std::string, std::string>>
      data;  // for the file system: ("mode", "755"), ("newinstance", "")
};
// Never fails: what is no known option is data for the file system, as mount(8) has it.
MountOptions parse_mount_options(const std::vector<std::string>& options);

// A detached copy of the mount at `path` (of the tree, when recursive). kNotFound when there is no such path.
Result<Fd> clone_mount(const std::string& path, bool recursive);
// A detached new file system.
Result<Fd> new_mount(const std::string& type, const std::string& source, const MountOptions& options);
Result<> set_mount_attributes(int mount, std::uint64_t set, std::uint64_t clear, std::uint64_t propagation,
                              bool recursive);
// Attaches a detached mount onto what `destination` refers to.
Result<> attach_mount(int mount, int destination);

// A folder or file beneath `root` to mount on, made where it is missing. `folder` says which.
Result<Fd> open_mount_point(const Root& root, const std::string& inner, bool folder);

// Makes the mount that holds `path` private, so that what is mounted beneath it stays in this namespace.
Result<> make_holder_private(const std::string& path);

// Carries out one entry of `mounts` beneath `root`.
Result<> apply_mount(const Root& root, const OciMount& mount);

}  // namespace gpuop::cluster
