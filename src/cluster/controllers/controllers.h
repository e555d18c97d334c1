// The controllers that the embedded control plane needs (kubernetes-api.md §10, §14): DaemonSet, Deployment,
// ReplicaSet, Job, scheduler, garbage collector, namespaces, service accounts, nodes, events' end.
//
// They are clients of any API server: what they know comes from watches, what they do goes through requests,
// and they share nothing with the server. Nothing polls; every delay is on the loop, so a virtual clock
// drives them.
#pragma once

#include <memory>
#include <string>

#include "base/loop.h"
#include "kube/client.h"

namespace gpuop::cluster {

struct ControllerOptions {
  // Published as ConfigMap kube-root-ca.crt in each namespace that lacks one; empty: not published.
  std::string ca_pem;
  // A node whose kubelet is silent for so long is Unknown.
  Duration node_grace = std::chrono::seconds(50);
  // Pods of a node that was deleted are removed after this.
  Duration orphaned_pod_delay = std::chrono::seconds(40);
  Duration event_ttl = std::chrono::hours(1);
};

class Controllers {
 public:
  virtual ~Controllers() = default;  // stops them all; what they made stays
  // All that they watch is known; from here on they act.
  virtual bool synced() const = 0;
};

// `loop` and `client` outlive what is returned.
std::unique_ptr<Controllers> start_controllers(Loop& loop, kube::Client& client,
                                               ControllerOptions options = {});

}  // namespace gpuop::cluster
