#include "cluster/fleet/supervisor.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "base/inotify.h"
#include "base/process.h"
#include "base/text.h"
#include "cluster/fleet/fleet_files.h"
#include "cluster/launcher/state.h"

namespace gpuop::cluster {
namespace {

struct Supervisor {
  pid_t pid = 0;
  std::uint64_t start = 0;
  bool alive() const { return pid > 0 && process_start_ticks(pid) == start && start != 0; }
};

Supervisor read_supervisor(const fs::path& state_dir) {
  auto text = read_file(state_dir / "supervisor.json");
  auto json = text ? parse_json(*text) : Result<Json>(fail(text.error()));
  if (!json) return {};
  return {static_cast<pid_t>(get_int(*json, {"pid"})), static_cast<std::uint64_t>(get_int(*json, {"start"}))};
}

// As in service.cc, but into namespaces of its own.
[[noreturn]] void become_supervisor(char* const* argv, char* const* env, int output, bool keep) {
  if (keep) {
    ::setsid();
  } else {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  ::syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
  ::execve(argv[0], argv, env);
  ::_exit(127);
}

Result<pid_t> launch_supervisor(const FleetOptions& options) {
  fs::path log = options.state_dir / "log/supervisor.log";
  Fd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!output) return fail(errno_error("open '" + log.string() + "'", errno));
  std::vector<std::string> args{options.program, "sim-supervisor", "--state", options.state_dir};
  std::vector<std::string> environment = current_environment();
  std::vector<char*> argv, env;
  for (std::string& arg : args) argv.push_back(arg.data());
  for (std::string& entry : environment) env.push_back(entry.data());
  argv.push_back(nullptr);
  env.push_back(nullptr);
  clone_args clone{};
  clone.flags = CLONE_NEWPID | CLONE_NEWNS;
  clone.exit_signal = SIGCHLD;
  long pid = ::syscall(SYS_clone3, &clone, sizeof clone);
  if (pid < 0) return fail(errno_error("start a fleet's supervisor", errno));
  if (pid == 0) become_supervisor(argv.data(), env.data(), output.get(), options.keep);
  return static_cast<pid_t>(pid);
}

// SIGTERM, then waits: the kernel has ended everything beneath when it is gone.
void end_supervisor(pid_t pid) {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  Loop loop;
  auto watch = loop.on_readable(process.get(), [&] { loop.stop(); });
  loop.run_until([] { return false; }, 10s);
}

// Logs, the nodes' own files and the volumes of their pods.
constexpr std::uint64_t kNeededMib = 64;

// The folder is removed at the end: it must hold nothing but what a fleet put there.
Result<> only_a_fleets(const fs::path& state_dir) {
  static const std::set<std::string> kBegun{"lock", "log", "nodes"};  // by one that has got no further yet
  const auto there = list_dir(state_dir);
  if (!there || file_exists(state_dir / "fleet.json")) return {};
  for (const std::string& name : *there) {
    if (kBegun.contains(name)) continue;
    return fail(Code::kExists, "start a fleet: '" + state_dir.string() +
                                   "': holds files that are not a fleet's; name a new or an empty folder");
  }
  return {};
}

// Of two that start at once, one.
Result<FileLock> start_lock(const fs::path& state_dir) {
  TRY(only_a_fleets(state_dir));
  TRY(make_dirs(state_dir));
  Result<FileLock> lock = FileLock::acquire(state_dir / "lock");
  if (lock || lock.error().code() != Code::kBusy) return lock;
  return fail(Code::kBusy,
              "start a fleet: '" + state_dir.string() + "': another fleet is being started there");
}

void remove_state(const fs::path& dir) {
  std::error_code ignored;
  fs::remove_all(dir, ignored);
}

}  // namespace

struct FleetProcess::Impl {
  Impl(Loop& l, FleetOptions o) : loop(l), options(std::move(o)) {}
  void reap() {
    if (pid > 0) ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  void tell() {
    auto text = read_file(options.state_dir / "status.json");
    if (!text || *text == last) return;
    last = *text;
    if (auto status = read_fleet_status(options.state_dir); status && changed) changed(*status);
  }

  Loop& loop;
  FleetOptions options;
  pid_t pid = 0;
  std::string last;
  std::function<void(const FleetStatus&)> changed;
  std::function<void()> ended;
  std::unique_ptr<DirWatch> watch;
  Handle exit_watch;
};

FleetProcess::FleetProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FleetProcess::~FleetProcess() {
  if (!impl_->options.keep) stop();
}

Result<std::unique_ptr<FleetProcess>> FleetProcess::start(Loop& loop, FleetOptions options,
                                                          std::function<void(const FleetStatus&)> changed,
                                                          std::function<void()> ended) {
  if (::geteuid() != 0) {
    return fail(Code::kPermission,
                "start a fleet: root is needed for its namespaces and mounts (run it with sudo)");
  }
  if (options.program.empty()) options.program = self_path();
  options.state_dir = fs::absolute(options.state_dir);
  options.install_tree = fs::absolute(options.install_tree);
  if (!options.data_dir.empty()) options.data_dir = fs::absolute(options.data_dir);
  const FileLock lock = TRY(start_lock(options.state_dir));
  if (read_supervisor(options.state_dir).alive()) {
    return fail(Code::kBusy,
                "start a fleet: '" + options.state_dir.string() + "': a fleet runs there already");
  }
  TRY(only_a_fleets(options.state_dir));
  TRY(make_dirs(options.state_dir / "log"));
  TRY(make_dirs(options.state_dir / "nodes"));
  struct statvfs room{};
  if (::statvfs(options.state_dir.c_str(), &room) == 0) {
    const auto free_mib = room.f_bavail * room.f_frsize >> 20;
    if (free_mib < kNeededMib) {
      return fail(Code::kNoSpace,
                  "start a fleet: '" + options.state_dir.string() + "': " + std::to_string(free_mib) +
                      " MiB are free on its file system, " + std::to_string(kNeededMib) + " are needed");
    }
  }
  for (const char* old : {"status.json", "kubeconfig", "supervisor.json"})
    TRY(remove_file(options.state_dir / old));
  TRY(put_file(options.state_dir / "fleet.json", to_text(to_json(options))));
  auto impl = std::make_unique<Impl>(loop, std::move(options));
  impl->changed = std::move(changed);
  impl->ended = std::move(ended);
  Impl* raw = impl.get();
  impl->watch = TRY(DirWatch::create(loop, impl->options.state_dir, [raw] { raw->tell(); }));
  impl->pid = TRY(launch_supervisor(impl->options));
  auto fleet = std::unique_ptr<FleetProcess>(new FleetProcess(std::move(impl)));
  JsonObject who{{"pid", raw->pid}, {"start", process_start_ticks(raw->pid)}};
  TRY(put_file(raw->options.state_dir / "supervisor.json", to_text(Json(std::move(who)))));
  raw->exit_watch = TRY(on_process_exit(loop, raw->pid, [raw] {
    raw->exit_watch.reset();
    raw->reap();
    raw->tell();
    if (raw->ended) raw->ended();
  }));
  return fleet;
}

fs::path FleetProcess::kubeconfig() const {
  return impl_->options.state_dir / "kubeconfig";
}
pid_t FleetProcess::pid() const {
  return impl_->pid;
}

void FleetProcess::stop(bool leave_files) {
  impl_->exit_watch.reset();
  impl_->watch.reset();
  if (impl_->pid > 0) {
    end_supervisor(impl_->pid);
    impl_->reap();
  }
  if (!leave_files) remove_state(impl_->options.state_dir);
}

Result<FleetStatus> read_fleet_status(const fs::path& state_dir) {
  std::string text = TRY(read_file(state_dir / "status.json"));
  return fleet_status_from_json(
      TRY_IN(parse_json(text), "read '" + (state_dir / "status.json").string() + "'"));
}

Result<> stop_fleet(const fs::path& state_dir) {
  Supervisor supervisor = read_supervisor(state_dir);
  if (!supervisor.alive()) {
    // What a fleet left that was killed.
    if (file_exists(state_dir / "fleet.json")) {
      remove_state(state_dir);
      return {};
    }
    return fail(Code::kNotFound, "stop a fleet: '" + state_dir.string() +
                                     "': none runs there (name its folder with --state-dir)");
  }
  end_supervisor(supervisor.pid);
  remove_state(state_dir);
  return {};
}

namespace {

struct Seen {
  pid_t parent = 0;
  std::vector<std::string> argv;
};

std::map<pid_t, Seen> all_processes() {
  std::map<pid_t, Seen> out;
  auto names = list_dir("/proc");
  if (!names) return out;
  for (const std::string& name : *names) {
    auto pid = parse_int(name);
    if (!pid) continue;
    auto stat = read_file("/proc/" + name + "/stat", 4096);
    auto command = read_file("/proc/" + name + "/cmdline", 1u << 20);
    if (!stat || !command || command->empty()) continue;  // gone, or a zombie
    std::size_t close = stat->rfind(')');
    if (close == std::string::npos) continue;
    std::vector<std::string> fields = split_fields(std::string_view(*stat).substr(close + 1));
    if (fields.size() < 2) continue;
    Seen seen{static_cast<pid_t>(parse_int(fields[1]).value_or(0)), split(*command, '\0')};
    out[static_cast<pid_t>(*pid)] = std::move(seen);
  }
  return out;
}

std::string value_after(const std::vector<std::string>& argv, std::string_view option) {
  for (std::size_t i = 0; i + 1 < argv.size(); ++i) {
    if (argv[i] == option) return argv[i + 1];
  }
  return {};
}

// What a process is, by its own command line; empty for what runs in a container.
FleetProcessInfo describe(pid_t pid, const Seen& seen) {
  FleetProcessInfo info;
  info.pid = pid;
  info.program = fs::path(seen.argv[0]).filename();
  std::string command = seen.argv.size() > 1 ? seen.argv[1] : "";
  if (command == "sim-supervisor") info.role = "supervisor";
  if (command == "sim-control-plane") info.role = "control-plane";
  if (command == "sim-node-runtime") info.role = "runtime";
  if (command == "sim-node-vgpus") info.role = "vgpus";
  if (command == "sim-node-kubelet") info.role = "kubelet";
  if (command.starts_with("sim-node-")) info.node = value_after(seen.argv, "--node");
  bool launcher = info.program == "runc" || info.program == "gpuop-runc";
  if (launcher && (command == "shim" || command == "pause")) {
    info.role = command;
    std::string name = value_after(seen.argv, "--name");  // NODE/NAMESPACE/POD/CONTAINER
    std::size_t slash = name.find('/');
    info.node = name.substr(0, slash);
    if (slash != std::string::npos) info.container = name.substr(slash + 1);
    const std::string bundle = value_after(seen.argv, "--bundle");
    if (!bundle.empty()) info.bundle = "/proc/" + std::to_string(pid) + "/root" + bundle;
  }
  return info;
}

}  // namespace

Result<std::vector<FleetProcessInfo>> list_fleet_processes(const fs::path& state_dir) {
  Supervisor supervisor = read_supervisor(state_dir);
  if (!supervisor.alive()) {
    return fail(Code::kNotFound, "list a fleet: '" + state_dir.string() +
                                     "': none runs there (start one with 'gpuctl demo --keep', or name its "
                                     "folder with --state-dir)");
  }
  std::map<pid_t, Seen> processes = all_processes();
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, seen] : processes) children.emplace(seen.parent, pid);
  std::vector<FleetProcessInfo> out;
  // From the top, so that a container's processes know whose they are.
  std::vector<std::pair<pid_t, FleetProcessInfo>> todo{{supervisor.pid, {}}};
  while (!todo.empty()) {
    auto [pid, parent] = todo.back();
    todo.pop_back();
    auto found = processes.find(pid);
    if (found == processes.end()) continue;
    FleetProcessInfo info = describe(pid, found->second);
    if (info.role.empty()) {
      info.role = "container";
      info.node = parent.node;
      info.container = parent.container;
      info.bundle = parent.bundle;
    }
    out.push_back(info);
    auto [begin, end] = children.equal_range(pid);
    for (auto at = begin; at != end; ++at) todo.emplace_back(at->second, info);
  }
  return out;
}

}  // namespace gpuop::cluster
