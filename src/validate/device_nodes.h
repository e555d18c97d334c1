// The driver's device nodes, and the links /dev/char/MAJOR:MINOR that runtimes resolve them by
// (operands-driver-validator.md §4.2, dev-char step; D-08 to D-11).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "hardware/mig.h"

namespace gpuop::validate {

struct DeviceFacts {
  std::map<std::string, unsigned> majors;  // of /proc/devices, character devices
  unsigned gpus = 0;                       // physical functions
  hardware::MigMinors mig;
};
Result<DeviceFacts> observe_devices();

struct DeviceNode {
  std::string path;  // beneath the device root: "dev/nvidiactl"
  unsigned major = 0;
  unsigned minor = 0;
  bool operator==(const DeviceNode&) const = default;
};
struct DevicePlan {
  std::vector<DeviceNode> control;  // made when missing: the kernel module makes none of them
  std::vector<DeviceNode> links;    // what /dev/char gets a link to, the control nodes among them
  bool operator==(const DevicePlan&) const = default;
};
// Pure. No GPU: an empty plan. kNotFound names a major that the driver should have registered.
Result<DevicePlan> plan_devices(const DeviceFacts& facts);

// Makes the control nodes beneath `dev_root_ctr` (where the device root is in our view), then the links in
// `dev_char`, whose targets are paths beneath `dev_root_host` (the device root on the host). An existing link
// with another target is replaced.
Result<> make_devices(const DevicePlan& plan, const std::filesystem::path& dev_root_ctr,
                      const std::string& dev_root_host, const std::filesystem::path& dev_char);

// nvidiactl, nvidia-uvm and nvidia-uvm-tools are character devices there; kNotFound names the first that is
// not.
Result<> check_devices(const DevicePlan& plan, const std::filesystem::path& dev_root_ctr);

// Loads nvidia, nvidia-uvm and nvidia-modeset with the root's own modprobe, unless they are loaded.
Result<> load_modules(const std::filesystem::path& root);

}  // namespace gpuop::validate
