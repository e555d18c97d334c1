// Kubernetes Events with the aggregation of kubernetes-api.md §17.6.
#pragma once

#include <memory>
#include <string>

#include "kube/client.h"

namespace gpuop::kube {

class EventRecorder {
 public:
  // `component` is source.component; `host` source.host (may be empty).
  EventRecorder(Client& client, std::string component, std::string host = {});
  ~EventRecorder();
  // `type` "Normal" or "Warning". `object` needs apiVersion, kind, metadata. Never fails: a lost event is
  // logged.
  void event(const Json& object, std::string_view type, std::string_view reason, std::string_view message);
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::kube
