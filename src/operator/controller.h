// The ClusterPolicy controller: watches the cluster, decides, writes (operator.md §3, §4).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "kube/informer.h"
#include "operator/metrics.h"
#include "operator/render.h"

namespace gpuop::op {

struct ControllerOptions {
  std::string ns;                          // OPERATOR_NAMESPACE
  std::string own_image;                   // the image that this operator runs from; "" when unknown
  std::map<std::string, std::string> env;  // image fallbacks (§1.6)
  Assets assets;
};

class Controller {
 public:
  Controller(Loop& loop, kube::Client& client, ControllerOptions options, Metrics& metrics);
  ~Controller();
  // Starts the watches: they may run before leadership, so that a new leader acts at once.
  void start_watching();
  bool synced() const;
  // All nodes, for whoever else needs to follow them; there from the start.
  kube::Informer& nodes();
  // From now on writes are made.
  void lead();
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::op
