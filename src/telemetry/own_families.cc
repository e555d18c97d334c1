#include "telemetry/own_families.h"

#include <algorithm>
#include <array>

namespace gpuop::telemetry {
namespace {

constexpr std::array<std::string_view, 9> kClockEvents = {"gpu_idle",    "clocks_setting", "power_cap",
                                                          "hw_slowdown", "sync_boost",     "sw_thermal",
                                                          "hw_thermal",  "hw_power_brake", "display_clocks"};
constexpr std::array<std::string_view, 7> kLinkStatus = {"OK",
                                                         "ChipsetNotSupported",
                                                         "GPUNotSupported",
                                                         "TopologyNotSupported",
                                                         "DisabledByRegKey",
                                                         "NotSupported",
                                                         "Unknown"};

// Of a whole GPU everything on it counts; of an instance its own, and what befell the whole GPU.
bool concerns(const std::optional<unsigned>& event_gi, std::optional<unsigned> gi) {
  return !gi || !event_gi || *event_gi == *gi;
}

class Samples {
 public:
  Samples(const Snapshot& snapshot, const History& history, Duration now, const OwnRules& rules)
      : snapshot_(snapshot), history_(history), now_(now), rules_(rules) {}

  void xid_count(const EntityKey& entity) {
    const GpuFacts* gpu = snapshot_.gpu(entity.gpu);
    if (!gpu) return;
    auto window = std::chrono::milliseconds(rules_.xid_window_ms);
    std::pair<std::string, std::string> size{"window_size_in_ms", std::to_string(rules_.xid_window_ms)};
    auto counts = history_.xids_since(*gpu, entity.gi, now_ - window);
    if (counts.empty()) add(kXidCount, entity, {size}, 0);
    for (const auto& [xid, count] : counts)
      add(kXidCount, entity, {size, {"xid", std::to_string(xid)}}, count);
  }

  void xid_total(const EntityKey& entity) {
    const GpuFacts* gpu = snapshot_.gpu(entity.gpu);
    if (!gpu) return;
    for (const auto& [xid, count] : history_.xids_ever(*gpu, entity.gi))
      add(kXidTotal, entity, {{"xid", std::to_string(xid)}}, count);
  }

  void clock_count(const EntityKey& entity) {
    auto window = std::chrono::milliseconds(rules_.clock_window_ms);
    std::pair<std::string, std::string> size{"window_size_in_ms", std::to_string(rules_.clock_window_ms)};
    auto counts = history_.clock_events_since(entity, now_ - window);
    if (counts.empty()) add(kClockEventsCount, entity, {size}, 0);
    for (const auto& [bit, count] : counts)
      add(kClockEventsCount, entity, {{"clock_event", std::string(kClockEvents[bit])}, size}, count);
  }

  void clock_total(const EntityKey& entity) {
    for (const auto& [bit, count] : history_.clock_edges(entity))
      add(kClockEventsTotal, entity, {{"clock_event", std::string(kClockEvents[bit])}}, count);
  }

  void health() {
    constexpr Duration kWindow = 60s;
    for (const GpuFacts& gpu : snapshot_.gpus) {
      auto facts = snapshot_.health.find(gpu.index);
      Duration at{};
      const HealthFacts* before = history_.health_before(gpu.uuid, now_ - kWindow, &at);
      auto xids = history_.xids_since(gpu, {}, now_ - kWindow);
      // Of a lost GPU only what is known by events can be told; that it is lost is XID 79's business.
      auto verdicts = judge_health(facts == snapshot_.health.end() ? HealthFacts{} : facts->second,
                                   facts == snapshot_.health.end() ? nullptr : before, now_ - at, xids);
      if (gpu.lost) verdicts["ALL"] = {20, 120};
      for (const std::string& watch : health_watches()) {
        const HealthVerdict& verdict = verdicts[watch];
        add(kHealthStatus, {gpu.index, {}},
            {{"health_error_code", health_error_text(verdict.code)}, {"health_watch", watch}}, verdict.state);
      }
    }
  }

  void peers() {
    for (std::size_t a = 0; a < snapshot_.p2p.size(); ++a) {
      for (std::size_t b = 0; b < snapshot_.p2p[a].size(); ++b) {
        if (a == b) continue;
        int status = snapshot_.p2p[a][b];
        auto name = kLinkStatus[static_cast<std::size_t>(status >= 0 && status < 6 ? status : 6)];
        add(kP2pStatus, {snapshot_.gpus[a].index, {}},
            {{"link_status", std::string(name)}, {"peer_gpu", std::to_string(snapshot_.gpus[b].index)}},
            status);
      }
    }
  }

  std::vector<OwnSample> take() { return std::move(out_); }

 private:
  void add(int family, const EntityKey& entity, LabelPairs labels, std::int64_t value) {
    out_.push_back({family, entity, std::move(labels), value});
  }

  const Snapshot& snapshot_;
  const History& history_;
  Duration now_;
  const OwnRules& rules_;
  std::vector<OwnSample> out_;
};

}  // namespace

void History::add_xid(const XidEvent& event) {
  xids_.push_back(event);
  auto& latest = latest_[event.gpu_uuid];
  std::erase_if(latest, [&](const Latest& old) { return old.gi == event.gi; });
  latest.push_back({event.gi, event.xid});
  ++totals_[event.gpu_uuid][{event.gi, event.xid}];
}

void History::clear_latest(const std::string& gpu_uuid) {
  latest_.erase(gpu_uuid);
}

void History::add_snapshot(const Snapshot& snapshot, Duration at, Duration window) {
  for (const auto& [entity, row] : snapshot.values) {
    const Value& value = snapshot.value(entity, kClockReasonsField);
    const auto* mask = std::get_if<std::int64_t>(&value);
    if (!mask || is_blank(value)) continue;
    auto& masks = masks_[entity];
    auto now = static_cast<std::uint64_t>(*mask);
    std::uint64_t before = masks.empty() ? 0 : masks.back().mask;
    for (unsigned bit = 0; bit < kClockEvents.size(); ++bit)
      if ((now & ~before) >> bit & 1) ++edges_[entity][bit];
    masks.push_back({at, now});
    // The newest stays however old: the next sample's edges are seen against it.
    while (masks.size() > 1 && masks.front().at < at - window) masks.pop_front();
  }
  for (const auto& [index, facts] : snapshot.health) {
    const GpuFacts* gpu = snapshot.gpu(index);
    if (!gpu) continue;
    auto& kept = health_[gpu->uuid];
    kept.emplace_back(at, facts);
    while (kept.size() > 1 && kept.front().first < at - window) kept.pop_front();
  }
}

void History::forget_before(Duration xids, Duration) {
  while (!xids_.empty() && xids_.front().at < xids) xids_.pop_front();
}

std::uint64_t History::latest_xid(const GpuFacts& gpu, std::optional<unsigned> gi) const {
  auto latest = latest_.find(gpu.uuid);
  if (latest == latest_.end()) return 0;
  std::uint64_t xid = 0;
  for (const Latest& one : latest->second)
    if (concerns(one.gi, gi)) xid = one.xid;
  return xid;
}

std::map<std::uint64_t, std::int64_t> History::xids_since(const GpuFacts& gpu, std::optional<unsigned> gi,
                                                          Duration since) const {
  std::map<std::uint64_t, std::int64_t> counts;
  for (const XidEvent& event : xids_) {
    if (event.at >= since && event.gpu_uuid == gpu.uuid && concerns(event.gi, gi)) ++counts[event.xid];
  }
  return counts;
}

std::map<std::uint64_t, std::int64_t> History::xids_ever(const GpuFacts& gpu,
                                                         std::optional<unsigned> gi) const {
  std::map<std::uint64_t, std::int64_t> counts;
  auto found = totals_.find(gpu.uuid);
  if (found == totals_.end()) return counts;
  for (const auto& [key, count] : found->second)
    if (concerns(key.first, gi)) counts[key.second] += count;
  return counts;
}

std::map<unsigned, std::int64_t> History::clock_events_since(const EntityKey& entity, Duration since) const {
  std::map<unsigned, std::int64_t> counts;
  auto masks = masks_.find(entity);
  if (masks == masks_.end()) return counts;
  for (const Mask& one : masks->second) {
    if (one.at < since) continue;
    for (unsigned bit = 0; bit < kClockEvents.size(); ++bit)
      if (one.mask >> bit & 1) ++counts[bit];
  }
  return counts;
}

std::map<unsigned, std::int64_t> History::clock_edges(const EntityKey& entity) const {
  auto found = edges_.find(entity);
  return found == edges_.end() ? std::map<unsigned, std::int64_t>{} : found->second;
}

const HealthFacts* History::health_before(const std::string& uuid, Duration since, Duration* at) const {
  auto found = health_.find(uuid);
  if (found == health_.end()) return nullptr;
  for (const auto& [when, facts] : found->second) {
    if (when < since) continue;
    *at = when;
    return &facts;
  }
  return nullptr;
}

std::vector<OwnSample> own_samples(const CounterSet& counters, const Snapshot& snapshot,
                                   const std::vector<EntityKey>& entities, const History& history,
                                   Duration now, const OwnRules& rules) {
  Samples samples(snapshot, history, now, rules);
  for (const EntityKey& entity : entities) {
    if (counters.has(kXidCount)) samples.xid_count(entity);
    if (counters.has(kXidTotal)) samples.xid_total(entity);
    if (counters.has(kClockEventsCount)) samples.clock_count(entity);
    if (counters.has(kClockEventsTotal)) samples.clock_total(entity);
  }
  if (counters.has(kHealthStatus)) samples.health();
  if (counters.has(kP2pStatus)) samples.peers();
  return samples.take();
}

}  // namespace gpuop::telemetry
