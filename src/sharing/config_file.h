// The configuration file of the device plugin, GPU feature discovery and the MPS daemon, version v1
// (device-plugin-gfd-mps.md §2.1, §2.2): options, resource patterns, and how GPUs are shared.
//
// It is upstream's format, so we take what upstream takes: unknown keys are ignored at every level and known
// ones match without case. What is odd is named in `warnings`, with its line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::sharing {

// Which devices of a resource an entry is about.
struct DeviceSelection {
  bool all = true;
  int count = 0;                  // the first `count` devices; 0: not given this way
  std::vector<std::string> list;  // "0", "0:1", "GPU-…", "MIG-…", "MIG-GPU-…/1/0"
};

// One entry of sharing.*.resources.
struct SharedResource {
  std::string name;    // fully qualified: "nvidia.com/gpu"
  std::string rename;  // fully qualified, or empty
  DeviceSelection devices;
  int replicas = 0;  // at least 2
};

// sharing.timeSlicing and sharing.mps.
struct ReplicatedResources {
  bool rename_by_default = false;
  std::optional<bool> fail_requests_greater_than_one;
  std::vector<SharedResource> resources;  // never empty; names differ
};

// resources.gpus[] and resources.mig[]: which devices make up which resource.
struct ResourcePattern {
  std::string pattern;  // `*` stands for any run of characters
  std::string name;     // fully qualified
};

struct ConfigFile {
  // flags.*, by dotted key without "flags." ("migStrategy", "plugin.deviceListStrategy"), checked for type:
  // bool, string, array of strings, or int64 nanoseconds (null: infinite) for a duration.
  std::map<std::string, Json> flags;
  std::vector<ResourcePattern> gpu_patterns, mig_patterns;
  std::optional<ReplicatedResources> time_slicing, mps;
  std::optional<std::vector<std::int64_t>> imex_channel_ids;
  std::optional<bool> imex_required;
  std::vector<std::string> warnings;  // whole sentences
};

// `file` is used in messages. Empty text is a file of defaults. Every error begins with
// "unable to parse config file: ".
Result<ConfigFile> parse_config_file(std::string_view text, std::string_view file);

// "gpu" and "nvidia.com/gpu" both answer "nvidia.com/gpu". kInvalid: longer than 63 characters in all, or not
// a DNS-1123 subdomain after the prefix.
Result<std::string> qualified_resource_name(std::string_view name);

}  // namespace gpuop::sharing
