// The one event loop of a process, and the clock with it (architecture §7).
//
// Real mode runs on a Boost.Asio io_context: sockets, inotify, timers and child exits are events on it.
// Virtual mode has no I/O: work that was posted runs first, and when nothing is ready the clock jumps to
// the next timer. Equal deadlines fire in the order in which they were set, so a virtual run replays exactly.
//
// Thread rules: everything is called on the loop's thread, except post() in real mode, which any thread may
// call. In virtual mode a post from another thread is a programming error and aborts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/time.h"

namespace boost::asio {
class io_context;
}

namespace gpuop {

// Owns a pending timer or watch; destroying or resetting it cancels. Safe to outlive the Loop.
class [[nodiscard]] Handle {
 public:
  Handle() = default;
  explicit Handle(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  Handle(Handle&& other) noexcept : cancel_(std::exchange(other.cancel_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }
  void reset();
  // Lets the event happen without anybody holding the handle.
  void detach() { cancel_ = nullptr; }
  explicit operator bool() const { return static_cast<bool>(cancel_); }

 private:
  std::function<void()> cancel_;
};

class Loop {
 public:
  enum class Mode { kReal, kVirtual };

  // A real loop.
  Loop();
  // A virtual loop whose clock starts at `start`.
  static std::unique_ptr<Loop> make_virtual(Time start);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Mode mode() const;
  // Wall clock.
  Time now() const;
  // Monotonic time since an arbitrary start; never goes back.
  Duration elapsed() const;
  // Moves the wall clock, as an administrator or a time server would; timers stay. Virtual mode only.
  void jump(Duration by);

  // Runs `work` soon, after what was posted before it.
  void post(std::function<void()> work);
  // Runs `work` once after `delay` (negative counts as zero).
  Handle after(Duration delay, std::function<void()> work);
  // Runs `work` each time `fd` is readable (or writable, or at end of file), until the handle goes.
  // Level-triggered. The caller keeps owning `fd` and must drop the handle before closing it. Real mode only.
  Handle on_readable(int fd, std::function<void()> work);
  Handle on_writable(int fd, std::function<void()> work);

  // Runs until stop(); in virtual mode also until nothing is left to do.
  void run();
  // Runs until `done` answers true (asked after each event) or `limit` has passed; answers what `done` says
  // then.
  bool run_until(const std::function<bool()>& done, Duration limit);
  // Runs for `span`, virtual or real.
  void run_for(Duration span);
  // May be called from a signal-safe context? No: from the loop's thread, or by post().
  void stop();
  bool stopped() const;

  // For sockets (Boost.Beast, Asio). Real mode only.
  boost::asio::io_context& io();

  struct Impl;  // private; named here for the implementation's helpers

 private:
  explicit Loop(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Calls `work` on the loop for each of `signals` that arrives (signalfd; the signals are blocked for the
// process). Argument: the signal's number.
Handle on_signals(Loop& loop, std::initializer_list<int> signals, std::function<void(int)> work);

}  // namespace gpuop
