#include "sim/vgpu_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/log.h"
#include "sim/modules.h"
#include "sim/node_tree.h"
#include "sim/vgpu_tree.h"

namespace gpuop::sim {

// One inotify instance for all folders: a board with virtual functions has hundreds of them.
struct VgpuWatch::Impl {
  Impl(Loop& l, fs::path r) : loop(l), root(std::move(r)) {}

  // Folders that are watched already stay so.
  Result<> watch(const fs::path& dir, bool instances) {
    const std::uint32_t mask =
        IN_ONLYDIR | IN_CLOSE_WRITE | IN_MOVED_TO | (instances ? IN_CREATE | IN_DELETE : 0);
    const int wd = ::inotify_add_watch(fd.get(), dir.c_str(), mask);
    if (wd >= 0) {
      if (instances) of_instances.insert(wd);
      return {};
    }
    if (errno == ENOENT || errno == ENOTDIR) return {};  // gone with its driver or its instance
    if (errno == ENOSPC) {
      return fail(Code::kNoSpace, "watch '" + dir.string() +
                                      "': too many inotify watches (raise fs.inotify.max_user_watches)");
    }
    return fail(errno_error("watch '" + dir.string() + "'", errno));
  }

  Result<> watch_all() {
    // The list of modules takes a new file's place when it changes, after everything else of a driver is
    // there.
    TRY(watch(root / "proc", false));
    for (const fs::path& dir : TRY(vgpu_folders(root, *state.read()))) {
      const bool instances = dir.string().find("/capabilities/") != std::string::npos;
      TRY(watch(dir, instances));
    }
    return {};
  }

  // First the watch, then the look: what is written between the two is seen by both.
  Result<> settle() {
    for (bool changed = true; changed;) {
      TRY(watch_all());
      if (!module_loaded(root, "nvidia")) return {};
      std::vector<std::string> refused;
      changed = TRY(settle_vgpus(root, *state.read(), &refused));
      for (const std::string& why : refused) log::warn("vGPU refused", {{"why", why}});
    }
    return {};
  }

  bool matters(const inotify_event& event) const {
    if (event.mask & IN_Q_OVERFLOW) return true;
    if (event.mask & IN_IGNORED || event.len == 0) return false;
    if (of_instances.contains(event.wd)) return true;
    const std::string_view name(event.name);
    return name == "modules" || is_vgpu_request(name);
  }

  void drain() {
    alignas(inotify_event) char buffer[16384];
    bool any = false;
    ssize_t n = 0;
    while ((n = ::read(fd.get(), buffer, sizeof buffer)) > 0) {
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        if (event->mask & IN_IGNORED) of_instances.erase(event->wd);
        any = any || matters(*event);
      }
    }
    if (!any) return;
    if (auto settled = settle(); !settled) log::error("vGPUs do not follow", {{"why", settled.error()}});
  }

  Loop& loop;
  fs::path root;
  StateFile state;
  Fd fd;
  std::set<int> of_instances;
  Handle readable;
};

VgpuWatch::VgpuWatch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
VgpuWatch::~VgpuWatch() = default;

Result<std::unique_ptr<VgpuWatch>> VgpuWatch::create(Loop& loop, const fs::path& kernel_root) {
  const std::string doing = "watch the vGPUs of '" + kernel_root.string() + "'";
  auto impl = std::make_unique<Impl>(loop, kernel_root);
  if (impl->state.open(hardware_state_path(kernel_root).string()) != StateFault::kNone)
    return fail(Code::kIo, doing + ": the hardware state is missing or damaged");
  if (impl->state.read()->vgpu_host == 0) return fail(Code::kNotFound, doing + ": not a vGPU host");
  impl->fd.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!impl->fd && errno == EMFILE) {
    return fail(Code::kNoSpace, doing + ": too many inotify instances (raise fs.inotify.max_user_instances)");
  }
  if (!impl->fd) return fail(errno_error(doing, errno));
  TRY_IN(impl->settle(), doing);
  impl->readable = loop.on_readable(impl->fd.get(), [raw = impl.get()] { raw->drain(); });
  return std::unique_ptr<VgpuWatch>(new VgpuWatch(std::move(impl)));
}

}  // namespace gpuop::sim
