#include "toolkit/restart.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop::toolkit {

namespace {

Result<Fd> connect_to(const fs::path& path) {
  auto doing = "connect to '" + path.string() + "'";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.string().size() >= sizeof(address.sun_path))
    return fail(Code::kInvalid, doing + ": the path is too long");
  std::strcpy(address.sun_path, path.c_str());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail(errno_error(doing, errno));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail(errno_error(doing, errno));
  }
  return fd;
}

// When the process started, in nanoseconds of the wall clock; 0 when unknown.
std::int64_t start_time(pid_t pid) {
  auto text = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return 0;
  // The command may hold anything, a closing parenthesis ends it.
  auto fields = split_fields(text->substr(std::min(text->rfind(')') + 1, text->size())));
  if (fields.size() < 20) return 0;
  auto ticks = parse_int(fields[19]);
  timespec boot{};
  timespec wall{};
  if (!ticks || clock_gettime(CLOCK_BOOTTIME, &boot) != 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0)
    return 0;
  std::int64_t since_boot = *ticks * (1000000000 / sysconf(_SC_CLK_TCK));
  std::int64_t now_boot = boot.tv_sec * 1000000000 + boot.tv_nsec;
  std::int64_t now_wall = wall.tv_sec * 1000000000 + wall.tv_nsec;
  return now_wall - (now_boot - since_boot);
}

// Waits until the socket answers, by events of its folder; a socket between bind and listen has none, so a
// refused connection is tried again soon.
Result<> wait_for_socket(Loop& loop, const RestartOptions& options) {
  bool answered = false;
  auto try_now = [&] { answered = answered || connect_to(options.socket).has_value(); };
  auto watch = TRY(DirWatch::create(loop, options.socket.parent_path(), try_now));
  Handle again;
  std::function<void()> retry = [&] {
    try_now();
    if (!answered) again = loop.after(50ms, retry);
  };
  retry();
  if (loop.run_until([&] { return answered; }, options.patience)) return {};
  return fail(loop.stopped() ? Code::kCancelled : Code::kTimeout,
              "restart " + options.engine + ": '" + options.socket.string() + "' does not answer");
}

Result<> signal_engine(Loop& loop, const RestartOptions& options) {
  Result<pid_t> pid = fail(Code::kUnavailable, "not tried");
  for (int attempt = 1; attempt <= options.attempts; ++attempt) {
    pid = peer_of(options.socket);
    if (pid) break;
    log::warn("the engine's socket does not answer", {{"attempt", attempt}, {"why", pid.error()}});
    if (attempt < options.attempts) loop.run_until([&] { return loop.stopped(); }, options.pause);
    if (loop.stopped()) return fail(Code::kCancelled, "restart " + options.engine + ": interrupted");
  }
  if (!pid) return fail(std::move(pid).error().in("restart " + options.engine));
  bool gone = false;
  auto exit = on_process_exit(loop, *pid, [&] { gone = true; });
  log::info("sending SIGHUP", {{"engine", options.engine}, {"pid", *pid}});
  if (kill(*pid, SIGHUP) != 0)
    return fail(errno_error("signal " + options.engine + " (pid " + std::to_string(*pid) + ")", errno));
  // containerd ends and is started again; an engine that reloads in place keeps its process.
  if (exit && options.engine == "containerd") loop.run_until([&] { return gone || loop.stopped(); }, 5s);
  return wait_for_socket(loop, options);
}

Result<> restart_unit(Loop& loop, const RestartOptions& options) {
  Command command{.argv = {"/usr/bin/systemctl", "restart", options.engine}};
  command.chroot = options.host_root;
  auto state = TRY_IN(run_command(command, options.patience), "restart " + options.engine);
  if (!state.ok())
    return fail(Code::kIo, "restart " + options.engine + ": systemctl: " + std::string(trim(state.err)));
  if (options.socket.empty() || !file_exists(options.socket.parent_path())) return {};
  return wait_for_socket(loop, options);
}

}  // namespace

Result<pid_t> peer_of(const fs::path& path) {
  Fd fd = TRY(connect_to(path));
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return fail(errno_error("ask who listens on '" + path.string() + "'", errno));
  }
  // 0: the peer lives in a PID namespace that this process cannot see.
  if (peer.pid <= 0) {
    return fail(Code::kUnavailable, "ask who listens on '" + path.string() +
                                        "': the process is not visible here (hostPID is needed)");
  }
  return peer.pid;
}

Result<> check_restart_mode(const std::string& mode, const std::string& engine) {
  if (mode != "signal" && mode != "systemd" && mode != "none") {
    return fail(Code::kInvalid, "invalid restart mode specified: " + mode);
  }
  if (mode == "signal" && engine == "crio")
    return fail(Code::kUnsupported, "supporting crio via signal is unsupported");
  return {};
}

Result<> restart_engine(Loop& loop, const RestartOptions& options) {
  TRY(check_restart_mode(options.mode, options.engine));
  if (options.mode == "none") {
    log::warn("the engine is not restarted (restart mode none): restart it to use the new configuration",
              {{"engine", options.engine}});
    return {};
  }
  return options.mode == "signal" ? signal_engine(loop, options) : restart_unit(loop, options);
}

bool engine_is_stale(const fs::path& socket, const std::vector<fs::path>& files) {
  auto pid = peer_of(socket);
  if (!pid) return false;
  std::int64_t started = start_time(*pid);
  if (started == 0) return false;
  return std::ranges::any_of(files, [&](const fs::path& file) {
    struct stat info{};
    if (stat(file.c_str(), &info) != 0) return false;
    // A start is known to a clock tick only.
    return info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec > started + 10000000;
  });
}

}  // namespace gpuop::toolkit
