// What the device plugin observes before it decides what to advertise (device-plugin-gfd-mps.md §1.4, §3,
// §4).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hardware/inventory.h"
#include "hardware/mig.h"
#include "hardware/platform.h"
#include "hardware/returned.h"
#include "sharing/settings.h"

namespace gpuop::plugin {

using hardware::Platform;

// What connects two GPUs.
struct Link {
  std::optional<int> topology;  // NVML's level: 0 internal … 50 system; absent when the query failed
  int nvlinks = 0;              // links in state enabled that lead to the other GPU itself
};

struct Facts {
  Platform platform = Platform::kNone;
  std::string init_error;  // why NVML could not be initialised; empty when it was
  hardware::Inventory inventory;
  // By position in inventory.gpus.
  std::vector<std::optional<int>> numa_nodes;
  std::vector<std::vector<Link>> links;
  hardware::MigMinors mig_minors;
  // Of /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-uvm-tools and /dev/nvidia-modeset, those that exist.
  std::vector<std::string> control_nodes;
  bool imex_channel0 = false;  // /dev/nvidia-caps-imex-channels/channel0 is there
};

// Reads them all. An NVML that cannot be initialised is a fact (init_error), not an error; an unreadable NUMA
// node is one.
Result<Facts> observe(const sharing::Settings& settings);
// Calls `returned` once when a GPU answers that is missing in `facts` (hardware/returned.h); null when none
// is.
std::unique_ptr<hardware::ReturnedWatch> watch_missing(Loop& loop, const sharing::Settings& settings,
                                                       const Facts& facts, std::function<void()> returned);
// How discovery resolves, without initialising NVML, for validation: what libraries and files are there.
sharing::Platform observe_platform(const sharing::Settings& settings);

}  // namespace gpuop::plugin
