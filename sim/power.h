// Power and sockets of a simulated node's hardware.
#pragma once

#include "base/files.h"
#include "base/result.h"

namespace gpuop::sim {

// The node is switched off and on: no module is loaded, boards are as after a cold start (MIG modes that the
// board keeps stay, instances do not), /sys and /proc of the tree are gone until build_node_tree makes them.
// Nothing may run on the node. A tree without hardware is left alone.
Result<> power_cycle(const fs::path& kernel_root);

// Board `gpu` is pulled out while the node runs: every call on it answers GPU_IS_LOST (XID 79), its PCI
// function and its device node beneath `dev` are gone. kInvalid: no such board; kConflict: it is out already.
Result<> remove_gpu(const fs::path& kernel_root, const fs::path& dev, int gpu);
// It is back in its slot, as after a reset. kConflict: it is there already.
Result<> insert_gpu(const fs::path& kernel_root, const fs::path& dev, int gpu);

}  // namespace gpuop::sim
