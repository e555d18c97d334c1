// The objects that the chain of stages is read from, watched.
#pragma once

#include <functional>
#include <string>

#include "base/loop.h"
#include "fleet/chain.h"
#include "kube/client.h"
#include "kube/informer.h"

namespace gpuop {

class ClusterWatch {
 public:
  ClusterWatch(kube::Client& client, const std::string& ns);
  // kTimeout with the first fault, when the cluster does not answer in time; kNotFound where nobody defined
  // ClusterPolicies.
  Result<> wait_synced(Loop& loop, Duration limit);
  void on_change(std::function<void()> changed) { changed_ = std::move(changed); }
  fleet::ClusterChain chain() const;
  fleet::Objects all_pods() const;  // of the operator's namespace

  kube::Informer policies, nodes, pods, daemonsets, gpu_clusters, drivers, refusals;

 private:
  std::function<void()> changed_;
};

}  // namespace gpuop
