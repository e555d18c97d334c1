#include "plugin/health.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gpuop::plugin {
namespace {

// The application's own fault (§5).
constexpr std::array<std::uint64_t, 6> kSkipped = {13, 31, 43, 45, 68, 109};

// XIDs whose cure is the application's end or a reset of the GPU. 79 (fallen off the bus) needs a reboot, 54
// a person.
constexpr std::array<std::uint64_t, 20> kRecoverable = {13, 31, 32, 43, 45,  46,  48,  62,  63,  64,
                                                        68, 69, 94, 95, 109, 119, 120, 136, 140, 143};

struct List {
  bool all = false;
  std::set<std::uint64_t> xids;
};

List parse_list(std::string_view name, std::string_view text, std::vector<std::string>& warnings) {
  List out;
  for (const std::string& part : split(text, ',')) {
    std::string item = to_lower(trim(part));
    if (item.empty()) continue;
    if (item == "all" || item == "xids") {
      out.all = true;
    } else if (auto number = parse_int(item); number && *number >= 0) {
      out.xids.insert(static_cast<std::uint64_t>(*number));
    } else {
      warnings.push_back(std::string(name) + ": ignoring '" + item + "': not an XID number, 'all' or 'xids'");
    }
  }
  return out;
}

}  // namespace

bool HealthRules::acts_on(std::uint64_t xid) const {
  if (enable_all || enabled.contains(xid)) return true;
  if (disable_all || disabled.contains(xid)) return false;
  return std::ranges::find(kSkipped, xid) == kSkipped.end();
}

HealthRules parse_health_rules(std::string_view disable, std::string_view enable) {
  HealthRules out;
  List off = parse_list("DP_DISABLE_HEALTHCHECKS", disable, out.warnings);
  List on = parse_list("DP_ENABLE_HEALTHCHECKS", enable, out.warnings);
  out.disable_all = off.all;
  out.disabled = std::move(off.xids);
  out.enable_all = on.all;
  out.enabled = std::move(on.xids);
  return out;
}

bool recoverable(std::uint64_t xid) {
  return std::ranges::find(kRecoverable, xid) != kRecoverable.end();
}

bool concerns(const HealthEvent& event, const Device& device) {
  if (event.gpu_uuid.empty()) return true;
  if (event.gpu_uuid != device.gpu_uuid) return false;
  if (!device.mig()) return true;
  if (event.gpu_instance && *event.gpu_instance != device.gpu_instance) return false;
  return !event.compute_instance || *event.compute_instance == device.compute_instance;
}

std::vector<std::string> HealthState::apply(const HealthEvent& event, const std::vector<Resource>& resources,
                                            Time now) {
  std::vector<std::string> changed;
  if (!event.gpu_uuid.empty() && !rules_.acts_on(event.xid)) return changed;
  std::string reason = event.gpu_uuid.empty() ? "an event came from a GPU that could not be identified"
                                              : "XID " + std::to_string(event.xid);
  std::set<std::string> seen;
  for (const Resource& resource : resources) {
    for (const Device& device : resource.devices) {
      if (!concerns(event, device) || !seen.insert(device.uuid).second) continue;
      bool can_recover = event.gpu_uuid.empty() || recoverable(event.xid);
      if (mark(device.uuid, device.gpu_uuid, reason, can_recover, now)) changed.push_back(device.uuid);
    }
  }
  return changed;
}

bool HealthState::mark(const std::string& uuid, const std::string& gpu_uuid, std::string reason,
                       bool can_recover, Time now) {
  auto [found, fresh] = marks_.try_emplace(uuid);
  Mark& mark = found->second;
  // What only a reboot cures stays so, whatever comes after it.
  mark.recoverable = (fresh || mark.recoverable) && can_recover;
  mark.reason = std::move(reason);
  mark.since = now;
  mark.gpu_uuid = gpu_uuid;
  return fresh;
}

bool HealthState::clear(const std::string& uuid) {
  return marks_.erase(uuid) > 0;
}

std::vector<std::string> HealthState::due(Time now, Duration interval) const {
  std::vector<std::string> out;
  if (interval <= Duration(0)) return out;
  for (const auto& [uuid, mark] : marks_) {
    if (mark.recoverable && now - mark.since >= interval) out.push_back(uuid);
  }
  return out;
}

std::optional<Duration> HealthState::next(Time now, Duration interval) const {
  std::optional<Duration> out;
  if (interval <= Duration(0)) return out;
  for (const auto& [uuid, mark] : marks_) {
    if (!mark.recoverable) continue;
    Duration wait = std::max(Duration(0), mark.since + interval - now);
    if (!out || wait < *out) out = wait;
  }
  return out;
}

}  // namespace gpuop::plugin
