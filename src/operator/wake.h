// Pods that wait for the container runtime's configuration. Operands that run through a RuntimeClass of ours
// and land on a node before its toolkit has configured the runtime fail to get a sandbox, and the kubelet
// tries again after 10 to 15 s. It also tries at once when the pod changes: so as soon as the toolkit has
// done its work, the pods that wait there get a label, which is taken away again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/loop.h"
#include "kube/client.h"
#include "kube/work_queue.h"

namespace gpuop::op {

// On the template of a toolkit whose container is ready only when the runtime is configured: the one of our
// own image. Upstream's is ready when it has started, which tells nothing.
inline constexpr std::string_view kTellsRuntime = "nvidia.com/gpu-operator.ready-tells-runtime";
// The reason of the Event by which that toolkit's pod says it itself. A kubelet would tell some seconds
// later: it looks once a second for the container, then for the probe, and not while the runtime restarts.
inline constexpr std::string_view kRuntimeConfigured = "RuntimeConfigured";
// On a pod that is being woken, for a moment.
inline constexpr std::string_view kWoken = "nvidia.com/gpu-operator.woken";

// Which of all toolkits' containers it is, if `pod` is such a toolkit's and its container ready; ""
// otherwise. Pure.
std::string configured_runtime(const Json& pod);
// Whether the pod is on a node, through a RuntimeClass, and has no sandbox yet. Pure.
bool waits_for_runtime(const Json& pod);

// Two writes for each pod that waits at the moment its node's toolkit becomes ready; none for pods that come
// later.
class Waker {
 public:
  Waker(Loop& loop, kube::Client& client, std::string ns);
  // A pod of the operator's namespace changed; `now` null: it is gone. Writes only once lead() was called.
  void changed(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now);
  // An Event of the reason above came. It counts by the pod that it is about, which must be such a toolkit.
  void told(const Json& event);
  // Catches up with what happened while nobody led.
  void lead();

 private:
  struct Node {
    std::string toolkit;            // which container of it is ready
    std::set<std::string> waiting;  // names of pods
  };
  void wake(const Node& node);
  void write(const std::string& pod, std::function<void(bool)> done);

  kube::Client& client_;
  std::string ns_;
  bool leading_ = false;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::string> toolkits_;  // UID of each to its node
  std::set<std::string> to_wake_, woken_;        // pods that are to get the label, and those that have it
  kube::WorkQueue writes_;
};

}  // namespace gpuop::op
