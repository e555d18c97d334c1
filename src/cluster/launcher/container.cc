#include "cluster/launcher/container.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "base/time.h"
#include "cluster/launcher/hooks.h"
#include "cluster/launcher/init.h"
#include "cluster/launcher/oci_spec.h"
#include "cluster/launcher/privileges.h"

namespace gpuop::cluster {
namespace {

Result<std::uint64_t> clone_flags(const OciSpec& spec) {
  std::uint64_t flags = 0;
  for (const OciNamespace& ns : spec.namespaces) {
    std::uint64_t flag = 0;
    if (ns.type == "pid") flag = CLONE_NEWPID;
    if (ns.type == "mount") flag = CLONE_NEWNS;
    if (ns.type == "uts") flag = CLONE_NEWUTS;
    if (ns.type == "ipc") flag = CLONE_NEWIPC;
    if (ns.type == "network") flag = CLONE_NEWNET;
    if (ns.type == "cgroup") flag = CLONE_NEWCGROUP;
    if (flag == 0)
      return fail(Code::kUnsupported, "linux.namespaces: type '" + ns.type + "' is not supported");
    if (ns.type == "mount" && !ns.path.empty()) {
      return fail(Code::kUnsupported, "linux.namespaces: joining a mount namespace is not supported");
    }
    if (ns.path.empty()) flags |= flag;
  }
  if (!(flags & CLONE_NEWNS))
    return fail(Code::kInvalid, "linux.namespaces: a new mount namespace is needed");
  return flags;
}

// Children of this process are born in that PID namespace from here on.
Result<> join_pid_namespace(const OciSpec& spec) {
  const OciNamespace* ns = spec.find_namespace("pid");
  if (!ns || ns->path.empty()) return {};
  Fd fd(::open(ns->path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::setns(fd.get(), CLONE_NEWPID) != 0) {
    return fail(errno_error("join pid namespace '" + ns->path + "'", errno));
  }
  return {};
}

pid_t clone_process(std::uint64_t flags) {
  clone_args args{};
  args.flags = flags;
  args.exit_signal = SIGCHLD;
  return static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
}

// The next message of the init; its own words when it failed.
Result<> expect(int sync, char what) {
  std::array<char, 8192> buffer{};
  ssize_t n = 0;
  do {
    n = ::recv(sync, buffer.data(), buffer.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n > 0 && buffer[0] == what) return {};
  if (n > 0 && buffer[0] == kError) {
    std::string text(buffer.data() + 1, static_cast<std::size_t>(n - 1));
    // A missing program is told from other faults by code, not by text, further up.
    return fail(text.find("not found in $PATH") != std::string::npos ? Code::kNotFound : Code::kUnknown,
                text);
  }
  return fail(Code::kUnknown, "container init ended before the container was created");
}

struct Creation {
  const CreateOptions& options;
  OciSpec spec;
  ContainerRecord record;
  Fd sync, fifo;
};

Result<> drive(Creation& creation) {
  TRY(expect(creation.sync.get(), kMounted));
  Json state = state_document(creation.record, "creating");
  TRY(run_hooks("prestart", creation.spec.hooks.prestart, state));
  TRY(run_hooks("createRuntime", creation.spec.hooks.create_runtime, state));
  char go = kGo;
  if (::send(creation.sync.get(), &go, 1, MSG_NOSIGNAL) != 1)
    return fail(errno_error("talk to container init", errno));
  TRY(expect(creation.sync.get(), kCreated));
  creation.record.pid_start = process_start_ticks(creation.record.pid);
  TRY(write_record(creation.options.state_root, creation.record));
  if (!creation.options.pid_file.empty()) {
    TRY(write_file_atomic(creation.options.pid_file, std::to_string(creation.record.pid)));
  }
  return {};
}

Result<pid_t> launch(Creation& creation) {
  const OciSpec& spec = creation.spec;
  std::uint64_t flags = TRY(clone_flags(spec));
  TRY(join_pid_namespace(spec));
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return fail(errno_error("make a socket pair", errno));
  }
  creation.sync.reset(pair[0]);
  Fd theirs(pair[1]);
  pid_t pid = clone_process(flags);
  if (pid < 0) return fail(errno_error("clone", errno));
  if (pid == 0) {
    creation.sync.reset();
    // Hooks of the container's side see their own pid as the container's.
    creation.record.pid = ::getpid();
    Json state = state_document(creation.record, "creating");
    run_init({spec, state, theirs.get(), creation.fifo.get()});
  }
  theirs.reset();
  creation.record.pid = pid;
  if (auto driven = drive(creation); !driven) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return fail(std::move(driven).error());
  }
  return pid;
}

Time wall_clock() {
  return std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
}

}  // namespace

Result<pid_t> create_container(const CreateOptions& options) {
  TRY(check_container_id(options.id));
  Creation creation{options, TRY(read_oci_spec(options.bundle)), {}, {}, {}};
  creation.record.oci_version = creation.spec.version;
  creation.record.id = options.id;
  creation.record.bundle = options.bundle;
  creation.record.created = format_micro_time(wall_clock());
  creation.record.annotations = creation.spec.annotations;
  TRY(make_dirs(options.state_root, 0700));
  fs::path dir = record_dir(options.state_root, options.id);
  if (::mkdir(dir.c_str(), 0700) != 0) {
    if (errno == EEXIST) return fail(Code::kExists, "container with given ID already exists");
    return fail(errno_error("make folder '" + dir.string() + "'", errno));
  }
  auto result = [&]() -> Result<pid_t> {
    fs::path fifo = start_fifo(options.state_root, options.id);
    if (::mkfifo(fifo.c_str(), 0600) != 0)
      return fail(errno_error("make FIFO '" + fifo.string() + "'", errno));
    creation.fifo.reset(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!creation.fifo) return fail(errno_error("open FIFO '" + fifo.string() + "'", errno));
    return launch(creation);
  }();
  if (!result) {
    std::error_code ignored;
    fs::remove_all(dir, ignored);
  }
  return result;
}

Result<> start_container(const fs::path& state_root, const std::string& id) {
  ContainerRecord record = TRY(read_record(state_root, id));
  std::string_view status = container_status(state_root, record);
  if (status != "created") {
    return fail(Code::kConflict, status == "running" ? "cannot start an already running container"
                                                     : "cannot start a container that has stopped");
  }
  fs::path path = start_fifo(state_root, id);
  Fd fifo(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fifo) {
    if (errno == ENXIO) return fail(Code::kConflict, "cannot start a container that has stopped");
    return fail(errno_error("open '" + path.string() + "'", errno));
  }
  // Gone before the byte is written: whoever sees the program run sees the state "running".
  TRY(remove_file(path));
  if (::write(fifo.get(), "0", 1) != 1) return fail(errno_error("start container '" + id + "'", errno));
  if (auto spec = read_oci_spec(record.bundle); spec && !spec->hooks.poststart.empty()) {
    TRY(run_hooks("poststart", spec->hooks.poststart, state_document(record, "running")));
  }
  return {};
}

Result<Json> container_state(const fs::path& state_root, const std::string& id) {
  ContainerRecord record = TRY(read_record(state_root, id));
  std::string_view status = container_status(state_root, record);
  Json state = state_document(record, status);
  state.get_object()["created"] = record.created;
  return state;
}

Result<> kill_container(const fs::path& state_root, const std::string& id, int signal) {
  ContainerRecord record = TRY(read_record(state_root, id));
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, record.pid, 0)));
  // Asked after the pidfd is held, so that the number cannot change hands in between.
  if (!process || container_status(state_root, record) == "stopped") {
    return fail(Code::kConflict, "container not running");
  }
  if (::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) != 0) {
    return fail(errno_error("kill container '" + id + "'", errno));
  }
  return {};
}

namespace {

void end_process(const ContainerRecord& record) {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, record.pid, 0)));
  if (!process || process_start_ticks(record.pid) != record.pid_start) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  siginfo_t ignored{};
  // Reaps it when it is our child; otherwise its parent does.
  ::waitid(static_cast<idtype_t>(3 /* P_PIDFD */), static_cast<id_t>(process.get()), &ignored, WEXITED);
}

}  // namespace

Result<> delete_container(const fs::path& state_root, const std::string& id, bool force) {
  auto record = read_record(state_root, id);
  if (!record) {
    if (!force || record.error().code() != Code::kNotFound) return fail(std::move(record).error());
    std::error_code ignored;
    if (check_container_id(id)) fs::remove_all(record_dir(state_root, id), ignored);
    return {};
  }
  if (container_status(state_root, *record) != "stopped") {
    if (!force) return fail(Code::kConflict, "cannot delete container '" + id + "' that is not stopped");
    end_process(*record);
  }
  if (auto spec = read_oci_spec(record->bundle)) {
    if (auto ran = run_hooks("poststop", spec->hooks.poststop, state_document(*record, "stopped"));
        !ran && !force) {
      return fail(std::move(ran).error());
    }
  }
  std::error_code error;
  fs::remove_all(record_dir(state_root, id), error);
  if (error) return fail(errno_error("remove state of container '" + id + "'", error.value()));
  return {};
}

Result<> start_pause(const fs::path& pid_file) {
  pid_t pid = clone_process(CLONE_NEWPID);
  if (pid < 0) return fail(errno_error("clone", errno));
  if (pid == 0) {
    ::setsid();
    ::syscall(SYS_close_range, 0u, ~0u, 0u);
    ::signal(SIGCHLD, SIG_IGN);  // children are reaped by the kernel
    for (;;) ::pause();
  }
  auto written = write_file_atomic(pid_file, std::to_string(pid));
  if (!written) {
    ::kill(pid, SIGKILL);
    return fail(std::move(written).error());
  }
  return {};
}

namespace {

Result<> enter_namespaces(pid_t pid) {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return fail(errno_error("open process '" + std::to_string(pid) + "'", errno));
  // One call: either all of them or none. What the container shares with the caller is no change.
  if (::setns(process.get(), CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS) != 0) {
    return fail(errno_error("enter namespaces of process '" + std::to_string(pid) + "'", errno));
  }
  return {};
}

struct Terminal {
  Fd master, slave;
};

// Of the container's own devpts, which is entered already. What lies there is the container's to change: only
// a terminal multiplexer is taken.
Result<Terminal> open_terminal(const OciSpec& spec) {
  const std::string doing = "open a terminal in the container: '/dev/pts/ptmx'";
  Terminal out;
  out.master.reset(::open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info{};
  if (!out.master || ::fstat(out.master.get(), &info) != 0) return fail(errno_error(doing, errno));
  if (!S_ISCHR(info.st_mode) || info.st_rdev != makedev(5, 2))
    return fail(Code::kInvalid, doing + ": is not a terminal multiplexer");
  const int unlocked = 0;
  if (::ioctl(out.master.get(), TIOCSPTLCK, &unlocked) != 0) return fail(errno_error(doing, errno));
  out.slave.reset(::ioctl(out.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!out.slave) return fail(errno_error(doing, errno));
  if (::fchown(out.slave.get(), spec.uid, static_cast<gid_t>(-1)) != 0)
    return fail(errno_error("give the terminal to its user", errno));
  return out;
}

Result<> send_console(int socket, std::string_view text, int fd) {
  iovec data{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::copy_n(reinterpret_cast<const unsigned char*>(&fd), sizeof fd, CMSG_DATA(header));
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) return fail(errno_error("send the terminal", errno));
  return {};
}

// The slave of a new terminal, whose master went out; nothing where none is wanted.
Result<Fd> make_console(const ExecOptions& options, OciSpec& spec) {
  if (options.console_fd < 0) return Fd();
  auto terminal = open_terminal(spec);
  if (!terminal) {
    TRY(send_console(options.console_fd, terminal.error().text(), -1));
    return fail(std::move(terminal).error());
  }
  TRY(send_console(options.console_fd, "t", terminal->master.get()));
  const auto is_term = [](const std::string& entry) { return entry.starts_with("TERM="); };
  if (std::none_of(spec.env.begin(), spec.env.end(), is_term)) spec.env.emplace_back("TERM=xterm");
  return std::move(terminal->slave);
}

void take_console(const Fd& slave) {
  ::setsid();
  for (int stream = 0; stream < 3; ++stream) ::dup2(slave.get(), stream);
  ::ioctl(0, TIOCSCTTY, 0);
}

[[noreturn]] void run_inside(const OciSpec& spec, const std::vector<std::string>& args, const Fd& console) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (console) take_console(console);
  auto give_up = [](const Error& error) {
    std::string text = "OCI runtime exec failed: " + error.text() + "\n";
    [[maybe_unused]] ssize_t n = ::write(2, text.data(), text.size());
    ::_exit(error.code() == Code::kNotFound ? 127 : 126);
  };
  if (::chdir(spec.cwd.c_str()) != 0)
    give_up(errno_error("enter working directory '" + spec.cwd + "'", errno));
  auto program = find_executable(args[0], spec.env, spec.cwd);
  if (!program) give_up(program.error());
  if (auto dropped = drop_privileges(spec); !dropped) give_up(dropped.error());
  // Changing ids clears the wish to die with the parent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  give_up(exec_program(*program, args, spec.env));
  ::_exit(126);
}

}  // namespace

namespace {

// Nothing of the caller's streams is held open any longer.
void leave_streams() {
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return;
  for (int stream = 0; stream < 3; ++stream) ::dup2(null.get(), stream);
}

}  // namespace

Result<int> exec_in_container(const ExecOptions& options) {
  if (options.args.empty()) return fail(Code::kInvalid, "exec: no command");
  OciSpec spec = TRY(read_oci_spec(options.bundle));
  TRY(enter_namespaces(options.pid));
  Fd console = TRY(make_console(options, spec));
  pid_t pid = ::fork();
  if (pid < 0) return fail(errno_error("fork", errno));
  if (pid == 0) run_inside(spec, options.args, console);
  // Whoever reads the streams sees their end when the program's have ended.
  console.reset();
  if (options.streams_are_the_programs) leave_streams();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return fail(errno_error("wait for program", errno));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gpuop::cluster
