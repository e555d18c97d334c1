#include "cluster/launcher/hooks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::cluster {
namespace {

// Anonymous memory as a file: input that needs no writer, output that needs no reader.
Result<Fd> memory_file(const char* name, std::string_view content) {
  Fd fd(static_cast<int>(::syscall(SYS_memfd_create, name, 1u /* MFD_CLOEXEC */)));
  if (!fd) return fail(errno_error("make a memory file", errno));
  while (!content.empty()) {
    ssize_t n = ::write(fd.get(), content.data(), content.size());
    if (n < 0) return fail(errno_error("fill a memory file", errno));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

[[noreturn]] void become_hook(const OciHook& hook, int in, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(in, 0);
  ::dup2(null ? null.get() : out, 1);
  ::dup2(out, 2);
  ::syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
  std::vector<std::string> env = hook.env;
  if (const char* kernel = std::getenv("GPUOP_KERNEL_ROOT"))
    env.push_back(std::string("GPUOP_KERNEL_ROOT=") + kernel);
  std::vector<char*> argv, envp;
  std::vector<std::string> args = hook.args.empty() ? std::vector<std::string>{hook.path} : hook.args;
  for (std::string& arg : args) argv.push_back(arg.data());
  for (std::string& entry : env) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(hook.path.c_str(), argv.data(), envp.data());
  std::string text = errno_error("exec '" + hook.path + "'", errno).text() + "\n";
  [[maybe_unused]] ssize_t n = ::write(2, text.data(), text.size());
  ::_exit(127);
}

std::string output_of(int fd) {
  ::lseek(fd, 0, SEEK_SET);
  auto text = read_fd(fd, 64u << 10);
  return text ? std::string(trim(*text)) : std::string();
}

Result<> run_hook(const OciHook& hook, const std::string& state) {
  Fd in = TRY(memory_file("state", state));
  Fd out = TRY(memory_file("stderr", ""));
  pid_t pid = ::fork();
  if (pid < 0) return fail(errno_error("fork", errno));
  if (pid == 0) become_hook(hook, in.get(), out.get());
  if (hook.timeout_seconds > 0) {
    Fd watch(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    struct pollfd wait{watch.get(), POLLIN, 0};
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(hook.timeout_seconds);
    int ready = 0;
    do {
      auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      ready = ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return fail(Code::kTimeout,
                  "hook ran past its timeout of " + std::to_string(hook.timeout_seconds) + "s");
    }
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return fail(errno_error("wait for hook", errno));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                        : "exit status " + std::to_string(WEXITSTATUS(status));
  return fail(Code::kUnknown, how + ", stdout: , stderr: " + output_of(out.get()));
}

}  // namespace

Result<> run_hooks(std::string_view stage, const std::vector<OciHook>& hooks, const Json& state) {
  if (hooks.empty()) return {};
  std::string text = to_text(state);
  for (std::size_t i = 0; i < hooks.size(); ++i) {
    TRY_IN(run_hook(hooks[i], text), "error running " + std::string(stage) + " hook #" + std::to_string(i) +
                                         ": '" + hooks[i].path + "'");
  }
  return {};
}

}  // namespace gpuop::cluster
