#include "kube/work_queue.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace gpuop::kube {

struct WorkQueue::Impl : std::enable_shared_from_this<WorkQueue::Impl> {
  Impl(Loop& l, Work w, QueueOptions o) : loop(l), work(std::move(w)), options(o), tokens(o.burst) {}

  void add(const std::string& key) {
    if (running.contains(key)) {
      again.insert(key);
      return;
    }
    if (!queued.insert(key).second) return;
    order.push_back(key);
    schedule();
  }

  void add_after(const std::string& key, Duration delay) {
    if (delay <= Duration::zero()) return add(key);
    const Duration due = loop.elapsed() + delay;
    const auto found = delayed.find(key);
    if (found != delayed.end() && found->second.due <= due) return;
    delayed[key] = {due, loop.after(delay, [weak = weak_from_this(), key] {
                      const auto self = weak.lock();
                      if (!self) return;
                      self->delayed.erase(key);
                      self->add(key);
                    })};
  }

  void retry(const std::string& key) {
    const int count = failures[key]++;
    Duration delay = options.max_delay;
    if (count < 30) delay = std::min<Duration>(options.base_delay * (1LL << count), options.max_delay);
    add_after(key, std::max(delay, take_token()));
  }

  // How long until the bucket has a token for one more retry; the token is taken.
  Duration take_token() {
    if (options.rate <= 0) return Duration::zero();
    const Duration now = loop.elapsed();
    const double passed = std::chrono::duration<double>(now - refilled).count();
    tokens = std::min<double>(options.burst, tokens + passed * options.rate);
    refilled = now;
    tokens -= 1;
    if (tokens >= 0) return Duration::zero();
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(-tokens / options.rate));
  }

  void schedule() {
    if (scheduled || order.empty() || static_cast<int>(running.size()) >= options.workers) return;
    scheduled = true;
    loop.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->pump();
    });
  }

  void pump() {
    scheduled = false;
    while (!stopped && !order.empty() && static_cast<int>(running.size()) < options.workers) {
      const std::string key = std::move(order.front());
      order.pop_front();
      queued.erase(key);
      running.insert(key);
      work(key, [weak = weak_from_this(), key, called = std::make_shared<bool>(false)](bool ok) {
        if (std::exchange(*called, true)) return;
        if (const auto self = weak.lock()) self->finished(key, ok);
      });
      // One key a turn: a long queue does not keep sockets and timers waiting.
      break;
    }
    schedule();
  }

  void finished(const std::string& key, bool ok) {
    running.erase(key);
    if (ok) {
      failures.erase(key);
    } else {
      retry(key);
    }
    if (again.erase(key) > 0) add(key);
    schedule();
  }

  struct Delayed {
    Duration due;
    Handle timer;
  };

  Loop& loop;
  Work work;
  QueueOptions options;
  std::deque<std::string> order;
  std::unordered_set<std::string> queued;   // what is in `order`
  std::unordered_set<std::string> running;  // under way
  std::unordered_set<std::string> again;    // added while under way
  std::unordered_map<std::string, Delayed> delayed;
  std::unordered_map<std::string, int> failures;
  double tokens;
  Duration refilled{0};
  bool scheduled = false;
  bool stopped = false;
};

WorkQueue::WorkQueue(Loop& loop, Work work, QueueOptions options)
    : impl_(std::make_shared<Impl>(loop, std::move(work), options)) {}

WorkQueue::~WorkQueue() {
  impl_->stopped = true;
  impl_->delayed.clear();
}

void WorkQueue::add(const std::string& key) {
  impl_->add(key);
}
void WorkQueue::add_after(const std::string& key, Duration delay) {
  impl_->add_after(key, delay);
}
void WorkQueue::forget(const std::string& key) {
  impl_->failures.erase(key);
}

int WorkQueue::failures(const std::string& key) const {
  const auto found = impl_->failures.find(key);
  return found == impl_->failures.end() ? 0 : found->second;
}

std::size_t WorkQueue::waiting() const {
  return impl_->order.size();
}

}  // namespace gpuop::kube
