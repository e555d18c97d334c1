#include "cluster/fleet/node_root.h"

#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "cluster/runtime/engine_config.h"
#include "sim/node_tree.h"
#include "sim/power.h"

namespace gpuop::cluster {
namespace {

Result<> mount_on(const char* source, const fs::path& target, const char* type, unsigned long flags,
                  const char* data = nullptr) {
  if (::mount(source, target.c_str(), type, flags, data) != 0) {
    return fail(
        errno_error("mount '" + std::string(source ? source : "") + "' on '" + target.string() + "'", errno));
  }
  return {};
}

Result<> bind(const fs::path& source, const fs::path& target, bool read_only = false) {
  TRY(mount_on(source.c_str(), target, nullptr, MS_BIND | MS_REC));
  if (read_only) TRY(mount_on(nullptr, target, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY));
  return {};
}

Result<> make_dev(const fs::path& dev) {
  TRY(mount_on("dev", dev, "tmpfs", MS_NOSUID | MS_NODEV | MS_STRICTATIME, "mode=755,size=1m"));
  for (const char* name : {"null", "zero", "full", "random", "urandom", "tty"}) {
    TRY(write_file_atomic(dev / name, ""));
    TRY(bind(fs::path("/dev") / name, dev / name));
  }
  for (const char* dir : {"pts", "shm", "char"}) TRY(make_dirs(dev / dir));
  TRY(mount_on("devpts", dev / "pts", "devpts", MS_NOSUID | MS_NOEXEC,
               "newinstance,ptmxmode=0666,mode=0620,gid=5"));
  TRY(mount_on("shm", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"));
  const std::pair<const char*, const char*> links[] = {{"/proc/self/fd", "fd"},
                                                       {"/proc/self/fd/0", "stdin"},
                                                       {"/proc/self/fd/1", "stdout"},
                                                       {"/proc/self/fd/2", "stderr"},
                                                       {"pts/ptmx", "ptmx"}};
  for (const auto& [target, link] : links) TRY(make_symlink_atomic(target, dev / link));
  return {};
}

// The root with everything mounted beneath it that comes from outside.
Result<fs::path> mount_root(const NodeRootOptions& options) {
  fs::path root = options.folder / "root";
  const Engine engine = TRY(find_engine(options.node.runtime));
  for (const char* dir : {"root", "upper", "work", "containers"}) TRY(make_dirs(options.folder / dir));
  std::string lower;
  for (const fs::path& layer : options.layers) lower += layer.string() + ":";
  lower += options.tree.node_layer.string() + ":" + options.tree.image.string();
  std::string data = "lowerdir=" + lower + ",upperdir=" + (options.folder / "upper").string() +
                     ",workdir=" + (options.folder / "work").string();
  TRY(mount_on("node", root, "overlay", MS_NODEV, data.c_str()));
  std::string images(kNodeImages + 1);
  for (const std::string& dir :
       {images + "/image", images + "/driver", engine.state_dir.relative_path().string()}) {
    TRY(make_dirs(root / dir));
  }
  TRY(bind(options.tree.image, root / images / "image", true));
  TRY(bind(options.tree.driver_layer, root / images / "driver", true));
  // An overlay cannot be the upper layer of another: containers' layers lie on the tmpfs itself.
  TRY(bind(options.folder / "containers", root / engine.state_dir.relative_path()));
  TRY(mount_on("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  TRY(mount_on("run", root / "run", "tmpfs", MS_NOSUID | MS_NODEV,
               (std::string("mode=755,size=") + kRunSize).c_str()));
  TRY(make_dev(root / "dev"));
  for (const auto& [from, to] : options.binds) {
    const fs::path target = root / to.relative_path();
    TRY(make_dirs(fs::is_directory(from) ? target : target.parent_path()));
    if (!fs::is_directory(from)) TRY(write_file_atomic(target, ""));
    TRY(bind(from, target));
  }
  return root;
}

Result<> enter(const fs::path& root) {
  std::string doing = "enter node root '" + root.string() + "'";
  if (::chdir(root.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) {
    return fail(errno_error(doing, errno));
  }
  // As systemd has it on a real node: Bidirectional volumes need it.
  return mount_on(nullptr, "/", nullptr, MS_SHARED | MS_REC);
}

// What the engine's package installs, with the imports that its version brings. From then on the files are
// the administrator's.
Result<> install_engine(const NodeRootOptions& options) {
  const Engine engine = TRY(find_engine(options.node.runtime, options.node.runtime_version));
  TRY(make_dirs(engine.config.parent_path()));
  if (options.boots_again) return {};
  if (engine.name == "crio") {
    TRY(make_dirs("/etc/crio/crio.conf.d"));
    TRY(write_file_atomic("/etc/crio/crio.conf.d/10-crio.conf",
                          "[crio.runtime]\ndefault_runtime = \"runc\"\n\n[crio.runtime.runtimes.runc]\n"
                          "runtime_path = \"/usr/bin/runc\"\nruntime_type = \"oci\"\n"));
  } else if (engine.name == "containerd") {
    TRY(make_dirs("/etc/containerd/conf.d"));
    TRY(write_file_atomic(engine.config,
                          std::string("version = ") + (at_least(engine.version, 2, 0) ? "3" : "2") +
                              "\nroot = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\n"));
  }
  return {};
}

Result<> write_files(const NodeRootOptions& options) {
  const FleetNode& node = options.node;
  std::string machine_id =
      sha256_hex("machine " + std::to_string(options.seed) + " " + node.name).substr(0, 32);
  const std::pair<std::string, std::string> files[] = {
      {"/etc/hostname", node.name + "\n"},
      {"/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n" + options.address + " " + node.name + "\n"},
      {"/etc/os-release", TRY(sim::os_release_text(node.os_id, node.os_version))},
      {"/etc/machine-id", machine_id + "\n"},
      {kNodeConfig, to_text(Json(JsonObject{{"fleet", to_json(Fleet{options.seed, {node}})},
                                            {"address", options.address},
                                            // Tells fleets apart from outside: STATE/nodes/NAME.
                                            {"folder", options.folder.string()},
                                            {"image", options.image}}))}};
  for (const auto& [path, text] : files) {
    TRY(make_dirs(fs::path(path).parent_path()));
    TRY(write_file_atomic(path, text));
  }
  TRY(install_engine(options));
  for (const char* dir : {"/etc/cdi", "/var/run/cdi", "/var/lib/kubelet", "/var/log/pods", "/etc/kubernetes",
                          "/usr/local/nvidia", "/lib/modules"}) {
    TRY(make_dirs(dir));
  }
  return {};
}

Result<> build_kernel(const NodeRootOptions& options) {
  const FleetNode& node = options.node;
  sim::NodeHardware hardware;
  hardware.model = node.gpu_model;
  hardware.count = node.gpu_count;
  hardware.vgpu_host = node.vgpu_host;
  // Boards of different nodes are different boards.
  hardware.seed = fnv1a64(std::to_string(options.seed) + "/" + node.name);
  hardware.kernel_release = node.kernel;
  hardware.os_id = node.os_id;
  hardware.os_version = node.os_version;
  hardware.numa_nodes = node.numa_nodes;
  hardware.cpus = node.cpus;
  hardware.memory_mib = node.memory_mib;
  hardware.profiles = fs::path(kNodeSim) / "profiles";
  if (options.boots_again) TRY(sim::power_cycle(kNodeKernelRoot));
  TRY(sim::build_node_tree(hardware, kNodeKernelRoot));
  const fs::path random = fs::path(kNodeKernelRoot) / "proc/sys/kernel/random";
  TRY(make_dirs(random));
  TRY(write_file_atomic(random / "boot_id", random_uuid() + "\n", 0444));
  if (node.driver == DriverSource::kPreinstalled) {
    TRY(sim::preinstall_driver({node.driver_version, "/", kNodeKernelRoot, kNodeSim}));
    TRY(sim::make_device_nodes(kNodeKernelRoot, "/dev"));
  }
  return {};
}

// The kernel that shows through the usual paths is the node's, and the machine's own settings cannot be
// written.
Result<> show_kernel() {
  fs::path kernel(kNodeKernelRoot);
  TRY(bind("/proc/sys", "/proc/sys", true));
  for (const char* fact : {"proc/sys/kernel/osrelease", "proc/sys/kernel/random/boot_id"}) {
    if (file_exists(kernel / fact)) TRY(bind(kernel / fact, fs::path("/") / fact, true));
  }
  if (file_exists("/proc/driver")) TRY(bind(kernel / "proc/driver", "/proc/driver", true));
  if (file_exists(kernel / "sys")) TRY(bind(kernel / "sys", "/sys"));
  if (file_exists(kernel / "lib/modules")) TRY(bind(kernel / "lib/modules", "/lib/modules"));
  return {};
}

Result<> bring_loopback_up() {
  Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno_error("bring loopback up", errno));
  struct ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return fail(errno_error("bring loopback up", errno));
  return {};
}

Result<> keep_network_name() {
  fs::path name(kNodeNetwork);
  TRY(make_dirs(name.parent_path()));
  TRY(write_file_atomic(name, ""));
  return bind("/proc/self/ns/net", name);
}

}  // namespace

Result<> become_node(const NodeRootOptions& options) {
  std::string doing = "set up node '" + options.node.name + "'";
  auto done = [&]() -> Result<> {
    if (::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0) {
      return fail(errno_error("leave the machine's mounts", errno));
    }
    if (::sethostname(options.node.name.data(), options.node.name.size()) != 0) {
      return fail(errno_error("set host name", errno));
    }
    TRY(bring_loopback_up());
    TRY(enter(TRY(mount_root(options))));
    TRY(write_files(options));
    TRY(build_kernel(options));
    TRY(show_kernel());
    TRY(keep_network_name());
    return {};
  }();
  if (!done) return fail(std::move(done).error().in(doing));
  return {};
}

Result<NodeConfig> read_node_config(const fs::path& path) {
  std::string text = TRY(read_file(path));
  Json json = TRY_IN(parse_json(text), "read '" + path.string() + "'");
  const Json* fleet = find(json, {"fleet"});
  Fleet one = TRY_IN(fleet_from_json(fleet ? *fleet : Json()), "read '" + path.string() + "'");
  if (one.nodes.size() != 1) return fail(Code::kInvalid, "read '" + path.string() + "': must hold one node");
  return NodeConfig{one.nodes[0], str(get_string(json, {"address"})), str(get_string(json, {"image"}))};
}

}  // namespace gpuop::cluster
