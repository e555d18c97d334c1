#include "cluster/launcher/init.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "cluster/launcher/hooks.h"
#include "cluster/launcher/mounts.h"
#include "cluster/launcher/privileges.h"

namespace gpuop::cluster {
namespace {

Result<> join_namespaces(const OciSpec& spec) {
  static const std::map<std::string_view, int> kinds{
      {"uts", CLONE_NEWUTS}, {"ipc", CLONE_NEWIPC}, {"network", CLONE_NEWNET}, {"cgroup", CLONE_NEWCGROUP}};
  for (const OciNamespace& ns : spec.namespaces) {
    auto kind = kinds.find(ns.type);
    if (ns.path.empty() || kind == kinds.end()) continue;
    Fd fd(::open(ns.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || ::setns(fd.get(), kind->second) != 0) {
      return fail(errno_error("join " + ns.type + " namespace '" + ns.path + "'", errno));
    }
  }
  return {};
}

// How mounts travel between the node and the container. Shared is left as it is: a source that is shared on
// the node stays its peer, which is what makes Bidirectional volumes work.
Result<> set_propagation(const std::string& propagation) {
  unsigned long flags = MS_SLAVE | MS_REC;
  if (propagation == "shared" || propagation == "rshared") return {};
  if (propagation == "private" || propagation == "rprivate") flags = MS_PRIVATE | MS_REC;
  if (::mount(nullptr, "/", nullptr, flags, nullptr) != 0)
    return fail(errno_error("set mount propagation", errno));
  return {};
}

// The root as a private mount of its own, without device nodes: those come from the node, one by one.
Result<Root> mount_root(const OciSpec& spec) {
  std::string doing = "mount root '" + spec.root_path + "'";
  TRY_IN(make_holder_private(spec.root_path), doing);
  Fd tree = TRY_IN(clone_mount(spec.root_path, true), doing);
  TRY_IN(set_mount_attributes(tree.get(), 0, 0, MS_PRIVATE, true), doing);
  TRY_IN(set_mount_attributes(tree.get(), MOUNT_ATTR_NODEV, 0, 0, false), doing);
  Fd point(::open(spec.root_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!point) return fail(errno_error(doing, errno));
  TRY_IN(attach_mount(tree.get(), point.get()), doing);
  return Root::open(spec.root_path);
}

constexpr std::array<const char*, 6> kHarmlessDevices{"/dev/null",   "/dev/zero",    "/dev/full",
                                                      "/dev/random", "/dev/urandom", "/dev/tty"};

// Every device but the harmless six is the machine's /dev/null under another name: a simulated container
// opens no device of the machine.
Result<> put_device(const Root& root, const std::string& path, const std::string& source) {
  std::string doing = "make device '" + path + "'";
  Fd tree = TRY_IN(clone_mount(source, false), doing);
  TRY_IN(set_mount_attributes(tree.get(), 0, 0, MS_PRIVATE, false), doing);
  Fd point = TRY_IN(open_mount_point(root, path, false), doing);
  TRY_IN(attach_mount(tree.get(), point.get()), doing);
  return {};
}

bool has_own_dev(const OciSpec& spec) {
  for (const OciMount& mount : spec.mounts) {
    if (mount.destination == "/dev") return mount.type != "bind";
  }
  return false;
}

Result<> make_link(const Root& root, const char* name, const char* target) {
  Fd dev = TRY(root.open_at("/dev", O_PATH | O_DIRECTORY));
  if (::symlinkat(target, dev.get(), name) != 0 && errno != EEXIST) {
    return fail(errno_error("make link '/dev/" + std::string(name) + "'", errno));
  }
  return {};
}

Result<> make_devices(const Root& root, const OciSpec& spec) {
  if (!has_own_dev(spec)) return {};
  for (const char* path : kHarmlessDevices) TRY(put_device(root, path, path));
  for (const OciDevice& device : spec.devices) {
    if (device.type == 'p') {
      fs::path path(device.path);
      TRY(root.make_dirs(path.parent_path()));
      Fd parent = TRY(root.open_at(path.parent_path(), O_PATH | O_DIRECTORY));
      if (::mkfifoat(parent.get(), path.filename().c_str(), 0666) != 0 && errno != EEXIST) {
        return fail(errno_error("make FIFO '" + device.path + "'", errno));
      }
      continue;
    }
    bool harmless = false;
    for (const char* path : kHarmlessDevices) harmless = harmless || device.path == path;
    if (!harmless) TRY(put_device(root, device.path, "/dev/null"));
  }
  TRY(make_link(root, "fd", "/proc/self/fd"));
  TRY(make_link(root, "stdin", "/proc/self/fd/0"));
  TRY(make_link(root, "stdout", "/proc/self/fd/1"));
  TRY(make_link(root, "stderr", "/proc/self/fd/2"));
  TRY(make_link(root, "ptmx", "pts/ptmx"));
  return {};
}

Result<> mask_paths(const Root& root, const OciSpec& spec) {
  for (const std::string& path : spec.masked_paths) {
    auto point = root.open_at(path, O_PATH);
    if (!point) continue;  // nothing to hide
    struct stat info{};
    ::fstat(point->get(), &info);
    MountOptions options;
    options.set = MOUNT_ATTR_RDONLY;
    Fd tree = S_ISDIR(info.st_mode) ? TRY(new_mount("tmpfs", "tmpfs", options))
                                    : TRY(clone_mount("/dev/null", false));
    TRY_IN(attach_mount(tree.get(), point->get()), "mask '" + path + "'");
  }
  for (const std::string& path : spec.readonly_paths) {
    auto point = root.open_at(path, O_PATH);
    if (!point) continue;
    Fd tree(static_cast<int>(::syscall(SYS_open_tree, point->get(), "",
                                       AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
    if (!tree) return fail(errno_error("make '" + path + "' read-only", errno));
    TRY_IN(set_mount_attributes(tree.get(), MOUNT_ATTR_RDONLY, 0, MS_PRIVATE, true),
           "make '" + path + "' read-only");
    TRY_IN(attach_mount(tree.get(), point->get()), "make '" + path + "' read-only");
  }
  return {};
}

// pivot_root onto the same folder stacks the old root on the new one: no folder of the container is needed.
Result<> enter_root(const Root& root) {
  Fd old(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!old || ::fchdir(root.fd()) != 0) return fail(errno_error("enter root", errno));
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail(errno_error("pivot_root", errno));
  // Unmounting the old root must not reach the node.
  if (::fchdir(old.get()) != 0 || ::mount(nullptr, ".", nullptr, MS_SLAVE | MS_REC, nullptr) != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) {
    return fail(errno_error("leave the old root", errno));
  }
  return {};
}

// What the creator had open is not the container's, and a pipe whose end we held would never end for its
// reader.
void close_all_but(int one, int other) {
  auto low = static_cast<unsigned>(std::min(one, other)), high = static_cast<unsigned>(std::max(one, other));
  if (low > 3) ::syscall(SYS_close_range, 3u, low - 1, 0u);
  if (high > low + 1) ::syscall(SYS_close_range, low + 1, high - 1, 0u);
  ::syscall(SYS_close_range, high + 1, ~0u, 0u);
}

void tell(int sync, char what, const std::string& text = {}) {
  std::string message = what + text;
  [[maybe_unused]] ssize_t n = ::send(sync, message.data(), message.size(), MSG_NOSIGNAL);
}

bool await(int sync, char what) {
  char got = 0;
  ssize_t n = 0;
  do {
    n = ::recv(sync, &got, 1, 0);
  } while (n < 0 && errno == EINTR);
  return n == 1 && got == what;
}

// Until the starter has written its byte. A reader that opened first sees no hang-up before a writer came.
bool await_start(int fifo) {
  struct pollfd wait{fifo, POLLIN, 0};
  char byte = 0;
  while (::poll(&wait, 1, -1) < 0) {
    if (errno != EINTR) return false;
  }
  return ::read(fifo, &byte, 1) == 1;
}

Result<std::string> prepare(const InitPlan& plan) {
  const OciSpec& spec = plan.spec;
  TRY(join_namespaces(spec));
  ::setsid();
  TRY(set_propagation(spec.rootfs_propagation));
  Root root = TRY(mount_root(spec));
  for (const OciMount& mount : spec.mounts) TRY(apply_mount(root, mount));
  TRY(make_devices(root, spec));
  if (!spec.hostname.empty() && spec.has_namespace("uts") &&
      ::sethostname(spec.hostname.data(), spec.hostname.size()) != 0) {
    return fail(errno_error("set host name '" + spec.hostname + "'", errno));
  }
  tell(plan.sync, kMounted);
  if (!await(plan.sync, kGo)) ::_exit(1);
  if (::fchdir(root.fd()) != 0) return fail(errno_error("enter root", errno));
  TRY(run_hooks("createContainer", spec.hooks.create_container, plan.state));
  TRY(mask_paths(root, spec));
  if (spec.root_readonly) {
    Fd top = TRY(root.open_at("/", O_PATH | O_DIRECTORY));
    TRY_IN(set_mount_attributes(top.get(), MOUNT_ATTR_RDONLY, 0, 0, false), "make root read-only");
  }
  TRY(enter_root(root));
  if (auto made = make_dirs(spec.cwd); !made || ::chdir(spec.cwd.c_str()) != 0) {
    return fail(errno_error("enter working directory '" + spec.cwd + "'", errno));
  }
  if (spec.args.empty()) return fail(Code::kInvalid, "process.args: must not be empty");
  return find_executable(spec.args[0], spec.env, spec.cwd);
}

}  // namespace

void run_init(const InitPlan& plan) {
  close_all_but(plan.sync, plan.start);
  auto program = prepare(plan);
  if (!program) {
    tell(plan.sync, kError, program.error().text());
    ::_exit(1);
  }
  tell(plan.sync, kCreated);
  // The creator goes its way now; from here on an error has only standard error to go to.
  if (!await_start(plan.start)) ::_exit(1);
  auto give_up = [](const Error& error) {
    std::string text = error.text() + "\n";
    [[maybe_unused]] ssize_t n = ::write(2, text.data(), text.size());
    ::_exit(error.code() == Code::kNotFound ? 127 : 126);
  };
  if (auto ran = run_hooks("startContainer", plan.spec.hooks.start_container, plan.state); !ran) {
    give_up(ran.error());
  }
  ::umask(plan.spec.umask.value_or(0022));
  if (auto dropped = drop_privileges(plan.spec); !dropped) give_up(dropped.error());
  give_up(exec_program(*program, plan.spec.args, plan.spec.env));
  ::_exit(126);
}

}  // namespace gpuop::cluster
