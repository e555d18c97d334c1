// What a pod's status says, from what is known of its containers (kubernetes-api.md §14.4). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

enum class ContainerKind { kInit, kSidecar, kApp };

struct ContainerFacts {
  std::string name;
  ContainerKind kind = ContainerKind::kApp;
  std::string image;
  std::string image_id;
  std::optional<ContainerInfo> current;  // the newest attempt that was made
  std::optional<ContainerInfo> last;     // the one before it, ended
  std::string termination_message;       // of `current` when it has ended
  std::string last_termination_message;
  // Why it does not run: "CrashLoopBackOff", "ErrImagePull", …; empty: nothing keeps it.
  std::string waiting_reason, waiting_message;
  bool past = false;                    // `current` was in a sandbox that is gone; it begins anew
  bool started = false, ready = false;  // as the probes say; only of a running container
};

struct PodFacts {
  const Json& pod;
  const Json& observed;                    // its status as the API server has it
  std::vector<ContainerFacts> containers;  // init containers first, in the order of the spec
  std::string node_ip;
  std::string scheme = "containerd";  // container ids begin with it
  bool sandbox_ready = false;
  bool ended = false;  // nothing runs and nothing will: a deleted or failed pod
  // Set for a pod that was refused or stopped as a whole: phase Failed.
  std::string failed_reason, failed_message;
  Time start_time{};
  Time now{};
};

// "Pending", "Running", "Succeeded", "Failed".
std::string pod_phase(const PodFacts& facts);
// "Guaranteed", "Burstable", "BestEffort".
std::string qos_class(const Json& pod);
// The whole status as the kubelet owns it; transition times are kept from the pod's status where nothing
// changed.
Json build_status(const PodFacts& facts);
// The strategic merge patch that turns `observed` into `desired`: only what differs, conditions one by one.
// An empty object when nothing does.
Json status_patch(const Json& observed, const Json& desired);

}  // namespace gpuop::cluster
