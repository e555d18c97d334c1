// Which resources a node advertises, and with which devices: decided from facts and settings
// (device-plugin-gfd-mps.md §3).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plugin/facts.h"
#include "sharing/settings.h"

namespace gpuop::plugin {

struct Device {
  std::string id;                                   // as advertised: a UUID, with "::N" when it is a replica
  std::string uuid;                                 // without "::N"; the name under which CDI knows it
  std::string index;                                // "0"; "0:1" for a MIG device
  std::string gpu_uuid;                             // of the physical GPU
  int gpu = 0;                                      // position of the physical GPU in Plan::scores
  int gpu_index = 0;                                // its NVML index
  int mig_index = -1;                               // on its GPU; -1: not MIG
  int replica = -1;                                 // -1: not replicated
  unsigned gpu_instance = 0, compute_instance = 0;  // of MIG devices
  std::vector<std::string> paths;                   // device nodes, as containers see them
  std::optional<int> numa_node;

  bool mig() const { return mig_index >= 0; }
  bool annotated() const { return replica >= 0; }
};

struct Resource {
  std::string name;             // advertised: "nvidia.com/gpu", "nvidia.com/gpu.shared"
  std::vector<Device> devices;  // by NVML index, MIG index, replica

  // File name of its socket: "nvidia-gpu.sock".
  std::string endpoint() const;
};

struct Plan {
  std::vector<Resource> resources;  // by name; none is empty
  // Pair scores of physical GPUs (§4.2), symmetric, by Device::gpu.
  std::vector<std::vector<int>> scores;
  std::vector<std::string> control_nodes;
  bool imex = false;  // channel 0 is handed over
  std::vector<std::string> warnings;
};

// Errors are those that end the plugin (§1.3 item 9): MIG rules, patterns, missing capabilities, IMEX, MPS
// with MIG, and an NVML that does not initialise while fail-on-init-error holds.
Result<Plan> plan_resources(const sharing::Settings& settings, const Facts& facts);

// Topology and NVLinks of a pair as one number.
int pair_score(const Link& link);

}  // namespace gpuop::plugin
