// Where gpuctl's files are: beside the program in an install, in the build folder before one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/time.h"
#include "cluster/fleet/fleet.h"

namespace gpuop {

// <prefix>/share/gpu-operator: deploy/, assets/, fleets/, profiles/.
Result<std::filesystem::path> data_dir();
// The built fake hardware, <prefix>/sim.
Result<std::filesystem::path> sim_dir();
// Where the install tree is staged; writable: <prefix>/image, or a folder of the user's cache where that is
// not.
Result<std::filesystem::path> install_dir();

// A control plane's --data-dir, before that is started.
struct KeptData {
  FileLock lock;                   // while it is held, no other demo starts with the folder
  std::vector<std::string> notes;  // what a person should know
};
// Checks that a control plane can use `folder`: nobody else does, and it is not damaged. What it keeps is
// made to follow `fleet` and `policy` (cluster/fleet/kept.h; empty: whichever is there) while no kubelet can
// speak.
Result<KeptData> take_data_dir(const std::string& folder, const cluster::Fleet& fleet,
                               const std::string& policy, Time now);

}  // namespace gpuop
