// Light nodes: for the size of a cluster, not for what happens on a node. All of them share one watch of pods
// and one client; a pod that is bound to one turns Ready (or Succeeded, where it is not to be restarted) in
// one write, and its containers run nothing. What the plugin, the feature worker and GPU feature discovery
// would tell of the node's hardware is told once their pods are Ready, by the same decide functions as
// everywhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "cluster/fleet/fleet.h"
#include "cluster/hollow/machine.h"
#include "kube/transport.h"
#include "operator/render.h"

namespace gpuop::cluster {

struct LightNode {
  FleetNode node;
  HollowHardware hardware;
  int index = 0;
};

class LightNodes {
 public:
  // `loop`, `transport` and `assets` (of the operator; may be null) outlive them.
  LightNodes(Loop& loop, std::shared_ptr<kube::Transport> transport, std::vector<LightNode> nodes,
             const op::Assets* assets);
  ~LightNodes();
  void start();
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
