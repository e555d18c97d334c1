// What went wrong in a pod, in words, and where more words of it are (container logs, a device plugin's log).
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "fleet/chain.h"

namespace gpuop::fleet {

struct Fault {
  std::string text;  // "container c: CrashLoopBackOff: last words", without the pod's name
  // The container whose log has the words that the text lacks; nullopt: it has words, or there was no run.
  std::optional<LogRef> log;
  // It has been tried again and again, or cannot come right by itself.
  bool stuck = false;
  std::string cure;  // what to look at or change, a command where one helps
  // No other pod brings it about or heals it: an image that cannot be pulled, a node without room.
  bool by_itself = false;
};

// The first container of `pod` that failed, else what ended the pod or keeps it from a node; nullopt: nothing
// is wrong. What ended before `since` (when its node came up last) and runs again is no fault of now, nor are
// ends that nobody saw, as a boot leaves them.
std::optional<Fault> fault_of(const Json& pod, std::optional<Time> since = std::nullopt);
// The same for one container's status.
std::optional<Fault> container_fault(const Json& pod, const Json& status,
                                     std::optional<Time> since = std::nullopt);

bool pod_ready(const Json& pod);

// The line of a log, or of a termination message, that tells why its program ended: the last that is an
// error, else the last, unless that says itself that it is less than an error: what a program did before it
// was killed is no reason. Time, level and program's name in front of it are cut off; of a JSON line, the
// message is taken. "": none tells.
std::string last_words(std::string_view log);

// What a device plugin's log (ours or upstream's) says of its GPUs as they are now, one sentence each:
// "GPU-8f…: XID 79", "GPU 3 is not offered: … GPU is lost", "not registered: …".
std::vector<std::string> plugin_faults(std::string_view log);

// The same of one XID that made a unit (a GPU or MIG device, by its UUID) unhealthy. `index`: of its GPU.
std::string xid_fault(const std::string& unit, const std::string& index, std::int64_t number);

// What it means that ClusterPolicies cannot be listed (`fault`: the server's answer in words): their
// definition is not installed, and what installs it. "": that is not why.
std::string definition_fault(std::string_view fault);

// The Lease that the operator's leader holds, in its namespace.
inline constexpr const char* kOperatorLease = "53822513.nvidia.com";

// What of a Deployment operator_fault() reads, as an informer's `keep`.
std::vector<std::string> operator_deployment_fields();

// Why no operator works on the policies; "" when one does. `deployments`: those of its namespace; `lease`:
// null when there is none; `pods`: those of its namespace.
std::string operator_fault(const JsonArray& deployments, const Json& lease, const Objects& pods,
                           std::string_view ns, Time now);

}  // namespace gpuop::fleet
