// The MPS control daemons of shared GPUs (device-plugin-gfd-mps.md §8): what to run for which resource,
// decided; and the text of the shared-memory mount.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/facts.h"
#include "plugin/resources.h"

namespace gpuop::plugin {

// One control daemon: all GPUs of one shared resource.
struct MpsDaemon {
  std::string resource;             // as advertised: names its folders beneath /mps
  std::vector<std::string> uuids;   // in NVML order; positions in it are the daemon's device numbers
  std::vector<std::string> limits;  // commands that may fail on older daemons: memory limits
  std::string threads;              // the command that sets the share of threads
};

struct MpsPlan {
  std::vector<MpsDaemon> daemons;  // empty: nothing to share
  std::vector<std::string> warnings;
};

// Errors are fatal: more replicas than the GPU allows, or an NVML that does not initialise.
Result<MpsPlan> plan_mps(const sharing::Settings& settings, const Facts& facts);

// Value of the tmpfs option `size` for a /proc/meminfo text: half of the memory ("65536000k"); "65536k" when
// it cannot be told.
std::string shm_size(std::string_view meminfo);

}  // namespace gpuop::plugin
