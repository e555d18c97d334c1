// A simulated node's kernel: the /sys, /proc and /lib/modules that GPUOP_KERNEL_ROOT points at, its modules,
// and the driver's files (operands-driver-validator.md §4, §6; container-toolkit-cdi.md §2).
//
// KERNEL_ROOT/
//   sys/…  proc/…  lib/modules/RELEASE/…  boot/config-RELEASE
//   sim/state        the hardware (sim/state/state.h), shared with every driver root by link or bind mount
//   sim/node.json    what build_node_tree was asked for
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::sim {

struct NodeHardware {
  std::string model;  // a profile's model or alias; empty: no GPUs
  int count = 0;
  std::uint64_t seed = 0;  // UUIDs, serials and MAC addresses follow from it
  // Boards that take part in a rack's NVLink fabric: nodes with the same seed are one cluster.
  std::uint64_t fabric_seed = 0;
  std::uint32_t fabric_clique = 0;
  bool vgpu_host = false;  // the driver is the vGPU manager's: boards can be shared out to virtual machines
  std::string kernel_release = "6.8.0-60-generic";
  std::string os_id = "ubuntu";      // os-release ID …
  std::string os_version = "24.04";  // … and VERSION_ID
  int numa_nodes = 2;
  int cpus = 16;
  std::int64_t memory_mib = 262144;
  fs::path profiles;  // folder of profiles: <sim dir>/profiles
};

// Builds everything under `kernel_root` (made if absent). Existing files are replaced; a hardware state that
// is there already is kept unless the hardware asked for differs. No module is loaded afterwards unless it
// was.
Result<> build_node_tree(const NodeHardware& hardware, const fs::path& kernel_root);

// The text of the node's /etc/os-release.
Result<std::string> os_release_text(std::string_view os_id, std::string_view os_version);

// Modules. Names with '-' or '_'. What the module needs is loaded first. Loading what is loaded is fine.
// kNotFound: no such module for this kernel (no driver installed); kInvalid: vermagic of another kernel.
Result<> load_module(const fs::path& kernel_root, std::string_view name);
// kNotFound: not loaded; kBusy: another module or a process uses it, named in the text.
Result<> unload_module(const fs::path& kernel_root, std::string_view name);
bool module_loaded(const fs::path& kernel_root, std::string_view name);
// Version of the loaded nvidia module; kNotFound when there is none.
Result<std::string> loaded_driver_version(const fs::path& kernel_root);

// Device nodes that exist for the modules that are loaded: nvidia0…, nvidiactl, nvidia-uvm, nvidia-uvm-tools,
// nvidia-modeset, nvidia-caps/nvidia-cap1, -cap2 (and those of MIG instances).
struct DeviceNode {
  std::string name;  // beneath /dev: "nvidia0"
  unsigned major = 0, minor = 0;
  unsigned mode = 0666;
};
Result<std::vector<DeviceNode>> device_nodes(const fs::path& kernel_root);
// mknod of each in `dev`, where missing; a node with other numbers is replaced. The file system should be
// nodev: nothing ever opens these.
Result<> make_device_nodes(const fs::path& kernel_root, const fs::path& dev);

// A driver's files. `version` as "580.82.07".
struct DriverInstall {
  std::string version;
  fs::path root;                 // the driver root: usr/lib/…, usr/bin/…, lib/firmware/…, etc/…
  fs::path kernel_root;          // its hardware state becomes libnvidia-simstate.so.VERSION there
  fs::path sim_dir;              // lib/ and bin/ of the fake hardware: <build>/sim or /usr/lib/gpuop-sim
  bool user_space_only = false;  // keep the kernel's modules as they are
  // NVML functions that its library lacks, besides those that are newer than `version`
  // (device-plugin-gfd-mps.md §7.7).
  std::vector<std::string> hidden_symbols = {};
};
// Repeatable. The state file is hard-linked where file systems allow it, else bind-mounted over an empty file
// (in the caller's mount namespace: a node's own supervisor does this inside the node).
Result<> install_driver(const DriverInstall& install);
// Only the last step of it: makes the state file of an installed driver root reach the hardware again (after
// a restart of the node's mount namespace).
Result<> attach_state(const DriverInstall& install);
// Where the state file is inside a driver root.
fs::path state_path(const fs::path& root, std::string_view version);

// modprobe, rmmod, lsmod and insmod into `root`/usr/sbin and `root`/sbin. build_node_tree puts them beneath
// the kernel root itself, install_driver into the driver root.
Result<> install_module_tools(const fs::path& sim_dir, const fs::path& root);

// A node that comes with its driver: install_driver, nvidia, nvidia-uvm and nvidia-modeset loaded.
// Make the device nodes with make_device_nodes.
Result<> preinstall_driver(const DriverInstall& install);

}  // namespace gpuop::sim
