// A vGPU host's /sys: what the driver shows of boards that can be shared out to virtual machines, and what it
// does when somebody writes there (mig-vgpu-sandbox.md §4). Two kinds, as on hardware: mediated devices on
// kernels before 6.8 and on Turing; the driver's own VFIO files on the virtual functions of later boards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "sim/state/state.h"

namespace gpuop::sim {

// Virtual functions, mediated device types or vGPU files for every board. Nothing on a node that is no vGPU
// host.
Result<> put_vgpus(const fs::path& kernel_root, const State& state);

// What of it belongs to no single function goes with the driver: parents of mediated devices, and those.
Result<> drop_vgpus(const fs::path& kernel_root);

// The folders where a write, or an instance that comes or goes, changes what settle_vgpus does; those that
// are there now. Nothing on a node that is no vGPU host.
Result<std::vector<fs::path>> vgpu_folders(const fs::path& kernel_root, const State& state);
// Whether a file of that name is one that people write to.
bool is_vgpu_request(std::string_view file_name);

// Does what has been written since: makes and removes mediated devices (`create`, `remove`), takes the types
// written to `current_vgpu_type`, and renews how many more there can be. Answers whether anything changed. A
// write that the driver would refuse is undone, and its sentence is among `refused`.
Result<bool> settle_vgpus(const fs::path& kernel_root, const State& state, std::vector<std::string>* refused);

}  // namespace gpuop::sim
