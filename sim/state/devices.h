// Which device nodes this process has: the driver's libraries offer a board only where its node is.
#pragma once

#include <string>

namespace gpuop::sim {

// `name` beneath /dev: "nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap1". A character device, of whatever
// numbers: on a simulated node they lie on a nodev file system, so nothing is opened. With GPUOP_SIM_DEV set
// (tests without the right to make devices) that folder stands for /dev and any file counts.
bool device_node_exists(const std::string& name);
// Makes /dev/NAME as the driver's libraries do through nvidia-modprobe: only for root that may make device
// nodes. False when it cannot be made.
bool make_device_node(const std::string& name, unsigned minor);
// The same for /dev/nvidia-caps/nvidia-capMINOR, where that folder is.
bool make_capability_node(unsigned minor);

}  // namespace gpuop::sim
