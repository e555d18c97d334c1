// What was read from the node's GPUs in one cycle: an immutable picture that pages are rendered from
// (telemetry.md §6.3).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "telemetry/fields.h"

namespace gpuop::telemetry {

struct InstanceFacts {
  unsigned gi = 0;      // NVML's GPU instance id
  unsigned entity = 0;  // counted over the node, as device selectors name it (§2.4)
  std::string profile;  // "1g.10gb"
  bool operator==(const InstanceFacts&) const = default;
};

struct MigDeviceFacts {
  std::string uuid;  // "MIG-…"
  unsigned gi = 0;
  bool operator==(const MigDeviceFacts&) const = default;
};

struct GpuFacts {
  unsigned index = 0;  // NVML's
  unsigned minor = 0;
  std::string uuid;
  std::string bus_id;  // "00000000:3B:00.0"
  std::string model;
  bool lost = false;  // it answered before and does no more; the rest is remembered
  bool gpm = false;
  std::vector<InstanceFacts> instances;  // by gi
  std::vector<MigDeviceFacts> mig_devices;
  bool operator==(const GpuFacts&) const = default;
};

// A whole GPU, or one of its GPU instances. `gpu` is NVML's index.
struct EntityKey {
  unsigned gpu = 0;
  std::optional<unsigned> gi;
  auto operator<=>(const EntityKey&) const = default;
};

// What the health watches look at (§7.4); absent: the GPU cannot say.
struct HealthFacts {
  std::optional<std::uint64_t> double_bit_volatile;
  std::optional<bool> retirement_pending;
  std::optional<std::uint64_t> retired_pages;  // for double-bit and for repeated single-bit errors
  std::optional<std::uint64_t> retired_double_bit;
  std::optional<bool> remap_failure;
  std::optional<bool> inforom_valid;
  std::optional<std::uint64_t> pcie_replays;
  std::optional<unsigned> pcie_gen;
  std::optional<unsigned> pcie_width;
  std::optional<std::uint64_t> thermal_violation_ns;
  std::optional<std::uint64_t> power_violation_ns;
  bool power_readable = true;
  std::optional<std::uint64_t> crc_errors;   // flit and data
  std::optional<std::uint64_t> link_errors;  // replays and recoveries
  std::vector<unsigned> links_down;          // of the links that the GPU has
  std::optional<unsigned> recovery_action;   // NVML field 230
  bool operator==(const HealthFacts&) const = default;
};

// Memory and SM time of one process on one entity (§5.5).
struct ProcessUse {
  unsigned pid = 0;
  EntityKey entity;
  std::uint64_t memory_bytes = 0;
  unsigned sm_percent = 0;
  std::string pod_uid;  // from the process' cgroup; empty: of no pod
};

struct Snapshot {
  Duration at{};            // monotonic time of the reader's clock
  std::vector<int> fields;  // sorted; the columns of `values`
  std::vector<GpuFacts> gpus;
  // By entity, one value a field. A lost GPU has none.
  std::map<EntityKey, std::vector<Value>> values;
  std::map<unsigned, HealthFacts> health;  // by GPU index, where it was asked for
  // [a][b]: P2P code of the pair, by position in `gpus`; empty unless asked for.
  std::vector<std::vector<int>> p2p;
  std::vector<ProcessUse> processes;  // where they were asked for
  std::vector<std::string> warnings;

  const GpuFacts* gpu(unsigned index) const;
  // Blank where the entity or the field is not there.
  const Value& value(const EntityKey& entity, int field) const;
};

}  // namespace gpuop::telemetry
