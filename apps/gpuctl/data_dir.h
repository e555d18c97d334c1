// Where gpuctl's files are: beside the program in an install, in the build folder before one.
#pragma once

#include <filesystem>
#include <string>

#include "base/files.h"
#include "base/result.h"

namespace gpuop {

// <prefix>/share/gpu-operator: deploy/, assets/, fleets/, profiles/.
Result<std::filesystem::path> data_dir();
// The built fake hardware, <prefix>/sim.
Result<std::filesystem::path> sim_dir();
// Where the install tree is staged; writable: <prefix>/image, or a folder of the user's cache where that is
// not.
Result<std::filesystem::path> install_dir();

// Whether a control plane can use `folder` as its --data-dir: nobody else does, and it is not damaged. While
// the lock is held, no other demo starts with it.
Result<FileLock> check_data_dir(const std::string& folder);

}  // namespace gpuop
