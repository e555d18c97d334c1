// The kubelet's pod-resources socket (telemetry.md §5.1): one List at a time, answered on the loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "telemetry/pods.h"

namespace gpuop::telemetry {

class PodResources {
 public:
  PodResources(Loop& loop, std::string socket);
  ~PodResources();  // a call under way is given up
  PodResources(const PodResources&) = delete;
  PodResources& operator=(const PodResources&) = delete;

  // Calls `done` on the loop, once; kNotFound when there is no socket (then before list() returns).
  void list(Duration limit, std::function<void(Result<std::vector<PodDevice>>)> done);

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace gpuop::telemetry
