// When a device counts as healthy (device-plugin-gfd-mps.md §5): decided from NVML's events and probes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "plugin/resources.h"

namespace gpuop::plugin {

// Which XIDs make a device unhealthy, from DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS.
struct HealthRules {
  bool disable_all = false, enable_all = false;
  std::set<std::uint64_t> disabled, enabled;
  std::vector<std::string> warnings;  // malformed items, which are ignored

  bool acts_on(std::uint64_t xid) const;
  // False: nothing could ever be acted on, so that health checking need not start.
  bool needed() const { return !disable_all || enable_all || !enabled.empty(); }
};
HealthRules parse_health_rules(std::string_view disable, std::string_view enable);

// Whether time can heal what the XID says: the application's end or a reset is the cure, not a reboot or a
// person.
bool recoverable(std::uint64_t xid);

// One NVML event, with names in place of handles.
struct HealthEvent {
  std::string gpu_uuid;  // empty: it could not be read, so every device is meant
  std::uint64_t xid = 0;
  // Absent: not attributed.
  std::optional<unsigned> gpu_instance, compute_instance;
};
bool concerns(const HealthEvent& event, const Device& device);

// The health of every device unit (a GPU or MIG device; its replicas share it).
class HealthState {
 public:
  struct Mark {
    std::string reason;
    Time since{};
    bool recoverable = false;  // by a probe after the recovery interval
    std::string gpu_uuid;
  };

  explicit HealthState(HealthRules rules) : rules_(std::move(rules)) {}

  // Marks what the event concerns, if the rules act on its XID. Answers the units that were healthy before; a
  // unit that was marked already waits anew.
  std::vector<std::string> apply(const HealthEvent& event, const std::vector<Resource>& resources, Time now);
  // Marks one unit for another reason than an XID.
  bool mark(const std::string& uuid, const std::string& gpu_uuid, std::string reason, bool recoverable,
            Time now);
  bool clear(const std::string& uuid);

  bool healthy(const std::string& uuid) const { return !marks_.contains(uuid); }
  const std::map<std::string, Mark>& marks() const { return marks_; }
  // Units that may be probed now, and how long until the next may be; nullopt: none ever.
  std::vector<std::string> due(Time now, Duration interval) const;
  std::optional<Duration> next(Time now, Duration interval) const;
  const HealthRules& rules() const { return rules_; }

 private:
  HealthRules rules_;
  std::map<std::string, Mark> marks_;  // by unit UUID
};

}  // namespace gpuop::plugin
