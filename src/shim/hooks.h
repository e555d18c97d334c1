// The createContainer hooks of CDI specs (container-toolkit-cdi.md §4.5): what they do to a container's root.
// They run as root on the host with an image's content in front of them; see rootfs.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::shim {

// Each "target::link". A root that cannot be written to is a warning, not an error.
Result<> create_symlinks(const Root& root, const std::vector<std::string>& links);

// Makes the libraries of `folders` known to the container's loader: the SONAME links, ld.so.conf and its
// drop-ins, a new ld.so.cache (and musl's path file). The cache is written by us: no program runs, of the
// host or the image.
Result<> update_ldcache(const Root& root, const std::vector<std::string>& folders);

struct CudaCompatOptions {
  std::string host_driver_version;
  std::string host_cuda_version;
  std::string container_root = "/usr/local/cuda/compat";
};
// Whether the image's compatibility libcuda is to be used instead of the driver's (the decision table of
// §4.5). `note` is the text of its forward-compatibility note, empty when it has none.
bool use_cuda_compat(const CudaCompatOptions& host, std::string_view compat_version, std::string_view note);
// If so, puts its folder first in the loader's path. Called before update_ldcache.
Result<> enable_cuda_compat(const Root& root, const CudaCompatOptions& options);

// Shows the container ModifyDeviceFiles: 0, by a read-only bind over its /proc/driver/nvidia/params.
Result<> disable_device_node_modification(const Root& root);
// The text to show; nullopt when nothing is to be done.
std::optional<std::string> modified_params(std::string_view params);

Result<> update_application_profile(const Root& root);
// The profile's text for a mask of GPU minors.
std::string application_profile(std::uint64_t minors);

Result<> change_modes(const Root& root, mode_t mode, const std::vector<std::string>& paths);

// `args` after the program's name (and after "hook" for nvidia-ctk): the hook's name and its own arguments.
// Standard input has the container's state. Answers the exit status.
int run_hook(const std::vector<std::string>& args);
// First thing in main: empties the environment but for the debug variable, leaves the working folder, forbids
// tracing, sets the deadline of 30 seconds.
void secure_hook_process();

}  // namespace gpuop::shim
