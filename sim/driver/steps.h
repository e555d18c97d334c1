// The steps of a driver container's life. Each says on standard output what it does, as the real one.
#pragma once

#include <string>

#include "base/result.h"
#include "sim/driver/options.h"

namespace gpuop::sim::driver {

void say(const std::string& line);

// Paths that other containers look at.
constexpr const char* kPidFile = "/run/nvidia/nvidia-driver.pid";
constexpr const char* kDigestFile = "/run/nvidia/nvidia-driver.state";
constexpr const char* kDaemonStatus = "/run/nvidia/validations/.driver-daemons-status";
constexpr const char* kRootFs = "/run/nvidia/driver";

Result<> set_daemon_status(bool ready);
bool fast_path(const Options& options);
// Module parameters of /drivers/*.conf to /etc/modprobe.d (§6.5).
Result<> write_module_options();
Result<> set_firmware_path(const Options& options);
Result<> load_modules(const Options& options);
// kBusy: in use; the text says by what.
Result<> unload_modules(const Options& options);
Result<> start_daemons(const Options& options);
Result<> stop_daemons();
// Pid files of the daemons that run.
std::vector<fs::path> daemon_pid_files();
Result<> mount_root();
Result<> unmount_root();

}  // namespace gpuop::sim::driver
