#include "telemetry/sampler.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace gpuop::telemetry {

struct Sampler::Shared : std::enable_shared_from_this<Sampler::Shared> {
  Shared(Loop& l, std::filesystem::path n, Done d) : loop(l), library(std::move(n)), done(std::move(d)) {}

  void run() {
    {
      Reader reader(library);
      while (auto plan = next()) {
        auto read = reader.read(*plan, now());
        using Shot = Result<std::shared_ptr<const Snapshot>>;
        Shot shot = read ? Shot(std::make_shared<const Snapshot>(std::move(*read)))
                         : Shot(fail(std::move(read).error()));
        post(std::move(shot));
      }
    }
    std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }

  static Duration now() { return std::chrono::steady_clock::now().time_since_epoch(); }

  std::optional<ReadPlan> next() {
    std::unique_lock lock(mutex);
    working = false;
    changed.wait(lock, [this] { return stopped || wanted; });
    if (stopped) return std::nullopt;
    working = true;
    return std::exchange(wanted, std::nullopt);
  }

  void post(Result<std::shared_ptr<const Snapshot>> shot) {
    std::lock_guard lock(mutex);
    if (stopped) return;
    loop.post([self = shared_from_this(), shot = std::move(shot)]() mutable {
      {
        std::lock_guard inner(self->mutex);
        if (self->stopped) return;
      }
      self->done(std::move(shot));
    });
  }

  Loop& loop;
  const std::filesystem::path library;
  const Done done;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<ReadPlan> wanted;
  bool working = false;
  bool stopped = false;
  bool closed = false;
};

Sampler::Sampler(Loop& loop, std::filesystem::path library, Done done)
    : shared_(std::make_shared<Shared>(loop, std::move(library), std::move(done))) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

Sampler::~Sampler() {
  std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
}

void Sampler::cycle(ReadPlan plan) {
  std::lock_guard lock(shared_->mutex);
  shared_->wanted = std::move(plan);
  shared_->changed.notify_all();
}

bool Sampler::busy() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->working || shared_->wanted;
}

bool Sampler::close(Duration limit) {
  std::unique_lock lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
  return shared_->changed.wait_for(lock, limit, [this] { return shared_->closed; });
}

}  // namespace gpuop::telemetry
