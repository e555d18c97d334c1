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
  // kTimeout with the first fault, when the cluster does not answer in time; kNotFound where nobody has
  // defined ClusterPolicies for `patience`.
  Result<> wait_synced(Loop& loop, Duration limit, Duration patience = Duration::zero());
  void on_change(std::function<void()> changed) { changed_ = std::move(changed); }
  fleet::ClusterChain chain() const;
  // Why no operator works on it; "" when one does. What cannot be read is a reason too.
  std::string operator_fault(Time now) const;

  kube::Informer policies, nodes, pods, daemonsets, gpu_clusters, drivers, refusals, deployments, leases;

 private:
  std::string ns_;
  std::function<void()> changed_;
};

}  // namespace gpuop
