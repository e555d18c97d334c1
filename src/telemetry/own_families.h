// The exporter's own families: counts of XIDs and of clock events, health, peer status (telemetry.md §2.3,
// §7.4). Pure: histories in, samples out.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "telemetry/counters.h"
#include "telemetry/events.h"
#include "telemetry/facts.h"

namespace gpuop::telemetry {

using LabelPairs = std::vector<std::pair<std::string, std::string>>;

struct OwnSample {
  int family = 0;
  EntityKey entity;
  LabelPairs labels;
  std::int64_t value = 0;
  bool operator==(const OwnSample&) const = default;
};

// What happened so far. Times are the loop's monotonic time.
class History {
 public:
  void add_xid(const XidEvent& event);
  // One cycle's clock masks and health facts. `window`: how long masks and health facts are kept.
  void add_snapshot(const Snapshot& snapshot, Duration at, Duration window);
  // The GPU was reset or its driver reloaded: its latest XID is 0 again (§8.4).
  void clear_latest(const std::string& gpu_uuid);

  // The latest XID that concerns the entity: its own, or one of its whole GPU; 0: none.
  std::uint64_t latest_xid(const GpuFacts& gpu, std::optional<unsigned> gi) const;
  // How often each XID came since `since`; of an instance also those of its whole GPU.
  std::map<std::uint64_t, std::int64_t> xids_since(const GpuFacts& gpu, std::optional<unsigned> gi,
                                                   Duration since) const;
  std::map<std::uint64_t, std::int64_t> xids_ever(const GpuFacts& gpu, std::optional<unsigned> gi) const;
  // By bit.
  std::map<unsigned, std::int64_t> clock_events_since(const EntityKey& entity, Duration since) const;
  std::map<unsigned, std::int64_t> clock_edges(const EntityKey& entity) const;
  // The oldest health facts of the window; nullptr: none.
  const HealthFacts* health_before(const std::string& gpu_uuid, Duration since, Duration* at) const;

  void forget_before(Duration xids, Duration masks);

 private:
  struct Latest {
    std::optional<unsigned> gi;
    std::uint64_t xid = 0;
  };
  struct Mask {
    Duration at{};
    std::uint64_t mask = 0;
  };
  std::deque<XidEvent> xids_;
  std::map<std::string, std::vector<Latest>> latest_;  // newest last; one an instance
  std::map<std::string, std::map<std::pair<std::optional<unsigned>, std::uint64_t>, std::int64_t>> totals_;
  std::map<EntityKey, std::deque<Mask>> masks_;
  std::map<EntityKey, std::map<unsigned, std::int64_t>> edges_;
  std::map<std::string, std::deque<std::pair<Duration, HealthFacts>>> health_;
};

struct OwnRules {
  std::int64_t xid_window_ms = 300000;
  std::int64_t clock_window_ms = 300000;
};

// Samples of those own families that `counters` has, for `entities`; health and peers for every whole GPU.
std::vector<OwnSample> own_samples(const CounterSet& counters, const Snapshot& snapshot,
                                   const std::vector<EntityKey>& entities, const History& history,
                                   Duration now, const OwnRules& rules);

// Health (§7.4).
struct HealthVerdict {
  int state = 0;  // 0 pass, 10 warn, 20 fail
  int code = 0;   // DCGM's error number
};
// By watch name, all eleven. `before`: facts `span` ago, or nullptr. `xids`: those of the window.
std::map<std::string, HealthVerdict> judge_health(const HealthFacts& now, const HealthFacts* before,
                                                  Duration span,
                                                  const std::map<std::uint64_t, std::int64_t>& xids);
const std::vector<std::string>& health_watches();  // in the order of §2.3
std::string health_error_text(int code);           // "DCGM_FR_OK"
std::string_view xid_text(std::uint64_t xid);      // §4.4

}  // namespace gpuop::telemetry
