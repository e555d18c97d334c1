// How a container comes to run: its root, its OCI configuration, CDI, the shim.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "cdi/registry.h"
#include "cluster/launcher/shim.h"
#include "cluster/launcher/state.h"
#include "cluster/runtime/node_runtime_impl.h"
#include "cluster/runtime/wire.h"

namespace gpuop::cluster {
namespace {

// A propagating volume needs a mount that propagates: what containerd checks, in its words.
Result<> check_propagation(const RuntimeMount& mount, const std::string& mountinfo) {
  std::error_code ignored;
  std::string path = fs::canonical(mount.host_path, ignored).string();
  std::string best, options;
  for (const std::string& line : split(mountinfo, '\n')) {
    std::vector<std::string> fields = split_fields(line);
    if (fields.size() < 7) continue;
    const std::string& point = fields[4];
    bool holds = point == "/" || path == point || path.starts_with(point + "/");
    if (!holds || point.size() < best.size()) continue;
    best = point;
    options.clear();
    for (std::size_t i = 6; i < fields.size() && fields[i] != "-"; ++i) options += fields[i] + " ";
  }
  bool shared = options.find("shared:") != std::string::npos;
  bool slave = options.find("master:") != std::string::npos;
  if (mount.propagation == Propagation::kBidirectional && !shared) {
    return fail(Code::kInvalid, "path \"" + mount.host_path + "\" is mounted on \"" + best +
                                    "\" but it is not a shared mount");
  }
  if (mount.propagation == Propagation::kHostToContainer && !shared && !slave) {
    return fail(Code::kInvalid, "path \"" + mount.host_path + "\" is mounted on \"" + best +
                                    "\" but it is not a shared or slave mount");
  }
  return {};
}

Result<> check_mounts(const ContainerSpec& spec) {
  std::string mountinfo;
  for (const RuntimeMount& mount : spec.mounts) {
    struct stat info{};
    // containerd makes a missing source; a kubelet has checked types before.
    if (::stat(mount.host_path.c_str(), &info) != 0) {
      TRY_IN(make_dirs(mount.host_path),
             "failed to generate container spec: failed to mkdir \"" + mount.host_path + "\"");
    }
    if (mount.propagation == Propagation::kPrivate) continue;
    if (mountinfo.empty()) mountinfo = TRY(read_file("/proc/self/mountinfo"));
    TRY_IN(check_propagation(mount, mountinfo), "failed to generate container spec");
  }
  return {};
}

Result<HostDevice> host_device(const RuntimeDevice& device) {
  struct stat info{};
  if (::stat(device.host_path.c_str(), &info) != 0) {
    return fail(errno_error(
        "failed to generate container spec: failed to stat device \"" + device.host_path + "\"", errno));
  }
  if (!S_ISCHR(info.st_mode) && !S_ISBLK(info.st_mode)) {
    return fail(Code::kInvalid,
                "failed to generate container spec: \"" + device.host_path + "\" is not a device");
  }
  return HostDevice{device.container_path.empty() ? device.host_path : device.container_path,
                    static_cast<std::int64_t>(major(info.st_rdev)),
                    static_cast<std::int64_t>(minor(info.st_rdev)),
                    device.permissions.empty() ? "rwm" : device.permissions};
}

// Every device node of the node, for a privileged container: what is not in each container anyway.
std::vector<HostDevice> all_host_devices() {
  static const std::vector<std::string> kEverywhere{"null",    "zero", "full",    "random",
                                                    "urandom", "tty",  "console", "ptmx"};
  std::vector<HostDevice> out;
  std::error_code error;
  fs::recursive_directory_iterator at("/dev", error), end;
  for (; !error && at != end; at.increment(error)) {
    std::string inner = at->path().lexically_relative("/dev").string();
    if (inner == "pts" || inner == "shm" || inner == "mqueue" || inner == "char") {
      at.disable_recursion_pending();
      continue;
    }
    struct stat info{};
    if (::lstat(at->path().c_str(), &info) != 0 || !S_ISCHR(info.st_mode)) continue;
    if (std::find(kEverywhere.begin(), kEverywhere.end(), inner) != kEverywhere.end()) continue;
    out.push_back({at->path().string(), static_cast<std::int64_t>(major(info.st_rdev)),
                   static_cast<std::int64_t>(minor(info.st_rdev)), "rwm"});
  }
  return out;
}

Result<std::vector<HostDevice>> devices_of(const ContainerSpec& spec, const RuntimeHandler& handler) {
  std::vector<HostDevice> out;
  if (spec.privileged && !handler.privileged_without_host_devices) out = all_host_devices();
  for (const RuntimeDevice& device : spec.devices) {
    HostDevice found = TRY(host_device(device));
    std::erase_if(out, [&](const HostDevice& other) { return other.path == found.path; });
    out.push_back(std::move(found));
  }
  return out;
}

Result<> inject_cdi(Json& oci, const ContainerSpec& spec, const EngineConfig& config,
                    const std::string& engine) {
  std::vector<std::string> names = TRY(requested_cdi_devices(spec));
  if (names.empty()) return {};
  if (!config.passes_cdi) {
    log::warn("this cri-dockerd passes no CDI devices on: the container starts without them",
              {{"container", spec.name}, {"devices", join(names, ", ")}});
    return {};
  }
  if (!config.enable_cdi && engine == "docker") {
    return fail(Code::kInvalid, "could not select device driver \"cdi\" with capabilities: []");
  }
  if (!config.enable_cdi) {
    return fail(Code::kInvalid,
                "CDI is disabled in the containerd configuration (enable_cdi = false); devices requested: " +
                    join(names, ", "));
  }
  std::vector<fs::path> dirs(config.cdi_dirs.begin(), config.cdi_dirs.end());
  cdi::Registry registry = cdi::Registry::load(dirs);
  auto injected = registry.inject(oci, names);
  if (injected) return {};
  std::string text = "failed to apply OCI options: CDI device injection failed: " + injected.error().text();
  for (const auto& [path, faults] : registry.errors()) {
    for (const std::string& fault : faults) text += "; '" + path + "': " + fault;
  }
  return fail(injected.error().code() == Code::kNotFound ? Code::kInvalid : injected.error().code(), text);
}

}  // namespace

Result<> NodeRuntime::Impl::mount_rootfs(const std::string& id, const Image& image) {
  fs::path rootfs = bundle_dir(id) / "rootfs";
  fs::path upper = overlay_dir(id) / "upper", work = overlay_dir(id) / "work";
  for (const fs::path& dir : {rootfs, upper, work}) TRY(make_dirs(dir));
  std::string data =
      "lowerdir=" + join(image.layers, ":") + ",upperdir=" + upper.string() + ",workdir=" + work.string();
  if (::mount("overlay", rootfs.c_str(), "overlay", MS_NODEV, data.c_str()) != 0) {
    return fail(errno_error(
        "failed to mount rootfs '" + rootfs.string() + "' from '" + join(image.layers, ":") + "'", errno));
  }
  return {};
}

Result<> NodeRuntime::Impl::prepare_bundle(const ContainerSpec& spec, const Sandbox& sandbox,
                                           const Image& image, const RuntimeHandler& handler,
                                           const std::string& id) {
  TRY(check_mounts(spec));
  SpecInputs inputs{sandbox.spec,
                    spec,
                    image,
                    handler,
                    id,
                    (bundle_dir(id) / "rootfs").string(),
                    options.kernel_root,
                    false,
                    "",
                    TRY(devices_of(spec, handler))};
  inputs.kernel_osrelease = !options.kernel_root.empty() &&
                            file_exists(fs::path(options.kernel_root) / "proc/sys/kernel/osrelease");
  inputs.kernel_drivers = !options.kernel_root.empty() && file_exists("/proc/driver") &&
                          file_exists(fs::path(options.kernel_root) / "proc/driver");
  if (sandbox.pause_pid > 0) inputs.pid_namespace = "/proc/" + std::to_string(sandbox.pause_pid) + "/ns/pid";
  Json oci = build_oci_spec(inputs);
  if (get_array(oci, {"process", "args"}).empty()) {
    return fail(Code::kInvalid, "failed to generate container spec: no command specified");
  }
  TRY_IN(inject_cdi(oci, spec, config, options.engine.name),
         "failed to generate container \"" + id + "\" spec");
  TRY(mount_rootfs(id, image));
  TRY(write_file_atomic(bundle_dir(id) / "config.json", to_text(oci)));
  return {};
}

// The program of a handler: empty for the node's own `runc`, which needs no program of its own to be started.
Result<std::string> NodeRuntime::Impl::runtime_binary(const RuntimeHandler& handler) const {
  const std::string& name = handler.binary_name;
  if (name.empty() || name == "runc" || name == options.launcher) return std::string();
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates = {name};
  } else {
    for (const char* dir :
         {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
      candidates.push_back(dir + name);
    }
  }
  for (const std::string& path : candidates) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return fail(Code::kNotFound,
              "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
              "unable to retrieve OCI runtime error: exec: \"" +
                  name + "\": " +
                  (candidates.size() == 1 ? "stat " + name + ": no such file or directory"
                                          : "executable file not found in $PATH"));
}

std::vector<std::string> NodeRuntime::Impl::program_environment() const {
  std::vector<std::string> env{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  if (!options.kernel_root.empty()) env.push_back("GPUOP_KERNEL_ROOT=" + options.kernel_root);
  return env;
}

Result<> NodeRuntime::Impl::launch(Container& container, const ContainerSpec& spec,
                                   const RuntimeHandler& handler) {
  const std::string& id = container.info.id;
  std::string binary = TRY(runtime_binary(handler));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error("make a pipe", errno));
  container.report.reset(ends[0]);
  Fd theirs(ends[1]);
  ::fcntl(container.report.get(), F_SETFL, O_NONBLOCK);
  constexpr int kReportFd = 3;
  Command command;
  command.argv = {options.launcher,
                  "shim",
                  "--root",
                  launcher_root(),
                  "--id",
                  id,
                  "--bundle",
                  bundle_dir(id),
                  "--runtime",
                  binary,
                  "--container-log",
                  spec.log_path,
                  "--exit-file",
                  exit_file(id),
                  "--report-fd",
                  std::to_string(kReportFd)};
  // For who looks at the process list; the shim itself does not care.
  std::string name = options.node_name;
  if (auto sandbox = sandboxes.find(spec.pod_uid); sandbox != sandboxes.end()) {
    name += "/" + sandbox->second.spec.ns + "/" + sandbox->second.spec.name + "/" + spec.name;
  }
  command.argv.insert(command.argv.end(), {"--name", name});
  command.env = program_environment();
  SpawnOptions spawn;
  spawn.pass_fds = {{theirs.get(), kReportFd}};
  auto weak = weak_from_this();
  container.shim = TRY(Child::spawn(loop, command, spawn, [weak, id](ExitState) {
    if (auto self = weak.lock()) self->shim_ended(id);
  }));
  container.shim_pid = container.shim->pid();
  container.shim_start = process_start_ticks(container.shim_pid);
  container.starting = true;
  save(container);
  container.report_ready = loop.on_readable(container.report.get(), [weak, id] {
    if (auto self = weak.lock()) self->read_report(id);
  });
  return {};
}

namespace {
std::uint64_t mount_namespace(int pid) {
  struct stat info{};
  return ::stat(("/proc/" + std::to_string(pid) + "/ns/mnt").c_str(), &info) == 0 ? info.st_ino : 0;
}
}  // namespace

// A container on the node's PID namespace has processes that its first one does not take along.
void NodeRuntime::Impl::kill_everything(const Container& container) {
  auto names = list_dir("/proc");
  if (container.mounts != 0 && container.mounts != mount_namespace(::getpid()) && names) {
    for (const std::string& name : *names) {
      auto pid = parse_int(name);
      if (pid && mount_namespace(static_cast<int>(*pid)) == container.mounts)
        ::kill(static_cast<pid_t>(*pid), SIGKILL);
    }
  }
  signal_init(container, SIGKILL);
}

void NodeRuntime::Impl::read_report(const std::string& id) {
  Container* container = find_container(id);
  if (!container) return;
  std::array<char, 4096> buffer{};
  ssize_t n = 0;
  while ((n = ::read(container->report.get(), buffer.data(), buffer.size())) > 0) {
    container->report_text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  container->report_ready.reset();
  container->report.reset();
  started(*container, std::exchange(container->report_text, {}));
}

void NodeRuntime::Impl::started(Container& container, const std::string& report) {
  auto json = parse_json(trim(report));
  container.starting = false;
  if (!json || !has(*json, {"pid"})) {
    std::string text =
        json ? str(get_string(*json, {"error"})) : "the container's shim ended before it was started";
    bool missing = json && get_bool(*json, {"notFound"});
    // What never ran is forgotten at once: the next attempt starts from nothing.
    std::string id = container.info.id;
    auto starters = std::move(container.starters);
    auto stoppers = std::move(container.stoppers);
    forget(container);
    for (auto& done : starters) done(fail(missing ? Code::kNotFound : Code::kUnknown, text));
    for (auto& done : stoppers) done();
    return;
  }
  container.info.pid = static_cast<int>(get_int(*json, {"pid"}));
  container.pid_start = process_start_ticks(container.info.pid);
  container.mounts = mount_namespace(container.info.pid);
  container.info.state = ContainerState::kRunning;
  container.info.started = loop.now();
  save(container);
  changed(container);
  finish_start(container, container.info.id);
}

void NodeRuntime::Impl::finish_start(Container& container, Result<std::string> how) {
  auto starters = std::move(container.starters);
  container.starters.clear();
  for (auto& done : starters) done(how);
}

void NodeRuntime::Impl::shim_ended(const std::string& id) {
  Container* container = find_container(id);
  if (!container) return;
  if (container->report_ready) read_report(id);
  container = find_container(id);  // a start that failed is forgotten
  if (!container || container->info.state == ContainerState::kExited) return;
  container->shim_exit.reset();
  container->kill_timer.reset();
  if (auto record = read_exit_file(exit_file(id))) {
    container->info.exit_code = record->code;
    container->info.signal = record->signal;
    container->info.finished = parse_time(record->finished).value_or(loop.now());
    container->info.reason = record->code == 0 ? "Completed" : "Error";
  } else {
    // The shim was killed: the container has lost its parent and its streams, and goes with it.
    kill_everything(*container);
    container->info.exit_code = 255;
    container->info.finished = loop.now();
    container->info.reason = "Unknown";
    container->info.message = "the container's shim ended without an exit status";
  }
  container->info.state = ContainerState::kExited;
  container->info.pid = 0;
  save(*container);
  ::umount2((bundle_dir(id) / "rootfs").c_str(), MNT_DETACH);
  auto stoppers = std::move(container->stoppers);
  changed(*container);
  for (auto& done : stoppers) done();
}

void NodeRuntime::Impl::clean_up(const std::string& id) {
  ::umount2((bundle_dir(id) / "rootfs").c_str(), MNT_DETACH);
  std::error_code ignored;
  fs::remove_all(bundle_dir(id), ignored);
  fs::remove_all(overlay_dir(id), ignored);
  fs::remove_all(launcher_root() / id, ignored);
  forget_file(container_file(id));
}

}  // namespace gpuop::cluster
