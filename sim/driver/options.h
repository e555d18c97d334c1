// The driver container's command line and environment (operands-driver-validator.md §6.1).
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::sim::driver {

enum class Command { kInit, kBuild, kLoad, kUpdate, kReloadPeermem, kProbePeermem };

struct Options {
  Command command = Command::kInit;
  std::string version;      // DRIVER_VERSION
  std::string digest;       // DRIVER_CONFIG_DIGEST
  bool rdma = false;        // GPU_DIRECT_RDMA_ENABLED
  bool host_mofed = false;  // USE_HOST_MOFED
  fs::path kernel_root;     // GPUOP_KERNEL_ROOT
  fs::path sim_dir;         // the fake hardware's files: the installer's payload
};

// "Usage: …", for standard error.
std::string usage();
// kInvalid: bad command or argument (the text is usage()), or a variable that must be there.
Result<Options> read_options(const std::vector<std::string>& arguments, const fs::path& self);

}  // namespace gpuop::sim::driver
