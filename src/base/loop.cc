#include "base/loop.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <thread>

namespace gpuop {

namespace asio = boost::asio;

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    cancel_ = std::exchange(other.cancel_, nullptr);
  }
  return *this;
}

void Handle::reset() {
  if (auto cancel = std::exchange(cancel_, nullptr)) cancel();
}

namespace {
// Deadline, then the order of setting: equal deadlines fire in that order.
using TimerKey = std::pair<Duration, std::uint64_t>;

Duration monotonic_now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}
}  // namespace

struct Loop::Impl {
  virtual ~Impl() { *alive = false; }
  virtual Time now() const = 0;
  virtual Duration elapsed() const = 0;
  virtual void jump(Duration by) = 0;
  virtual void post(std::function<void()> work) = 0;
  virtual void rearm() = 0;
  virtual void run(const std::function<bool()>* done, std::optional<Duration> deadline) = 0;
  virtual asio::io_context& io() = 0;

  // Fires what is due at `at`, one entry; false when nothing was.
  bool fire_one(Duration at) {
    if (timers.empty() || timers.begin()->first.first > at) return false;
    auto work = std::move(timers.begin()->second);
    timers.erase(timers.begin());
    work();
    return true;
  }

  // Handles outlive loops at teardown; they look here first.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  Mode mode = Mode::kReal;
  bool stop = false;
  std::uint64_t sequence = 0;
  std::map<TimerKey, std::function<void()>> timers;
};

namespace {

struct RealLoop final : Loop::Impl {
  RealLoop() : guard(asio::make_work_guard(context)), timer(context) { mode = Loop::Mode::kReal; }

  Time now() const override { return std::chrono::system_clock::now(); }
  Duration elapsed() const override { return monotonic_now(); }
  void jump(Duration) override {
    std::fputs("only a virtual loop's clock can be moved\n", stderr);
    std::abort();
  }
  void post(std::function<void()> work) override { asio::post(context, std::move(work)); }

  void rearm() override {
    if (timers.empty()) return;
    const Duration next = timers.begin()->first.first;
    if (armed && *armed <= next) return;
    armed = next;
    timer.expires_at(asio::steady_timer::time_point(next));
    timer.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      armed.reset();
      const Duration at = monotonic_now();
      // Only what is due now: a timer that sets another for "at once" must not starve the sockets.
      for (std::size_t left = timers.size(); left > 0 && !stop; --left) {
        if (!fire_one(at)) break;
      }
      rearm();
    });
  }

  void run(const std::function<bool()>* done, std::optional<Duration> deadline) override {
    context.restart();
    while (!stop) {
      if (done && (*done)()) return;
      if (deadline) {
        const Duration left = *deadline - monotonic_now();
        if (left <= Duration::zero()) return;
        context.run_one_for(left);
      } else {
        context.run_one();
      }
    }
  }

  asio::io_context& io() override { return context; }

  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard;
  asio::steady_timer timer;
  std::optional<Duration> armed;
};

struct VirtualLoop final : Loop::Impl {
  explicit VirtualLoop(Time begin) : start(begin), owner(std::this_thread::get_id()) {
    mode = Loop::Mode::kVirtual;
  }

  Time now() const override { return start + at; }
  Duration elapsed() const override { return at; }
  void jump(Duration by) override { start += by; }

  void post(std::function<void()> work) override {
    if (std::this_thread::get_id() != owner) {
      std::fputs("post to a virtual loop from another thread\n", stderr);
      std::abort();
    }
    ready.push_back(std::move(work));
  }
  void rearm() override {}

  void run(const std::function<bool()>* done, std::optional<Duration> deadline) override {
    while (!stop) {
      if (done && (*done)()) return;
      if (!ready.empty()) {
        auto work = std::move(ready.front());
        ready.pop_front();
        work();
        continue;
      }
      if (timers.empty() || (deadline && timers.begin()->first.first > *deadline)) {
        if (deadline && *deadline > at) at = *deadline;
        return;
      }
      at = std::max(at, timers.begin()->first.first);
      fire_one(at);
    }
  }

  asio::io_context& io() override {
    std::fputs("a virtual loop has no sockets\n", stderr);
    std::abort();
  }

  Time start;
  Duration at{0};
  std::thread::id owner;
  std::deque<std::function<void()>> ready;
};

// Waits for one direction of a descriptor again and again. Shared with the pending wait, so that a handler
// may drop its own handle.
struct FdWait : std::enable_shared_from_this<FdWait> {
  FdWait(asio::io_context& context, int fd, asio::posix::stream_descriptor::wait_type direction)
      : descriptor(context, fd), wait(direction) {}
  void arm() {
    descriptor.async_wait(wait, [self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->gone) return;
      self->work();
      if (!self->gone) self->arm();
    });
  }
  void cancel() {
    gone = true;
    // The work may be what is running now; it is dropped with the last reference, not here.
    descriptor.release();
  }
  asio::posix::stream_descriptor descriptor;
  asio::posix::stream_descriptor::wait_type wait;
  std::function<void()> work;
  bool gone = false;
};

Handle watch_fd(asio::io_context& context, std::shared_ptr<bool> alive, int fd,
                asio::posix::stream_descriptor::wait_type direction, std::function<void()> work) {
  // Asio registers a descriptor once per object; a duplicate lets several watch the same file, and leaves the
  // caller's own descriptor alone.
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) {
    std::perror("watch a file descriptor");
    std::abort();
  }
  auto waiter = std::make_shared<FdWait>(context, copy, direction);
  waiter->work = std::move(work);
  waiter->arm();
  return Handle([waiter, alive, copy] {
    if (!*alive) return;  // the loop closed the copy
    waiter->cancel();
    ::close(copy);
  });
}

}  // namespace

Loop::Loop() : impl_(std::make_unique<RealLoop>()) {}
Loop::Loop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loop::~Loop() = default;

std::unique_ptr<Loop> Loop::make_virtual(Time start) {
  return std::unique_ptr<Loop>(new Loop(std::make_unique<VirtualLoop>(start)));
}

Loop::Mode Loop::mode() const {
  return impl_->mode;
}
Time Loop::now() const {
  return impl_->now();
}
Duration Loop::elapsed() const {
  return impl_->elapsed();
}
void Loop::jump(Duration by) {
  impl_->jump(by);
}
void Loop::post(std::function<void()> work) {
  impl_->post(std::move(work));
}

Handle Loop::after(Duration delay, std::function<void()> work) {
  const TimerKey key{elapsed() + std::max(delay, Duration::zero()), impl_->sequence++};
  impl_->timers.emplace(key, std::move(work));
  impl_->rearm();
  return Handle([impl = impl_.get(), alive = impl_->alive, key] {
    if (!*alive) return;
    // The node is taken out before its work is destroyed: that may drop other handles of this loop.
    auto node = impl->timers.extract(key);
  });
}

Handle Loop::on_readable(int fd, std::function<void()> work) {
  return watch_fd(impl_->io(), impl_->alive, fd, asio::posix::stream_descriptor::wait_read, std::move(work));
}

Handle Loop::on_writable(int fd, std::function<void()> work) {
  return watch_fd(impl_->io(), impl_->alive, fd, asio::posix::stream_descriptor::wait_write, std::move(work));
}

void Loop::run() {
  impl_->stop = false;
  impl_->run(nullptr, std::nullopt);
}

bool Loop::run_until(const std::function<bool()>& done, Duration limit) {
  impl_->stop = false;
  impl_->run(&done, elapsed() + limit);
  return done();
}

void Loop::run_for(Duration span) {
  impl_->stop = false;
  impl_->run(nullptr, elapsed() + span);
}

void Loop::stop() {
  impl_->stop = true;
  if (impl_->mode == Mode::kReal) impl_->post([] {});
}

bool Loop::stopped() const {
  return impl_->stop;
}
asio::io_context& Loop::io() {
  return impl_->io();
}

Handle on_signals(Loop& loop, std::initializer_list<int> signals, std::function<void(int)> work) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int fd = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) {
    std::perror("signalfd");
    std::abort();
  }
  auto watch = std::make_shared<Handle>(loop.on_readable(fd, [fd, work = std::move(work)] {
    signalfd_siginfo info{};
    while (::read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      work(static_cast<int>(info.ssi_signo));
    }
  }));
  return Handle([watch, fd] {
    watch->reset();
    ::close(fd);
  });
}

}  // namespace gpuop
