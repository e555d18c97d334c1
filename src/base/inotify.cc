#include "base/inotify.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "base/log.h"

namespace gpuop {

struct DirWatch::Impl : std::enable_shared_from_this<DirWatch::Impl> {
  Impl(Loop& l, fs::path d, std::function<void()> c) : loop(l), dir(std::move(d)), changed(std::move(c)) {}

  // Watches `dir`, and every existing parent for the next step of the path towards it: a replaced or late
  // folder is then seen whatever level it changes at.
  Result<> arm() {
    for (int wd : watches) ::inotify_rm_watch(fd.get(), wd);
    watches.clear();
    for (fs::path at = dir;; at = at.parent_path()) {
      const std::uint32_t mask = at == dir
                                     ? IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE |
                                           IN_ATTRIB | IN_MODIFY | IN_DELETE_SELF | IN_MOVE_SELF
                                     : IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;
      const int wd = ::inotify_add_watch(fd.get(), at.c_str(), mask | IN_ONLYDIR | IN_MASK_CREATE);
      if (wd >= 0) {
        watches.push_back(wd);
        if (at == dir) break;  // present: its own end is reported by itself
      } else if (errno == ENOSPC) {
        return fail(Code::kNoSpace, "watch '" + at.string() +
                                        "': too many inotify watches (raise fs.inotify.max_user_watches)");
      } else if (errno != ENOENT && errno != ENOTDIR && errno != EEXIST) {
        return fail(errno_error("watch '" + at.string() + "'", errno));
      }
      if (at == at.parent_path()) break;
    }
    if (watches.empty())
      return fail(Code::kNotFound, "watch '" + dir.string() + "': no parent folder exists");
    return {};
  }

  void drain() {
    alignas(inotify_event) char buffer[8192];
    bool any = false;
    bool structure = false;
    ssize_t n = 0;
    while ((n = ::read(fd.get(), buffer, sizeof buffer)) > 0) {
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        if (event->mask & IN_IGNORED) continue;
        any = true;
        // The first watch is the folder itself when it is there.
        if (!present || event->wd != watches.front() || (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF))) {
          structure = true;
        }
        if (event->mask & IN_Q_OVERFLOW) structure = true;
      }
    }
    if (structure) rearm();
    if (any) notify();
  }

  void rearm() {
    // A folder made between two calls is caught by the second.
    for (int i = 0; i < 2; ++i) {
      auto armed = arm();
      // What happens in the folder from here on is not seen: nobody but the log can be told.
      if (!armed && !blind) log::error("a folder is no longer watched: " + armed.error().text());
      blind = !armed;
      const bool now = file_exists(dir);
      if (now == present) return;
      present = now;
    }
  }

  void notify() {
    auto keep = shared_from_this();
    changed();
  }

  Loop& loop;
  fs::path dir;
  std::function<void()> changed;
  Fd fd;
  std::vector<int> watches;
  bool present = false;
  bool blind = false;  // the last watch that was asked for was refused
  Handle readable;
  Handle first;
};

DirWatch::DirWatch(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

DirWatch::~DirWatch() {
  impl_->readable.reset();
  impl_->first.reset();
}

Result<std::unique_ptr<DirWatch>> DirWatch::create(Loop& loop, const fs::path& dir,
                                                   std::function<void()> changed) {
  auto impl = std::make_shared<Impl>(loop, fs::absolute(dir).lexically_normal(), std::move(changed));
  if (!impl->dir.has_filename()) impl->dir = impl->dir.parent_path();
  impl->fd.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!impl->fd) {
    if (errno == EMFILE) {
      return fail(Code::kNoSpace, "watch '" + dir.string() +
                                      "': too many inotify instances (raise fs.inotify.max_user_instances)");
    }
    return fail(errno_error("watch '" + dir.string() + "'", errno));
  }
  impl->present = file_exists(impl->dir);
  TRY(impl->arm());
  impl->rearm();
  impl->readable = loop.on_readable(impl->fd.get(), [raw = impl.get()] { raw->drain(); });
  impl->first = loop.after(Duration::zero(), [raw = impl.get()] { raw->notify(); });
  return std::unique_ptr<DirWatch>(new DirWatch(std::move(impl)));
}

Result<> wait_for_file(Loop& loop, const fs::path& path, Duration limit) {
  const auto there = [&path] { return file_exists(path); };
  if (there()) return {};
  auto watch = TRY(DirWatch::create(loop, path.parent_path(), [] {}));
  if (loop.run_until(there, limit)) return {};
  if (loop.stopped()) return fail(Code::kCancelled, "wait for '" + path.string() + "': stopped");
  return fail(Code::kTimeout,
              "wait for '" + path.string() + "': not there after " + format_go_duration(limit));
}

}  // namespace gpuop
