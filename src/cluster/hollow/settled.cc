#include "cluster/hollow/settled.h"

#include <initializer_list>

#include "kube/object.h"

namespace gpuop::cluster {
namespace {

// A kubelet does not try these again.
bool final_wait(std::string_view reason) {
  return reason == "InvalidImageName" || reason == "ErrImageNeverPull";
}

std::string unsettled_container(const Json& pod, const Json& status, bool init) {
  const std::string who = "container " + str(get_string(status, {"name"}));
  if (const Json* waiting = find(status, {"state", "waiting"})) {
    const std::string reason = str(get_string(*waiting, {"reason"}));
    return final_wait(reason) ? std::string() : who + " waits: " + reason;
  }
  // Its startup probe has yet to pass, or to end it.
  const Json* started = find(status, {"started"});
  if (!init && has(status, {"state", "running"}) && started && *started == Json(false))
    return who + " is starting";
  const Json* ended = find(status, {"state", "terminated"});
  if (ended == nullptr) return {};
  const auto policy = get_string(pod, {"spec", "restartPolicy"}, "Always");
  const bool failed = get_int(*ended, {"exitCode"}) != 0;
  const bool again = (policy == "Always" && !init) || (policy != "Never" && failed);
  return again ? who + " has ended and starts again" : std::string();
}

}  // namespace

std::string unsettled_pod(const Json& pod, const std::set<std::string>& speaking) {
  const std::string name = "pod " + str(kube::name_of(pod)) + ": ";
  const std::string node = str(get_string(pod, {"spec", "nodeName"}));
  if (node.empty()) {
    // The scheduler has not spoken; once it has found no node, something else must change first.
    return kube::condition(pod, "PodScheduled") == nullptr ? name + "waits for the scheduler" : std::string();
  }
  if (!speaking.contains(node)) return {};
  if (has(pod, {"metadata", "deletionTimestamp"})) return name + "is being deleted";
  const auto phase = get_string(pod, {"status", "phase"});
  const Json* owner = kube::controller_of(pod);
  const bool daemon = owner != nullptr && get_string(*owner, {"kind"}) == "DaemonSet";
  if (phase == "Failed" && daemon) return name + "has failed and will be made again";
  if (phase == "Failed" || phase == "Succeeded") return {};
  for (const auto& [list, init] : std::initializer_list<std::pair<const char*, bool>>{
           {"initContainerStatuses", true}, {"containerStatuses", false}}) {
    for (const Json& status : get_array(pod, {"status", list})) {
      const std::string why = unsettled_container(pod, status, init);
      if (!why.empty()) return name + why;
    }
  }
  if (phase == "Pending" && get_array(pod, {"status", "containerStatuses"}).empty())
    return name + "has not been started by its node";
  return {};
}

}  // namespace gpuop::cluster
