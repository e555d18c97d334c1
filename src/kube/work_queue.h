// Keys to work on: each waits at most once, never runs twice at the same time (kubernetes-api.md §17.3).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/loop.h"

namespace gpuop::kube {

struct QueueOptions {
  Duration base_delay = 5ms;  // first failure; doubles
  Duration max_delay = 1000s;
  int workers = 1;  // keys under way at once
};

class WorkQueue {
 public:
  // Work on `key`; call `finished` exactly once: true forgets the key's failures, false retries it with
  // back-off.
  using Work = std::function<void(const std::string& key, std::function<void(bool ok)> finished)>;
  WorkQueue(Loop& loop, Work work, QueueOptions options = {});
  ~WorkQueue();
  void add(const std::string& key);
  void add_after(const std::string& key, Duration delay);
  void forget(const std::string& key);
  int failures(const std::string& key) const;
  std::size_t waiting() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::kube
