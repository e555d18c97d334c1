// Which pods use which GPU, from what the kubelet says was given to them (telemetry.md §5).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "podresources/client.h"
#include "telemetry/facts.h"

namespace gpuop::telemetry {

// What the API server knows of a pod; only where enrichment is on.
struct PodMeta {
  std::string uid;
  std::map<std::string, std::string> labels;  // raw keys
  bool ended = false;                         // Succeeded or Failed
};
using PodMetas = std::map<std::pair<std::string, std::string>, PodMeta>;  // by namespace and name

struct PodUse {
  std::string ns;
  std::string pod;
  std::string container;
  std::string replica;  // of a shared device; empty: not shared
  std::string uid;
  std::map<std::string, std::string> labels;  // raw keys, filtered
  bool operator==(const PodUse&) const = default;
};

struct AttributionRules {
  bool by_device_name = false;              // GPU ids are nvidia<N>, not UUIDs
  std::vector<std::string> resource_names;  // beyond nvidia.com/gpu, .shared and mig-*
};

struct Attribution {
  // Sorted by namespace, pod, container, replica; no two equal.
  std::map<EntityKey, std::vector<PodUse>> uses;
  std::size_t matched = 0;
  std::vector<std::string> unmatched;  // device ids of our resources that are no GPU here
};

Attribution attribute(const std::vector<podresources::Use>& devices, const std::vector<GpuFacts>& gpus,
                      const PodMetas& metas, const AttributionRules& rules);

// A device id taken apart (§5.2). `gi` for ids that name a GPU instance by number.
struct DeviceId {
  enum class Kind { kUuid, kMigUuid, kMinor, kIndex } kind = Kind::kUuid;
  std::string uuid;  // kUuid: "GPU-…" of the physical GPU, kMigUuid: "MIG-…"
  unsigned number = 0;
  std::optional<unsigned> gi;
  std::string replica;
  bool operator==(const DeviceId&) const = default;
};
Result<DeviceId> parse_device_id(std::string_view id);

// "app.kubernetes.io/name" to "app_kubernetes_io_name"; a leading digit gets '_' in front (§5.3).
std::string label_name(std::string_view key);

}  // namespace gpuop::telemetry
