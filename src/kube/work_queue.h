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
  // Retries of all keys together, when many fail at once: a bucket of `burst`, refilled with `rate` a second.
  // Rate 0: no such limit.
  double rate = 10;
  int burst = 100;
};

class WorkQueue {
 public:
  // Work on `key`; call `finished` exactly once: true forgets the key's failures, false retries it with
  // back-off. A conflict is no success: what there is now may be known already, so that no event follows.
  using Work = std::function<void(const std::string& key, std::function<void(bool ok)> finished)>;
  WorkQueue(Loop& loop, Work work, QueueOptions options = {});
  ~WorkQueue();
  // The work starts on a later turn of the loop, never inside this call. Keys run in the order in which they
  // came.
  void add(const std::string& key);
  // A second delay of the same key counts only when it ends earlier.
  void add_after(const std::string& key, Duration delay);
  void forget(const std::string& key);
  int failures(const std::string& key) const;
  // Keys that are ready and not under way yet.
  std::size_t waiting() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::kube
