// What a thread that waits inside a library has in common with the loop that hears of it. The thread's own
// state derives from it and is held by shared pointers, one of them the thread's: whoever started the thread
// may be gone before the library lets it go.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "base/loop.h"

namespace gpuop {

class ThreadLink : public std::enable_shared_from_this<ThreadLink> {
 public:
  explicit ThreadLink(Loop& loop) : loop_(loop) {}
  virtual ~ThreadLink() = default;
  ThreadLink(const ThreadLink&) = delete;
  ThreadLink& operator=(const ThreadLink&) = delete;

  // For the thread. `work` runs on the loop, unless stop() came first; then nothing is posted, so that the
  // loop may end.
  void post(std::function<void()> work);
  bool is_stopped();
  // Until the time is over or stop() comes.
  void pause(Duration span);
  // The last thing that the thread does, where somebody waits for its end.
  void finish();

  // For the loop's thread: no work runs after it.
  void stop();
  // stop(), and whether the thread came to finish() within `limit`.
  bool stop_and_wait(Duration limit);

 private:
  Loop& loop_;
  std::mutex mutex_;  // held only to look and to post
  std::condition_variable changed_;
  bool stopped_ = false;
  bool finished_ = false;
};

}  // namespace gpuop
