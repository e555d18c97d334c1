// The driver check (operands-driver-validator.md §4.2): is there a working NVIDIA driver, where is it, and
// are its device nodes there.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "hardware/driver_root.h"

namespace gpuop::validate {

struct DriverPaths {
  std::filesystem::path host = "/host";                          // the host's root as we see it
  std::string host_root = "/";                                   // HOST_ROOT: the same on the host
  std::string install_dir = "/run/nvidia/driver";                // DRIVER_INSTALL_DIR, on the host
  std::filesystem::path install_dir_ctr = "/run/nvidia/driver";  // DRIVER_INSTALL_DIR_CTR_PATH, as we see it
  std::filesystem::path status_dir = "/run/nvidia/validations";
  std::filesystem::path host_dev_char = "/host-dev-char";
  bool skip_gpu_init = false;  // `nvidia-smi --version` only
};

// Runs nvidia-smi; a seam so that tests need no driver.
using RunSmi = std::function<Result<ExitState>(const Command&)>;
Result<ExitState> run_smi(const Command& command);
// Runs it and answers its output; an error unless it ends with 0. `where`: whose it is.
Result<std::string> check_smi(const Command& command, const RunSmi& run, const std::string& where);

// kConflict: what is mounted at paths.install_dir_ctr is of a driver container that is gone. Nothing in this
// container can change that; a new one gets the new mount.
Result<> check_driver_mount(const DriverPaths& paths);

struct FoundDriver {
  hardware::DriverReady ready;
  bool wsl = false;
  std::string smi_output;
};

// A preinstalled driver beneath paths.host. nullopt: none there. An error: there is one and it does not work.
Result<std::optional<FoundDriver>> find_host_driver(const DriverPaths& paths, const RunSmi& run = run_smi);

// The driver of a driver container beneath paths.install_dir_ctr. `managed`: a DaemonSet of the operator runs
// it, so its own startup gate .driver-ctr-ready has to be there first.
Result<FoundDriver> find_container_driver(const DriverPaths& paths, bool managed,
                                          const RunSmi& run = run_smi);

// Flags of .driver-ctr-ready ("GDS_ENABLED: true"), true ones only.
Result<std::vector<std::string>> driver_container_features(const std::filesystem::path& status_dir);

// Exact module names in <kernel root>/proc/modules.
Result<bool> module_loaded(std::string_view name);

}  // namespace gpuop::validate
