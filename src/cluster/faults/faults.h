// A faults file: what goes wrong in a simulated cluster, when, where and for how long. Ours, so anything
// unknown in it is an error with path, line and the nearest right name. docs/simulator.md lists every fault.
//
//   seed: 7                       # of probabilities; default 1
//   faults:
//     - name: slow operator       # shown in the event log; default fault 1, fault 2, …
//       at: 12s                   # from then on, by the clock of the fleet; default 0s: before all else
//       for: 10s                  # so long; default: to the end
//       api: throttle             # delay, throttle, error, conflict, lost-answer, cut-watch, stale-list,
//       expired retryAfter: 2s where: {verb: [create, update], resource: daemonsets, component: gpu-operator}
//       probability: 0.5          # of each request that fits; or
//       nth: 3                    # only the third that fits
//       times: 4                  # at most so often
//     - at: 60s
//       node: gpu-*               # every node whose name fits
//       event: reboot             # lost, reboot, kubelet-restart, plugin-crash, container-crash, gpu-lost,
//       xid, for: 20s                  #   ecc, pull-delay, pull-failure, kernel-upgrade
//     - at: 90s
//       clock: 1h                 # the fleet's wall clock jumps; "-1h" back
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "base/yaml.h"

namespace gpuop::cluster {

enum class ApiFault {
  kDelay,       // the request is served after `delay`
  kThrottle,    // 429 with Retry-After
  kError,       // `status`, 500 to 504
  kConflict,    // 409 to an update or patch
  kLostAnswer,  // served, and the connection ends without the answer
  kCutWatch,    // open watches end, and new ones at once
  kStaleList,   // a list that may come from a cache shows the cluster as it was `behind` ago
  kExpired,     // 410 to lists and watches from a given version
};

// What a request must be like. Empty: anything. Names may hold '*' for any run of characters.
struct RequestFilter {
  std::vector<std::string> verbs;  // get, list, watch, create, update, patch, delete, deletecollection
  std::string resource;            // plural, "nodes/status" with a subresource
  std::string ns, name;
  std::string component;  // the part of User-Agent before '/': gpu-operator, kubelet, …
  std::string node;       // requests of what runs on that node (hollow fleets)
};

enum class NodeFault {
  kLost,            // its kubelet and operands reach nobody for `for`
  kReboot,          // processes and tmpfs gone, another boot id, back after `for`
  kKubeletRestart,  // the kubelet is away for `for`
  kPluginCrash,     // the device plugin's container dies
  kContainerCrash,  // the containers named `container` die
  kGpuLost,         // GPU `gpu` falls off the bus; it is back after `for`
  kXid,             // the driver reports `xid` for GPU `gpu`
  kEcc,             // an uncorrectable memory error: XID 48
  kPullDelay,       // pulls take `delay`, for `for`
  kPullFailure,     // pulls fail, for `for`
  kKernelUpgrade,   // a reboot into `kernel`
};

struct Fault {
  std::string name;
  Duration at{0};
  std::optional<Duration> span;  // `for`

  // One of these is set.
  std::optional<ApiFault> api;
  std::optional<NodeFault> event;
  std::optional<Duration> clock;

  RequestFilter where;
  double probability = 1;
  int nth = 0;    // 0: every one
  int times = 0;  // 0: as often as it comes
  Duration delay{0}, retry_after{0}, behind{0};
  int status = 500;

  std::string node;
  int gpu = 0;  // index
  int xid = 0;
  std::string kernel, container;  // the container's may hold '*'
};

// How long a fault lasts: its `for`; without one a reboot takes 30 s, a kubelet's restart 1 s, and what
// happens at once (a crash, an XID, a clock that jumps, watches that are cut) 0 s. nullopt: it has no end.
std::optional<Duration> duration_of(const Fault& fault);

struct FaultPlan {
  std::uint64_t seed = 1;
  std::vector<Fault> faults;
  // Where it was read from, for messages; empty for a plan that was made.
  std::string file;
  YamlDocument lines;  // lines only, no value

  // When every fault has come and those with an end (duration_of) are over.
  Duration over() const;
  // "FILE:4: fault 'slow operator'", or without file and line.
  std::string place(std::size_t fault) const;
  // "read faults 'FILE': line 4: faults[0].where.resource: WHY", or "use fault 'NAME': where.resource: WHY".
  std::unexpected<Error> wrong(std::size_t fault, std::string_view key, const std::string& why,
                               Code code = Code::kInvalid) const;
};

// Errors: "read faults 'FILE': line 4: faults[0].api: must be one of …; got 'trottle' (did you mean
// 'throttle'?)". What a name may be follows from the cluster: check_faults() (names.h).
Result<FaultPlan> parse_faults(std::string_view text, std::string_view file);
// A file that parse_faults() reads back.
std::string faults_text(const FaultPlan& plan);

std::string_view fault_word(ApiFault fault);
std::string_view fault_word(NodeFault fault);
// `*` stands for any run of characters; an empty pattern fits everything.
bool fits(std::string_view pattern, std::string_view text);

}  // namespace gpuop::cluster
