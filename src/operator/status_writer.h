// Writes status.state and the conditions of ClusterPolicies, NVIDIADrivers and GPUClusters, where they
// differ.
#pragma once

#include <functional>
#include <string>

#include "kube/client.h"
#include "kube/events.h"
#include "operator/cache.h"
#include "operator/status.h"

namespace gpuop::op {

class StatusWriter {
 public:
  StatusWriter(kube::Client& client, ClusterCache& cache, kube::EventRecorder& events)
      : client_(client), cache_(cache), events_(events) {}

  // For the object of that name as the cache has it now: a pass may have taken a while. A new state is
  // logged, and an event on the object. `done` comes on a later turn of the loop; false: the write failed.
  void write(const kube::Resource& type, const Json& object, const Outcome& outcome, const StatusNotes& notes,
             std::function<void(bool ok)> done);

 private:
  kube::Client& client_;
  ClusterCache& cache_;
  kube::EventRecorder& events_;
};

}  // namespace gpuop::op
