#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/files.h"

extern char** environ;

namespace gpuop {
namespace {

int pidfd_open(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

struct Pipe {
  Fd read, write;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error("make a pipe", errno));
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Starts `command`; the pid, once exec has happened. What fails between fork and exec comes back over a pipe
// as (step, errno), so that a missing program is an error here and not an exit code 127.
Result<pid_t> start(const Command& command, const SpawnOptions& options) {
  if (command.argv.empty()) return fail(Code::kInvalid, "run a program: empty argv");
  const std::string doing = "run '" + command.argv[0] + "'";
  Pipe report = TRY_IN(make_pipe(), doing);
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return fail(errno_error(doing + ": open '/dev/null'", errno));
  const auto argv = pointers(command.argv);
  const auto env = pointers(command.env);
  const std::array<int, 3> wanted{options.stdin_fd >= 0 ? options.stdin_fd : null.get(),
                                  options.stdout_fd >= 0 ? options.stdout_fd : null.get(),
                                  options.stderr_fd >= 0 ? options.stderr_fd : null.get()};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail(errno_error(doing, errno));
  if (pid == 0) {
    const auto die = [&report](int step) {
      const std::array<int, 2> message{step, errno};
      [[maybe_unused]] const ssize_t n = ::write(report.write.get(), message.data(), sizeof message);
      ::_exit(127);
    };
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    if (options.die_with_parent) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(127);
    }
    if (options.new_session) ::setsid();
    // Sources move above every target first, so that no dup2 closes one that is still needed.
    std::array<int, 3> high{};
    for (std::size_t i = 0; i < 3; ++i) high[i] = ::fcntl(wanted[i], F_DUPFD_CLOEXEC, 200);
    const int report_high = ::fcntl(report.write.get(), F_DUPFD_CLOEXEC, 200);
    report.write.release();
    report.write.reset(report_high);
    std::array<std::pair<int, int>, 16> extra{};
    std::size_t extras = 0;
    for (const auto& [from, to] : options.pass_fds) {
      if (extras < extra.size()) extra[extras++] = {::fcntl(from, F_DUPFD_CLOEXEC, 200), to};
    }
    for (int i = 0; i < 3; ++i) {
      if (::dup2(high[static_cast<std::size_t>(i)], i) < 0) die(1);
    }
    for (std::size_t i = 0; i < extras; ++i) {
      if (::dup2(extra[i].first, extra[i].second) < 0) die(1);
    }
    if (!command.chroot.empty() && (::chroot(command.chroot.c_str()) != 0 || ::chdir("/") != 0)) die(2);
    if (!command.cwd.empty() && ::chdir(command.cwd.c_str()) != 0) die(3);
    ::execve(argv[0], argv.data(), env.data());
    die(4);
  }
  report.write.reset();
  std::array<int, 2> message{};
  ssize_t n = 0;
  do {
    n = ::read(report.read.get(), message.data(), sizeof message);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof message)) {
    ::waitpid(pid, nullptr, 0);
    switch (message[0]) {
      case 2:
        return fail(errno_error(doing + ": chroot '" + command.chroot.string() + "'", message[1]));
      case 3:
        return fail(errno_error(doing + ": enter '" + command.cwd.string() + "'", message[1]));
      default:
        return fail(errno_error(doing, message[1]));
    }
  }
  return pid;
}

void fill_exit(ExitState& state, int status) {
  if (WIFSIGNALED(status)) {
    state.signal = WTERMSIG(status);
    state.code = 128 + state.signal;
  } else {
    state.code = WEXITSTATUS(status);
  }
}

// Reads what is there; false at the end of the stream.
bool read_some(int fd, std::string& into, std::size_t limit) {
  std::array<char, 16384> buffer{};
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) {
      const std::size_t room = limit > into.size() ? limit - into.size() : 0;
      into.append(buffer.data(), std::min(room, static_cast<std::size_t>(n)));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && errno == EAGAIN;
  }
}

// One process under way on the loop, with its three streams.
struct Running : std::enable_shared_from_this<Running> {
  Running(Loop& l, Command c, std::function<void(Result<ExitState>)> d)
      : loop(l), command(std::move(c)), done(std::move(d)) {}
  ~Running() {
    if (pid > 0 && !reaped) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void begin(Duration limit) {
    auto started = launch();
    if (!started) {
      later = loop.after(Duration::zero(),
                         [self = shared_from_this(), error = started.error()] { self->finish(fail(error)); });
      return;
    }
    timer = loop.after(limit, [self = shared_from_this(), limit] {
      ::kill(self->pid, SIGKILL);
      self->finish(fail(Code::kTimeout, "run '" + self->command.argv[0] + "': not finished after " +
                                            format_go_duration(limit)));
    });
  }

  Result<> launch() {
    Pipe in;
    SpawnOptions options;
    if (!command.input.empty()) {
      in = TRY(make_pipe());
      options.stdin_fd = in.read.get();
    }
    Pipe out = TRY(make_pipe());
    Pipe err = TRY(make_pipe());
    options.stdout_fd = out.write.get();
    options.stderr_fd = command.merge_output ? out.write.get() : err.write.get();
    pid = TRY(start(command, options));
    exit_fd.reset(pidfd_open(pid));
    stdin_fd = std::move(in.write);
    out_fd = std::move(out.read);
    err_fd = std::move(err.read);
    for (const Fd* fd : {&stdin_fd, &out_fd, &err_fd}) {
      if (*fd) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    }
    auto weak = weak_from_this();
    const auto stream = [this, weak](Fd& fd, std::string& into, Handle& handle) {
      handle = loop.on_readable(fd.get(), [weak, &fd, &into, &handle] {
        auto self = weak.lock();
        if (!self || read_some(fd.get(), into, self->command.output_limit)) return;
        handle.reset();
        fd.reset();
        self->check();
      });
    };
    stream(out_fd, state.out, on_out);
    stream(err_fd, state.err, on_err);
    if (stdin_fd) {
      on_in = loop.on_writable(stdin_fd.get(), [weak] {
        if (auto self = weak.lock()) self->feed();
      });
    }
    on_exit = loop.on_readable(exit_fd.get(), [weak] {
      auto self = weak.lock();
      if (!self) return;
      int status = 0;
      if (::waitpid(self->pid, &status, WNOHANG) != self->pid) return;
      self->reaped = true;
      fill_exit(self->state, status);
      // A grandchild may hold the pipes open; what the process itself wrote is there already.
      read_some(self->out_fd.get(), self->state.out, self->command.output_limit);
      read_some(self->err_fd.get(), self->state.err, self->command.output_limit);
      self->finish(self->state);
    });
    return {};
  }

  void feed() {
    const ssize_t n = ::write(stdin_fd.get(), command.input.data() + fed, command.input.size() - fed);
    if (n > 0) fed += static_cast<std::size_t>(n);
    if (fed == command.input.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      on_in.reset();
      stdin_fd.reset();
    }
  }

  void check() {
    if (reaped) finish(state);
  }

  void finish(Result<ExitState> result) {
    if (!done) return;
    auto keep = shared_from_this();
    on_in.reset();
    on_out.reset();
    on_err.reset();
    on_exit.reset();
    timer.reset();
    later.reset();
    auto call = std::exchange(done, nullptr);
    call(std::move(result));
  }

  Loop& loop;
  Command command;
  std::function<void(Result<ExitState>)> done;
  pid_t pid = -1;
  bool reaped = false;
  std::size_t fed = 0;
  ExitState state;
  Fd stdin_fd, out_fd, err_fd, exit_fd;
  Handle on_in, on_out, on_err, on_exit, timer, later;
};

}  // namespace

Handle run_command(Loop& loop, Command command, Duration limit, std::function<void(Result<ExitState>)> done) {
  auto running = std::make_shared<Running>(loop, std::move(command), std::move(done));
  running->begin(limit);
  return Handle([running]() mutable {
    running->done = nullptr;
    for (Handle* handle : {&running->on_in, &running->on_out, &running->on_err, &running->on_exit,
                           &running->timer, &running->later}) {
      handle->reset();
    }
    running.reset();
  });
}

Result<ExitState> run_command(const Command& command, Duration limit) {
  Loop loop;
  std::optional<Result<ExitState>> result;
  Handle handle = run_command(loop, command, limit, [&](Result<ExitState> r) {
    result = std::move(r);
    loop.stop();
  });
  while (!result) loop.run();
  return std::move(*result);
}

struct Child::Impl {
  pid_t pid = -1;
  bool ended = false;
  Fd exit_fd;
  Handle on_exit;
};

Child::Child(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Child::~Child() = default;
pid_t Child::pid() const {
  return impl_->pid;
}

void Child::kill(int signal) {
  if (!impl_->ended) ::syscall(SYS_pidfd_send_signal, impl_->exit_fd.get(), signal, nullptr, 0);
}

Result<std::unique_ptr<Child>> Child::spawn(Loop& loop, const Command& command, const SpawnOptions& options,
                                            std::function<void(ExitState)> exited) {
  auto impl = std::make_unique<Impl>();
  impl->pid = TRY(start(command, options));
  impl->exit_fd.reset(pidfd_open(impl->pid));
  if (!impl->exit_fd) return fail(errno_error("watch process " + std::to_string(impl->pid), errno));
  impl->on_exit = loop.on_readable(impl->exit_fd.get(), [raw = impl.get(), exited = std::move(exited)] {
    int status = 0;
    if (raw->ended || ::waitpid(raw->pid, &status, WNOHANG) != raw->pid) return;
    raw->ended = true;
    ExitState state;
    fill_exit(state, status);
    // `exited` may destroy this Child, and with it the function that is running: it is called from a copy.
    auto call = exited;
    raw->on_exit.reset();
    call(std::move(state));
  });
  return std::unique_ptr<Child>(new Child(std::move(impl)));
}

Result<Handle> on_process_exit(Loop& loop, pid_t pid, std::function<void()> exited) {
  auto fd = std::make_shared<Fd>(pidfd_open(pid));
  if (!*fd) return fail(errno_error("watch process " + std::to_string(pid), errno));
  auto fired = std::make_shared<bool>(false);
  auto watch = std::make_shared<Handle>();
  *watch =
      loop.on_readable(fd->get(), [fired, weak = std::weak_ptr<Handle>(watch), exited = std::move(exited)] {
        if (std::exchange(*fired, true)) return;
        auto call = exited;
        if (auto held = weak.lock()) held->reset();
        call();
      });
  return Handle([watch, fd] { watch->reset(); });
}

std::vector<std::string> current_environment() {
  std::vector<std::string> out;
  for (char** at = environ; at && *at; ++at) out.emplace_back(*at);
  return out;
}

std::string env_or(const char* name, std::string_view fallback) {
  const char* value = std::getenv(name);
  return value ? value : std::string(fallback);
}

fs::path self_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace gpuop
