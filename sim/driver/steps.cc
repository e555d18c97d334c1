#include "sim/driver/steps.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "base/text.h"
#include "sim/node_tree.h"
#include "sim/state/contexts.h"
#include "sim/state/state.h"

namespace gpuop::sim::driver {

namespace {

constexpr const char* kDependents[] = {"nvidia_modeset", "nvidia_uvm", "nvidia_peermem"};

struct Daemon {
  const char* program;
  const char* argument;
  const char* pid_file;
};
constexpr Daemon kPersistenced = {"/usr/bin/nvidia-persistenced", "--persistence-mode",
                                  "/var/run/nvidia-persistenced/nvidia-persistenced.pid"};
constexpr Daemon kFabricManager = {"/usr/bin/nv-fabricmanager", "-c",
                                   "/var/run/nvidia-fabricmanager/nv-fabricmanager.pid"};

// Runs a program to its end; its output goes into the error. Without the event loop of the other rooms: this
// program is linked statically, into any root.
Result<> run(const std::vector<std::string>& argv, const std::vector<std::string>& env,
             const std::string& doing) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return fail(errno_error(doing, errno));
  Fd reader(out[0]), writer(out[1]);
  std::vector<char*> arguments, environment;
  for (const auto& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  for (const auto& e : env) environment.push_back(const_cast<char*>(e.c_str()));
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  pid_t child = ::fork();
  if (child < 0) return fail(errno_error(doing, errno));
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(writer.get(), 1);
    ::dup2(writer.get(), 2);
    ::execve(arguments[0], arguments.data(), environment.data());
    ::dprintf(2, "%s", std::strerror(errno));
    ::_exit(127);
  }
  writer.reset();
  std::string text;
  // A daemon that goes to the background closes these streams when it is ready.
  char buffer[1024];
  for (ssize_t n; (n = ::read(reader.get(), buffer, sizeof buffer)) != 0;) {
    if (n > 0)
      text.append(buffer, static_cast<std::size_t>(n));
    else if (errno != EINTR)
      break;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string why(trim(text));
  Code code = why.contains("in use") ? Code::kBusy : Code::kUnavailable;
  return fail(code, doing + ": " + (why.empty() ? "exit status " + std::to_string(status) : why));
}

std::vector<std::string> tool_environment(const Options& o) {
  return {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GPUOP_KERNEL_ROOT=" + o.kernel_root.string()};
}

Result<> modprobe(const Options& o, const std::string& module) {
  return run({(o.kernel_root / "sbin/modprobe").string(), module}, tool_environment(o),
             "modprobe '" + module + "'");
}

bool has_mellanox(const fs::path& kernel_root) {
  fs::path devices = kernel_root / "sys/bus/pci/devices";
  auto names = list_dir(devices);
  if (!names) return false;
  for (const auto& name : *names) {
    auto vendor = read_file(devices / name / "vendor");
    if (vendor && trim(*vendor) == "0x15b3") return true;
  }
  return false;
}

int refcount(const fs::path& kernel_root, const std::string& module) {
  auto text = read_file(kernel_root / "sys/module" / module / "refcnt");
  return text ? static_cast<int>(parse_int(trim(*text)).value_or(0)) : -1;
}

Result<> start(const Daemon& daemon, const std::string& value) {
  std::vector<std::string> argv = {daemon.program, daemon.argument};
  if (!value.empty()) argv.push_back(value);
  say("Starting " + fs::path(daemon.program).filename().string() + "...");
  return run(argv, {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "start '" + std::string(daemon.program) + "'");
}

Result<> stop(const Daemon& daemon) {
  auto text = read_file(daemon.pid_file);
  if (!text) return {};
  auto pid = static_cast<pid_t>(parse_int(trim(*text)).value_or(0));
  if (pid <= 1) return {};
  say("Stopping " + fs::path(daemon.program).filename().string() + "...");
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return {};  // gone already
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0);
  pollfd polled{process.get(), POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&polled, 1, 5000);
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return {};
  return fail(Code::kTimeout, "stop '" + std::string(daemon.program) + "': still runs after 5 s");
}

}  // namespace

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Result<> set_daemon_status(bool ready) {
  TRY(make_dirs(fs::path(kDaemonStatus).parent_path()));
  TRY(write_file_atomic(kDaemonStatus, ready ? "Ready" : "NotReady"));
  return {};
}

bool fast_path(const Options& o) {
  auto stored = read_file(kDigestFile);
  return !o.digest.empty() && file_exists(o.kernel_root / "sys/module/nvidia/refcnt") && stored &&
         trim(*stored) == o.digest;
}

Result<> write_module_options() {
  for (const char* module : {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-peermem"}) {
    std::string words = std::string(module) == "nvidia" ? "NVreg_CoherentGPUMemoryMode=driver" : "";
    if (auto text = read_file(fs::path("/drivers") / (std::string(module) + ".conf"))) {
      for (const auto& line : split(*text, '\n')) {
        if (!trim(line).empty()) words += (words.empty() ? "" : " ") + std::string(trim(line));
      }
    }
    if (words.empty()) continue;
    fs::path file = fs::path("/etc/modprobe.d") / (std::string(module) + ".conf");
    TRY(make_dirs(file.parent_path()));
    say("Writing module parameters to " + file.string());
    TRY(write_file_atomic(file, "options " + std::string(module) + " " + words + "\n"));
  }
  return {};
}

Result<> set_firmware_path(const Options& o) {
  if (auto text = read_file("/drivers/nvidia.conf")) {
    for (const auto& line : split(*text, '\n')) {
      if (trim(line) == "NVreg_EnableGpuFirmware=0") return {};
    }
  }
  fs::path file = o.kernel_root / "sys/module/firmware_class/parameters/path";
  auto now = read_file(file);
  std::string wanted = std::string(kRootFs) + "/lib/firmware";
  if (now && !trim(*now).empty() && trim(*now) != wanted) {
    say("WARNING: the firmware search path is already '" + std::string(trim(*now)) + "'; keeping it");
    return {};
  }
  say("Configuring the firmware search path: " + wanted);
  auto written = write_in_place(file, wanted);
  if (!written) say("WARNING: " + written.error().text());
  return {};
}

Result<> load_modules(const Options& o) {
  say("Loading ipmi and i2c_core kernel modules...");
  for (const char* module : {"i2c_core", "ipmi_msghandler", "ipmi_devintf"}) {
    auto loaded = modprobe(o, module);
    if (!loaded) say("WARNING: " + loaded.error().text());
  }
  say("Loading NVIDIA driver kernel modules...");
  for (const char* module : {"nvidia", "nvidia-uvm", "nvidia-modeset"}) TRY(modprobe(o, module));
  if (o.rdma && has_mellanox(o.kernel_root)) TRY(modprobe(o, "nvidia-peermem"));
  TRY_IN(make_device_nodes(o.kernel_root, "/dev"), "make device nodes");
  return {};
}

Result<> unload_modules(const Options& o) {
  say("Unloading NVIDIA driver kernel modules...");
  int loaded = 0;
  std::string holders;
  for (const char* module : kDependents) {
    int count = refcount(o.kernel_root, module);
    if (count < 0) continue;
    ++loaded;
    if (count > 0) holders += std::string(" ") + module + "(" + std::to_string(count) + ")";
  }
  int nvidia = refcount(o.kernel_root, "nvidia");
  if (nvidia > loaded) holders += " nvidia(" + std::to_string(nvidia - loaded) + ")";
  // Clients hold the modules; the count in the tree is that of modules only.
  StateFile hardware;
  if (hardware.open((o.kernel_root / "sim/state").string()) == StateFault::kNone) {
    std::set<pid_t> users;
    for (const Context& context : list_contexts(hardware.fd())) users.insert(context.pid);
    for (const pid_t client : list_clients(hardware.fd())) users.insert(client);
    for (const pid_t user : users) {
      holders += user != 0 ? " process " + std::to_string(user) : " a process of another namespace";
    }
  }
  if (!holders.empty()) {
    say("Could not unload NVIDIA driver kernel modules, driver is in use");
    return fail(Code::kBusy, "unload driver: in use by" + holders);
  }
  for (const char* module :
       {"nvidia_fs", "gdrdrv", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia"}) {
    if (!module_loaded(o.kernel_root, module)) continue;
    auto done = run({(o.kernel_root / "sbin/rmmod").string(), module}, tool_environment(o),
                    std::string("rmmod '") + module + "'");
    if (!done) {
      say("Could not unload NVIDIA driver kernel modules, driver is in use: " + done.error().text());
      return done;
    }
  }
  return {};
}

Result<> start_daemons(const Options& o) {
  TRY(start(kPersistenced, ""));
  // What persistenced asks the kernel for.
  StateFile hardware;
  if (hardware.open((o.kernel_root / "sim/state").string()) == StateFault::kNone) {
    hardware.update([](State& s) {
      for (std::uint32_t g = 0; g < s.gpu_count; ++g) s.gpus[g].live.persistence = 1;
      return 0;
    });
  }
  auto switches = list_dir(o.kernel_root / "proc/driver/nvidia-nvswitch/devices");
  if (switches && !switches->empty())
    TRY(start(kFabricManager, "/usr/share/nvidia/nvswitch/fabricmanager.cfg"));
  return {};
}

Result<> stop_daemons() {
  TRY(stop(kPersistenced));
  return stop(kFabricManager);
}

std::vector<fs::path> daemon_pid_files() {
  std::vector<fs::path> out;
  for (const char* file : {kPersistenced.pid_file, kFabricManager.pid_file}) {
    if (file_exists(file)) out.emplace_back(file);
  }
  return out;
}

Result<> mount_root() {
  say("Mounting NVIDIA driver rootfs...");
  // The root shows /sys itself, without what is mounted beneath it.
  for (unsigned long flags :
       {static_cast<unsigned long>(MS_UNBINDABLE | MS_REC), static_cast<unsigned long>(MS_PRIVATE)}) {
    if (::mount(nullptr, "/sys", nullptr, flags, nullptr) != 0 && errno != EINVAL) {
      return fail(errno_error("change propagation of '/sys'", errno));
    }
  }
  TRY(make_dirs(kRootFs));
  if (::mount("/", kRootFs, nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return fail(errno_error(std::string("mount driver root '") + kRootFs + "'", errno));
  }
  return {};
}

Result<> unmount_root() {
  // Lazily: whoever still has files open there keeps them. Mounts may be stacked.
  for (int i = 0; i < 64; ++i) {
    if (::umount2(kRootFs, MNT_DETACH) == 0) continue;
    if (errno == EINVAL || errno == ENOENT) return {};
    return fail(errno_error(std::string("unmount driver root '") + kRootFs + "'", errno));
  }
  return {};
}

}  // namespace gpuop::sim::driver
