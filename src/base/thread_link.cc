#include "base/thread_link.h"

#include <utility>

namespace gpuop {

void ThreadLink::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  loop_.post([self = shared_from_this(), work = std::move(work)] {
    if (!self->is_stopped()) work();
  });
}

bool ThreadLink::is_stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void ThreadLink::pause(Duration span) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, span, [this] { return stopped_; });
}

void ThreadLink::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void ThreadLink::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool ThreadLink::stop_and_wait(Duration limit) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, limit, [this] { return finished_; });
}

}  // namespace gpuop
