// The NVIDIA driver container of a simulated node (operands-driver-validator.md §6): its commands, files,
// mounts and its answer to signals are the real one's; what it installs is the fake driver.
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/text.h"
#include "sim/driver/options.h"
#include "sim/driver/steps.h"
#include "sim/node_tree.h"

namespace gpuop::sim::driver {
namespace {

// The pid file, locked for as long as the object lives.
Result<Fd> take_pid_file() {
  TRY(make_dirs(fs::path(kPidFile).parent_path()));
  Fd fd(::open(kPidFile, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return fail(errno_error(std::string("open '") + kPidFile + "'", errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Code::kBusy, "An instance of the NVIDIA driver is already running, aborting");
  }
  std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return fail(errno_error(std::string("write '") + kPidFile + "'", errno));
  }
  return fd;
}

Result<> install(const Options& o, bool user_space_only) {
  say(std::string("Installing NVIDIA driver ") + (user_space_only ? "userspace components " : "") +
      "version " + o.version + "...");
  TRY(install_driver({o.version, "/", o.kernel_root, o.sim_dir, user_space_only}));
  return {};
}

Result<> bring_up(const Options& o) {
  TRY(set_daemon_status(false));
  if (fast_path(o)) {
    say("Driver configuration is unchanged and its modules are loaded: installing userspace only");
    TRY(stop_daemons());
    TRY(unmount_root());
    TRY(install(o, true));
    TRY(make_device_nodes(o.kernel_root, "/dev"));
    TRY(start_daemons(o));
    TRY(mount_root());
  } else {
    TRY(stop_daemons());
    TRY(unload_modules(o));
    TRY(unmount_root());
    TRY(write_module_options());
    TRY(install(o, false));
    TRY(set_firmware_path(o));
    TRY(load_modules(o));
    TRY(start_daemons(o));
    TRY(mount_root());
  }
  TRY(set_daemon_status(true));
  if (o.digest.empty())
    TRY(remove_file(kDigestFile));
  else
    TRY(write_file_atomic(kDigestFile, o.digest + "\n"));
  return {};
}

// Whether the driver is gone and its root unmounted; false: it is in use and stays.
bool shut_down(const Options& o) {
  auto unload = [&]() -> Result<> {
    TRY(stop_daemons());
    return unload_modules(o);
  };
  if (auto done = unload(); !done) {
    say("Could not unload the driver: " + done.error().text());
    return false;
  }
  say("Unmounting NVIDIA driver rootfs...");
  if (auto done = unmount_root(); !done) say("WARNING: " + done.error().text());
  if (auto removed = remove_file(kPidFile); !removed) say("WARNING: " + removed.error().text());
  return true;
}

// Waits for signals of the usual ends and for daemons, which may die; `ended` is asked at each signal.
class Watch {
 public:
  Result<> start() {
    sigemptyset(&signals_);
    for (int s : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM}) sigaddset(&signals_, s);
    if (::sigprocmask(SIG_BLOCK, &signals_, nullptr) != 0) return fail(errno_error("block signals", errno));
    fd_ = Fd(::signalfd(-1, &signals_, SFD_CLOEXEC));
    if (!fd_) return fail(errno_error("wait for signals", errno));
    return {};
  }

  void follow_daemons() {
    daemons_.clear();
    for (const fs::path& file : daemon_pid_files()) {
      auto text = read_file(file);
      auto pid = text ? static_cast<pid_t>(parse_int(trim(*text)).value_or(0)) : 0;
      if (pid <= 0) continue;
      Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      if (process) daemons_.push_back({file, std::move(process)});
    }
  }

  // A value once it has ended; an error when waiting itself fails.
  Result<> run(const std::function<bool()>& ended) {
    while (true) {
      std::vector<pollfd> polled = {{fd_.get(), POLLIN, 0}};
      for (const Daemon& d : daemons_) polled.push_back({d.process.get(), POLLIN, 0});
      if (::poll(polled.data(), polled.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return fail(errno_error("wait for signals", errno));
      }
      if (polled[0].revents) {
        signalfd_siginfo info;
        if (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
          say("Caught signal " + std::to_string(info.ssi_signo));
          daemons_.clear();
          if (ended()) return {};
          follow_daemons();
        }
        continue;
      }
      for (std::size_t i = daemons_.size(); i-- > 0;) {
        if (!polled[i + 1].revents) continue;
        say("WARNING: the daemon of '" + daemons_[i].file.string() + "' has ended");
        auto done = set_daemon_status(false);
        if (!done) say("WARNING: " + done.error().text());
        daemons_.erase(daemons_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

 private:
  struct Daemon {
    fs::path file;
    Fd process;
  };
  sigset_t signals_{};
  Fd fd_;
  std::vector<Daemon> daemons_;
};

int refuse(const Error& why) {
  std::fprintf(stderr, "nvidia-driver: %s\n", why.text().c_str());
  return 1;
}

int init(const Options& o) {
  auto lock = take_pid_file();
  if (!lock) return refuse(lock.error());
  Watch watch;
  if (auto started = watch.start(); !started) return refuse(started.error());
  say("\n========== NVIDIA Software Installer ==========\n");
  say("Starting installation of NVIDIA driver version " + o.version + " for the simulated kernel");
  if (auto up = bring_up(o); !up) {
    refuse(up.error());
    if (!shut_down(o)) say("What was loaded stays until the next start");
    return 1;
  }
  watch.follow_daemons();
  say("Done, now waiting for signal");
  auto ended = watch.run([&] { return shut_down(o); });
  return ended ? 0 : refuse(ended.error());
}

int build(const Options& o) {
  auto done = install(o, false);
  return done ? 0 : refuse(done.error());
}

// The sidecar for GPUDirect RDMA: loads nvidia-peermem when the network's driver is there, then stays.
int reload_peermem(const Options& o) {
  if (!module_loaded(o.kernel_root, "mlx5_core") && o.host_mofed) {
    std::fprintf(stderr, "nvidia-driver: mlx5_core is not loaded on the host\n");
    return 1;
  }
  if (!module_loaded(o.kernel_root, "nvidia_peermem")) {
    auto loaded = load_module(o.kernel_root, "nvidia-peermem");
    if (!loaded) return refuse(loaded.error());
  }
  say("nvidia-peermem is loaded; waiting for signal");
  Watch watch;
  if (auto started = watch.start(); !started) return refuse(started.error());
  auto ended = watch.run([] { return true; });
  return ended ? 0 : refuse(ended.error());
}

int probe_peermem(const Options& o) {
  return module_loaded(o.kernel_root, "mlx5_core") && !module_loaded(o.kernel_root, "nvidia_peermem") ? 1 : 0;
}

}  // namespace
}  // namespace gpuop::sim::driver

int main(int argc, char** argv) {
  using namespace gpuop;               // NOLINT
  using namespace gpuop::sim::driver;  // NOLINT
  char self[PATH_MAX] = {};
  // A container without /proc has the programs where they usually are.
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) self[0] = '\0';
  auto options = read_options({argv + 1, argv + argc}, self);
  if (!options) {
    std::fprintf(stderr, "%s\n", options.error().text().c_str());
    return 1;
  }
  switch (options->command) {
    case sim::driver::Command::kInit:
    case sim::driver::Command::kLoad:
      return init(*options);
    case sim::driver::Command::kBuild:
    case sim::driver::Command::kUpdate:
      return build(*options);
    case sim::driver::Command::kReloadPeermem:
      return reload_peermem(*options);
    case sim::driver::Command::kProbePeermem:
      return probe_peermem(*options);
  }
  return 1;
}
