#include "cluster/fleet/service.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace gpuop::cluster {
namespace {

constexpr int kHigh = 200;  // above every number that a program is given

[[noreturn]] void become(const Launch& launch, char* const* argv, char* const* env) {
  auto die = [](const char* doing) {
    const char* why = std::strerror(errno);
    for (const char* text : {doing, ": ", why, "\n"}) {
      [[maybe_unused]] ssize_t n = ::write(2, text, std::strlen(text));
    }
    ::_exit(127);
  };
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  ::setsid();
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  int output = ::fcntl(launch.output >= 0 ? launch.output : null, F_DUPFD_CLOEXEC, kHigh);
  ::dup2(null, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  std::pair<int, int> files[8];
  std::size_t count = std::min<std::size_t>(launch.files.size(), 8);
  for (std::size_t i = 0; i < count; ++i) {
    files[i] = {::fcntl(launch.files[i].first, F_DUPFD_CLOEXEC, kHigh), launch.files[i].second};
  }
  // The mount namespace last: it changes what every path means.
  const std::pair<int, int> spaces[] = {
      {launch.network, CLONE_NEWNET}, {launch.uts, CLONE_NEWUTS}, {launch.mount, CLONE_NEWNS}};
  for (const auto& [fd, kind] : spaces) {
    if (fd >= 0 && ::setns(fd, kind) != 0) die("enter the node's namespaces");
  }
  if (::chdir("/") != 0) die("enter '/'");
  for (std::size_t i = 0; i < count; ++i) ::dup2(files[i].first, files[i].second);
  for (int fd = 3; fd < 16; ++fd) {
    bool given = std::any_of(files, files + count, [&](const auto& file) { return file.second == fd; });
    if (!given) ::close(fd);
  }
  ::syscall(SYS_close_range, 16u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
  ::execve(argv[0], argv, env);
  die(argv[0]);
  ::_exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<pid_t> spawn(const Launch& launch) {
  std::vector<char*> argv = pointers(launch.argv), env = pointers(launch.env);
  pid_t pid = ::fork();
  if (pid < 0) return fail(errno_error("run '" + launch.argv[0] + "'", errno));
  if (pid == 0) become(launch, argv.data(), env.data());
  return pid;
}

Duration RestartDelay::next(Duration ran, bool clean) {
  constexpr Duration kLongEnough = 10s, kFirst = 100ms, kMost = 5s;
  if (clean || ran >= kLongEnough) failures_ = 0;
  if (clean) return Duration::zero();
  int before = failures_++;
  if (before == 0) return Duration::zero();
  return std::min<Duration>(kFirst * (1 << std::min(before - 1, 10)), kMost);
}

Service::Service(Loop& loop, std::string role, std::string node, Launch launch, std::function<void()> changed)
    : loop_(loop),
      role_(std::move(role)),
      node_(std::move(node)),
      launch_(std::move(launch)),
      changed_(std::move(changed)) {}

void Service::start() {
  started_ = loop_.elapsed();
  ++restarts_;
  auto pid = spawn(launch_);
  if (!pid) {
    log::error("start program", {{"role", role_}, {"node", node_}, {"why", pid.error()}});
    return ended(127 << 8);
  }
  pid_ = *pid;
  changed_();
  if (auto back = std::exchange(back_, nullptr)) back();
}

void Service::hold() {
  held_ = true;
  timer_.reset();
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void Service::release(Launch launch) {
  launch_ = std::move(launch);
  held_ = false;
  delay_ = RestartDelay();
  start();
}

void Service::ended(int status) {
  Duration ran = loop_.elapsed() - started_;
  bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (held_) {
    pid_ = 0;
    return changed_();
  }
  Duration wait = delay_.next(ran, clean);
  log::info("program ended", {{"role", role_},
                              {"node", node_},
                              {"status", WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                             : std::to_string(WEXITSTATUS(status))},
                              {"again_in", format_go_duration(wait)}});
  pid_ = 0;
  timer_ = loop_.after(wait, [this] { start(); });
  changed_();
}

}  // namespace gpuop::cluster
