#include "cluster/launcher/shim.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "base/json.h"
#include "base/text.h"
#include "cluster/launcher/container.h"
#include "cluster/launcher/cri_log.h"
#include "cluster/launcher/privileges.h"

namespace gpuop::cluster {
namespace {

Time wall_clock() {
  return std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
}

struct Pipe {
  Fd read, write;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error("make a pipe", errno));
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

class Shim {
 public:
  explicit Shim(const ShimOptions& options) : options_(options) {}
  int run();

 private:
  Result<> prepare();
  Result<> create();
  Result<> start();
  void remove();
  // Runs `work` (or the OCI runtime with `args`) in a child and waits; output goes to the container's streams
  // while it is created, and nowhere later.
  Result<> operate(const std::vector<std::string>& args, const std::function<Result<>()>& work,
                   bool with_streams);
  [[noreturn]] void become(const std::vector<std::string>& args, const std::function<Result<>()>& work,
                           bool with_streams, int failure);
  std::string runtime_error(int status, const std::string& fallback) const;
  void serve();
  void pump(int which);
  void write_log(const std::string& text);
  void reap();
  void end_leftovers();
  void report(const JsonObject& what);
  fs::path pid_file() const { return fs::path(options_.bundle) / "init.pid"; }
  fs::path runtime_log() const { return fs::path(options_.bundle) / "log.json"; }

  const ShimOptions& options_;
  Fd report_;
  Fd log_;
  Fd signals_;
  std::array<Pipe, 2> streams_;  // stdout, stderr
  std::array<CriLogStream, 2> lines_{CriLogStream("stdout"), CriLogStream("stderr")};
  std::string error_tail_;  // the last of stderr until the container runs
  pid_t init_ = 0;
  bool ended_ = false;
  ExitRecord exit_;
};

Result<> Shim::prepare() {
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return fail(errno_error("watch children", errno));
  for (Pipe& stream : streams_) {
    stream = TRY(make_pipe());
    ::fcntl(stream.read.get(), F_SETFL, O_NONBLOCK);
  }
  if (!options_.log.empty()) {
    TRY(make_dirs(options_.log.parent_path()));
    log_.reset(::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
    if (!log_) return fail(errno_error("open log '" + options_.log.string() + "'", errno));
  }
  return {};
}

void Shim::become(const std::vector<std::string>& args, const std::function<Result<>()>& work,
                  bool with_streams, int failure) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(with_streams ? streams_[0].write.get() : null.get(), 1);
  ::dup2(with_streams ? streams_[1].write.get() : null.get(), 2);
  auto give_up = [&](const Error& error) {
    std::string text(1, error.code() == Code::kNotFound ? 'N' : 'E');
    text += error.text();
    [[maybe_unused]] ssize_t n = ::write(failure, text.data(), text.size());
    ::_exit(1);
  };
  if (options_.runtime.empty()) {
    auto done = work();
    if (!done) give_up(done.error());
    ::_exit(0);
  }
  std::vector<std::string> argv{options_.runtime, "--root", options_.state_root, "--log", runtime_log(),
                                "--log-format",   "json"};
  argv.insert(argv.end(), args.begin(), args.end());
  std::vector<std::string> env{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  if (const char* kernel = std::getenv("GPUOP_KERNEL_ROOT"))
    env.push_back(std::string("GPUOP_KERNEL_ROOT=") + kernel);
  give_up(exec_program(options_.runtime, argv, env));
  ::_exit(1);
}

// The last message that the runtime wrote to its log, as containerd shows it; what it said on standard error
// otherwise.
std::string Shim::runtime_error(int status, const std::string& fallback) const {
  std::string message;
  if (auto text = read_file(runtime_log())) {
    for (const std::string& line : split(*text, '\n')) {
      auto json = parse_json(line);
      if (json && get_string(*json, {"level"}) == "error") message = str(get_string(*json, {"msg"}));
    }
  }
  if (!message.empty()) return message;
  if (!trim(fallback).empty()) return std::string(trim(fallback));
  return options_.runtime + " did not terminate successfully: " +
         (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                              : "exit status " + std::to_string(WEXITSTATUS(status)));
}

Result<> Shim::operate(const std::vector<std::string>& args, const std::function<Result<>()>& work,
                       bool with_streams) {
  Pipe failure = TRY(make_pipe());
  pid_t pid = ::fork();
  if (pid < 0) return fail(errno_error("fork", errno));
  if (pid == 0) become(args, work, with_streams, failure.write.get());
  failure.write.reset();
  // A chatty runtime must not block on a full pipe while we wait for it.
  int status = 0;
  for (;;) {
    std::array<struct pollfd, 3> waits{{{signals_.get(), POLLIN, 0},
                                        {streams_[0].read.get(), POLLIN, 0},
                                        {streams_[1].read.get(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), -1);
    if (waits[1].revents & POLLIN) pump(0);
    if (waits[2].revents & POLLIN) pump(1);
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    }
    pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) return fail(errno_error("wait for runtime", errno));
  }
  pump(0);
  pump(1);
  std::string said = TRY(read_fd(failure.read.get(), 64u << 10));
  if (!said.empty()) {
    return fail(said[0] == 'N' ? Code::kNotFound : Code::kUnknown, said.substr(1));
  }
  if (status != 0) return fail(Code::kUnknown, runtime_error(status, error_tail_));
  return {};
}

Result<> Shim::create() {
  auto work = [&]() -> Result<> {
    TRY(create_container({options_.state_root, options_.id, options_.bundle, pid_file()}));
    return {};
  };
  // The log's time is that of the first attempt to create: an error of an earlier one must not be read again.
  TRY(remove_file(runtime_log()));
  TRY(operate({"create", "--bundle", options_.bundle, "--pid-file", pid_file(), options_.id}, work, true));
  for (Pipe& stream : streams_) stream.write.reset();
  std::string text = TRY(read_file(pid_file()));
  init_ = static_cast<pid_t>(parse_int(trim(text)).value_or(0));
  if (init_ <= 0) return fail(Code::kInvalid, "read '" + pid_file().string() + "': no process id");
  return {};
}

Result<> Shim::start() {
  return operate(
      {"start", options_.id}, [&] { return start_container(options_.state_root, options_.id); }, false);
}

void Shim::remove() {
  auto removed = operate(
      {"delete", "--force", options_.id},
      [&] { return delete_container(options_.state_root, options_.id, true); }, false);
  if (!removed) write_log(lines_[1].add("delete container: " + removed.error().text() + "\n", wall_clock()));
}

void Shim::report(const JsonObject& what) {
  std::string text = to_text(Json(what)) + "\n";
  [[maybe_unused]] ssize_t n = ::write(report_.get(), text.data(), text.size());
  report_.reset();
}

void Shim::write_log(const std::string& text) {
  std::string_view left = text;
  while (log_ && !left.empty()) {
    ssize_t n = ::write(log_.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a full disk loses log lines, never the container
    left.remove_prefix(static_cast<std::size_t>(n));
  }
}

void Shim::pump(int which) {
  auto index = static_cast<std::size_t>(which);
  std::array<char, 16384> buffer;
  for (;;) {
    if (!streams_[index].read) return;
    ssize_t n = ::read(streams_[index].read.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    if (n == 0) {
      streams_[index].read.reset();
      write_log(lines_[index].finish(wall_clock()));
      return;
    }
    std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
    if (report_ && which == 1) {
      error_tail_ += bytes;
      constexpr std::size_t kTail = 4096;
      if (error_tail_.size() > kTail) error_tail_.erase(0, error_tail_.size() - kTail);
    }
    write_log(lines_[index].add(bytes, wall_clock()));
  }
}

void Shim::reap() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
  }
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != init_) continue;
    ended_ = true;
    exit_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    exit_.code = WIFSIGNALED(status) ? 128 + exit_.signal : WEXITSTATUS(status);
    exit_.finished = format_nano_time(wall_clock());
  }
  if (pid < 0 && errno == ECHILD && !ended_) {
    // The init was never ours to wait for: it went before we could be told how.
    ended_ = true;
    exit_ = {255, 0, format_nano_time(wall_clock())};
  }
}

// Processes that the container left in the node's PID namespace came to us as the nearest subreaper.
void Shim::end_leftovers() {
  for (;;) {
    auto children = read_file("/proc/self/task/" + std::to_string(::getpid()) + "/children", 1u << 20);
    std::vector<std::string> pids = children ? split_fields(*children) : std::vector<std::string>();
    if (pids.empty()) return;
    for (const std::string& pid : pids) {
      if (auto number = parse_int(pid)) ::kill(static_cast<pid_t>(*number), SIGKILL);
    }
    while (::waitpid(-1, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Shim::serve() {
  while (!ended_) {
    std::array<struct pollfd, 3> waits{{{signals_.get(), POLLIN, 0},
                                        {streams_[0].read.get(), POLLIN, 0},
                                        {streams_[1].read.get(), POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) break;
    if (waits[1].revents) pump(0);
    if (waits[2].revents) pump(1);
    if (waits[0].revents) reap();
  }
}

int Shim::run() {
  report_.reset(options_.report);
  if (report_) ::fcntl(report_.get(), F_SETFD, FD_CLOEXEC);
  auto begun = [&]() -> Result<> {
    TRY(prepare());
    TRY_IN(create(),
           "failed to create containerd task: failed to create shim task: OCI runtime create failed");
    TRY_IN(start(), "failed to start containerd task");
    return {};
  }();
  if (!begun) {
    // Undone before it is told: the next attempt may come at once, under the same id.
    if (init_ > 0) ::kill(init_, SIGKILL);
    if (signals_) remove();
    report({{"error", begun.error().text()}, {"notFound", begun.error().code() == Code::kNotFound}});
    return 1;
  }
  error_tail_.clear();
  report({{"pid", init_}});
  reap();  // it may have ended while it was started, its signal swallowed there
  serve();
  end_leftovers();
  pump(0);
  pump(1);
  for (std::size_t i = 0; i < 2; ++i) write_log(lines_[i].finish(wall_clock()));
  remove();
  return write_exit_file(options_.exit_file, exit_) ? 0 : 1;
}

}  // namespace

int run_shim(const ShimOptions& options) {
  return Shim(options).run();
}

Result<ExitRecord> read_exit_file(const fs::path& path) {
  std::string text = TRY(read_file(path));
  Json json = TRY_IN(parse_json(text), "read '" + path.string() + "'");
  return ExitRecord{static_cast<int>(get_int(json, {"code"}, 255)),
                    static_cast<int>(get_int(json, {"signal"})), str(get_string(json, {"finished"}))};
}

Result<> write_exit_file(const fs::path& path, const ExitRecord& record) {
  JsonObject json{{"code", record.code}, {"signal", record.signal}, {"finished", record.finished}};
  TRY(write_file_atomic(path, to_text(Json(std::move(json)))));
  return {};
}

}  // namespace gpuop::cluster
