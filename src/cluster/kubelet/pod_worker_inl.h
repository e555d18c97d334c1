// Private to the .cc files of PodWorker.
#pragma once

#include "cluster/kubelet/pod_worker.h"

namespace gpuop::cluster {

// A callback for somebody else's later call: it does nothing once the worker is gone or stopped.
template <class F>
auto PodWorker::safe(F callback) {
  return [weak = weak_from_this(), callback = std::move(callback)](auto&&... args) mutable {
    const auto self = weak.lock();
    if (self && !self->stopped_) callback(std::forward<decltype(args)>(args)...);
  };
}

}  // namespace gpuop::cluster
