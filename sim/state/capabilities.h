// What the kernel shows of a node's MIG instances: /proc/driver/nvidia/capabilities, and the files of
// /dev/nvidia-caps that go with them.
#pragma once

#include <filesystem>

#include "sim/state/state.h"

namespace gpuop::sim {

// Writes the capability files of all instances beneath `kernel_root`, and takes away those of instances that
// are gone. 0, or errno of the first write that failed.
int write_capabilities(const std::filesystem::path& kernel_root, const State& state);

// After a change by this process: the same beneath the kernel tree that this process sees (GPUOP_KERNEL_ROOT,
// else a simulated node's own), and device files where they may be made. Nothing where there is no tree.
void publish_capabilities(const State& state);

}  // namespace gpuop::sim
