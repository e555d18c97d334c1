// nfd-worker: discovers, publishes one NodeFeature, and does it again when a feature file changes or the
// interval has passed (nfd.md §2.4).
#pragma once

#include <memory>
#include <random>
#include <string>

#include "base/loop.h"
#include "features/sources.h"
#include "kube/client.h"

namespace gpuop::features {

struct WorkerOptions {
  WorkerConfig config;
  HostView host;
  std::string node;  // NODE_NAME
  std::string ns;    // the worker's namespace
  std::string pod_name, pod_uid;
  bool oneshot = false;
};

// The NodeFeature that is published; `owners` as they stand in metadata.ownerReferences. Pure.
Json node_feature(const WorkerOptions& options, const Discovery& discovery, const JsonArray& owners);
// Whether `wanted` says something else than the live object (annotations, labels, owners, spec). Pure.
bool differs(const Json& live, const Json& wanted);

class Worker {
 public:
  // `finished`: called with oneshot after the first publication, and otherwise only when the worker gives up
  // (credentials refused for ten minutes).
  Worker(Loop& loop, kube::Client* client, WorkerOptions options, std::function<void(Result<>)> finished);
  ~Worker();
  Result<> start();
  bool published() const;
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::features
