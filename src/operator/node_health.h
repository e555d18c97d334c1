// What the operator says of each GPU node: the condition GPUReady in its status, events on it, metrics, and
// the words of the policy's condition. All are the first broken link of the node's chain (fleet/chain.h), so
// that they say what `gpuctl status` says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "fleet/chain.h"
#include "kube/client.h"
#include "kube/events.h"
#include "operator/cache.h"
#include "operator/metrics.h"

namespace gpuop::op {

inline constexpr std::string_view kGpuReady = "GPUReady";

// --- decide: pure ---

// When a node's condition was last written, and since when its chain has been on its way without a fault.
struct HealthMemory {
  std::optional<Duration> written;
  std::optional<Duration> working_since;
};

struct HealthChange {
  enum class Act { kNothing, kWrite, kRemove } act = Act::kNothing;
  std::optional<Duration> wait;  // decide again after this
  // Of what is written:
  std::string status, reason, message;
  bool transition = false;  // the status changes, not only words
  std::string event;        // "Warning" or "Normal": somebody should be told; "": no news
};

// `node`: the live object; `link`: its first broken link, nullopt when it is ready; `wanted`: it has GPUs and
// a policy serves it. A fault and its end are written at once, but not more than once a second; a node that
// is on its way is given five seconds, since most are there by then; words alone change twice a minute at
// most.
HealthChange decide_health(const Json& node, bool wanted, const std::optional<fleet::BrokenLink>& link,
                           const HealthMemory& memory, Duration now);

// The strategic merge patch of the node's status that carries out `change`.
Json health_patch(const HealthChange& change, Time now);

// --- act ---

class NodeHealth {
 public:
  NodeHealth(kube::Client& client, ClusterCache& cache, kube::EventRecorder& events, Metrics& metrics)
      : client_(client), cache_(cache), events_(events), metrics_(metrics) {}

  // Of a node of the cache, as it is now. `refused`: fleet::refused_pods().
  fleet::NodeChain chain(const Json& node, const std::map<std::string, std::string>& refused) const;
  // Remembers what is broken, and writes the condition where it differs. `wait` of the answer: look again
  // after that. `done(false)`: the write failed.
  std::optional<Duration> look(const Json& node, const fleet::NodeChain& chain, bool wanted,
                               const std::function<void(bool ok)>& done);
  void forget(const std::string& node);
  // Why conditions cannot be written: a right that is missing; "" when they can.
  const std::string& refused() const { return refused_; }
  // "node n1: driver: …" of the first three nodes whose chain failed, as their conditions say it, and how
  // many more there are; "" when there is none.
  std::string words() const;
  // The same of nodes that an operand is kept from: no DaemonSet lacks a pod for them.
  std::vector<std::string> kept_off() const;
  // The broken link of a node that was looked at; null when it had none.
  const fleet::BrokenLink* link_of(const std::string& node) const;

 private:
  void remember(const std::string& node, const std::optional<fleet::BrokenLink>& link, bool told);

  kube::Client& client_;
  ClusterCache& cache_;
  kube::EventRecorder& events_;
  Metrics& metrics_;
  std::string refused_;
  std::map<std::string, HealthMemory> memory_;
  std::map<std::string, fleet::BrokenLink> broken_;
  std::map<std::string, std::string> failed_;    // node to its words, as its condition has them
  std::map<std::string, std::string> kept_off_;  // the same
};

}  // namespace gpuop::op
