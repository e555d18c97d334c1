#include "cluster/runtime/oci_build.h"

#include <algorithm>
#include <map>

#include "base/files.h"
#include "base/text.h"
#include "cdi/spec.h"

namespace gpuop::cluster {
namespace {

JsonArray strings(const std::vector<std::string>& texts) {
  JsonArray out;
  for (const std::string& text : texts) out.emplace_back(text);
  return out;
}

// Entries of `more` take the place of those of the same name.
void put_env(std::vector<std::string>& env, const std::vector<std::string>& more) {
  for (const std::string& entry : more) {
    std::string name = entry.substr(0, entry.find('=')) + "=";
    auto same =
        std::find_if(env.begin(), env.end(), [&](const std::string& have) { return have.starts_with(name); });
    if (same == env.end()) {
      env.push_back(entry);
    } else {
      *same = entry;
    }
  }
}

std::vector<std::string> arguments_of(const SpecInputs& in) {
  std::vector<std::string> args = in.container.command.empty() ? in.image.entrypoint : in.container.command;
  args.insert(args.end(), in.container.args.begin(), in.container.args.end());
  return args;
}

std::vector<std::string> environment_of(const SpecInputs& in) {
  std::vector<std::string> env{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               "HOSTNAME=" + in.sandbox.hostname};
  put_env(env, in.image.env);
  put_env(env, in.container.env);
  if (!in.kernel_root.empty()) put_env(env, {std::string("GPUOP_KERNEL_ROOT=") + kKernelRootInside});
  return env;
}

// containerd's default set, and everything for a privileged container (the launcher takes out what reaches
// the machine).
JsonObject capabilities_of(bool privileged) {
  static const std::vector<std::string> kDefault{
      "CAP_CHOWN",   "CAP_DAC_OVERRIDE", "CAP_FSETID",           "CAP_FOWNER",
      "CAP_MKNOD",   "CAP_NET_RAW",      "CAP_SETGID",           "CAP_SETUID",
      "CAP_SETFCAP", "CAP_SETPCAP",      "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT",
      "CAP_KILL",    "CAP_AUDIT_WRITE"};
  static const std::vector<std::string> kMore{"CAP_DAC_READ_SEARCH",
                                              "CAP_LINUX_IMMUTABLE",
                                              "CAP_NET_BROADCAST",
                                              "CAP_NET_ADMIN",
                                              "CAP_IPC_LOCK",
                                              "CAP_IPC_OWNER",
                                              "CAP_SYS_PTRACE",
                                              "CAP_SYS_PACCT",
                                              "CAP_SYS_ADMIN",
                                              "CAP_SYS_NICE",
                                              "CAP_SYS_RESOURCE",
                                              "CAP_SYS_TTY_CONFIG",
                                              "CAP_LEASE",
                                              "CAP_AUDIT_CONTROL",
                                              "CAP_MAC_OVERRIDE",
                                              "CAP_MAC_ADMIN",
                                              "CAP_SYSLOG",
                                              "CAP_WAKE_ALARM",
                                              "CAP_BLOCK_SUSPEND",
                                              "CAP_AUDIT_READ",
                                              "CAP_PERFMON",
                                              "CAP_BPF",
                                              "CAP_CHECKPOINT_RESTORE"};
  JsonArray names = strings(kDefault);
  if (privileged) {
    for (const std::string& name : kMore) names.emplace_back(name);
  }
  return {{"bounding", names}, {"effective", names}, {"permitted", names}};
}

Json mount_entry(std::string_view destination, std::string_view type, std::string_view source,
                 const std::vector<std::string>& options) {
  return JsonObject{
      {"destination", destination}, {"type", type}, {"source", source}, {"options", strings(options)}};
}

std::size_t depth_of(const Json& mount) {
  std::string path = fs::path(get_string(mount, {"destination"})).lexically_normal().string();
  return path == "/" ? 0 : static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

JsonArray default_mounts(const SpecInputs& in) {
  bool privileged = in.container.privileged;
  JsonArray mounts{
      mount_entry("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}),
      mount_entry("/dev", "tmpfs", "tmpfs", {"nosuid", "nodev", "strictatime", "mode=755", "size=65536k"}),
      mount_entry("/dev/pts", "devpts", "devpts",
                  {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}),
      mount_entry("/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"}),
      mount_entry("/dev/shm", "tmpfs", "shm", {"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"})};
  if (in.kernel_root.empty()) {
    mounts.push_back(mount_entry("/sys", "tmpfs", "tmpfs", {"nosuid", "noexec", "nodev", "ro"}));
    return mounts;
  }
  // The machine's own sysfs never shows: /sys is the node's.
  std::vector<std::string> access{"rbind", privileged ? "rw" : "ro"};
  mounts.push_back(mount_entry("/sys", "bind", in.kernel_root + "/sys", access));
  mounts.push_back(mount_entry(kKernelRootInside, "bind", in.kernel_root, access));
  if (in.kernel_osrelease) {
    mounts.push_back(mount_entry("/proc/sys/kernel/osrelease", "bind",
                                 in.kernel_root + "/proc/sys/kernel/osrelease", {"bind", "ro"}));
  }
  // One for all of a node, as a kernel has it. Read-only: on procfs no write changes what others read there.
  // Private: a hook's mount over a file of it is the container's own.
  if (in.kernel_drivers) {
    mounts.push_back(mount_entry("/proc/driver", "bind", in.kernel_root + "/proc/driver",
                                 {"bind", "rprivate", "nosuid", "noexec", "nodev", "ro"}));
  }
  return mounts;
}

Json volume_mount(const RuntimeMount& mount) {
  std::vector<std::string> options{"rbind"};
  switch (mount.propagation) {
    case Propagation::kPrivate:
      options.emplace_back("rprivate");
      break;
    case Propagation::kHostToContainer:
      options.emplace_back("rslave");
      break;
    case Propagation::kBidirectional:
      options.emplace_back("rshared");
      break;
  }
  options.emplace_back(mount.read_only ? "ro" : "rw");
  return mount_entry(mount.container_path, "bind", mount.host_path, options);
}

// Outer ones first, as containerd sorts them; the order is kept among equals.
JsonArray by_depth(JsonArray mounts) {
  std::multimap<std::size_t, Json> sorted;
  for (Json& mount : mounts) {
    std::size_t depth = depth_of(mount);
    sorted.emplace(depth, std::move(mount));
  }
  JsonArray out;
  for (auto& [depth, mount] : sorted) out.push_back(std::move(mount));
  return out;
}

JsonArray mounts_of(const SpecInputs& in) {
  JsonArray mounts = default_mounts(in);
  std::vector<RuntimeMount> volumes = in.container.mounts;
  if (!in.container.termination_log.empty() && !in.container.termination_message_path.empty()) {
    volumes.push_back(
        {in.container.termination_log, in.container.termination_message_path, false, Propagation::kPrivate});
  }
  for (const RuntimeMount& volume : volumes) {
    Json entry = volume_mount(volume);
    fs::path wanted = fs::path(volume.container_path).lexically_normal();
    // A volume takes the place of a default mount at the same path.
    auto same = std::find_if(mounts.begin(), mounts.end(), [&](const Json& mount) {
      return fs::path(get_string(mount, {"destination"})).lexically_normal() == wanted;
    });
    if (same != mounts.end()) mounts.erase(same);
    mounts.push_back(std::move(entry));
  }
  return by_depth(std::move(mounts));
}

std::string rootfs_propagation(const ContainerSpec& container) {
  std::string out;
  for (const RuntimeMount& mount : container.mounts) {
    if (mount.propagation == Propagation::kBidirectional) return "rshared";
    if (mount.propagation == Propagation::kHostToContainer) out = "rslave";
  }
  return out;
}

JsonArray namespaces_of(const SpecInputs& in) {
  JsonArray out{JsonObject{{"type", "mount"}}, JsonObject{{"type", "ipc"}}, JsonObject{{"type", "uts"}}};
  if (!in.pid_namespace.empty()) {
    out.push_back(JsonObject{{"type", "pid"}, {"path", in.pid_namespace}});
  } else if (!in.sandbox.host_pid) {
    out.push_back(JsonObject{{"type", "pid"}});
  }
  return out;
}

JsonObject annotations_of(const SpecInputs& in) {
  JsonObject out{{"io.kubernetes.cri.container-type", "container"},
                 {"io.kubernetes.cri.container-name", in.container.name},
                 {"io.kubernetes.cri.image-name", in.container.image},
                 {"io.kubernetes.cri.sandbox-id", in.sandbox.uid},
                 {"io.kubernetes.cri.sandbox-name", in.sandbox.name},
                 {"io.kubernetes.cri.sandbox-namespace", in.sandbox.ns},
                 {"io.kubernetes.cri.sandbox-uid", in.sandbox.uid}};
  for (const auto& [key, value] : in.sandbox.annotations) {
    if (annotation_passes(in.handler.pod_annotations, key)) out[key] = value;
  }
  for (const auto& [key, value] : in.container.annotations) {
    if (annotation_passes(in.handler.container_annotations, key)) out[key] = value;
  }
  return out;
}

JsonObject linux_of(const SpecInputs& in) {
  JsonArray devices, rules{JsonObject{{"allow", in.container.privileged}, {"access", "rwm"}}};
  for (const HostDevice& device : in.devices) {
    devices.push_back(JsonObject{{"path", device.path},
                                 {"type", "c"},
                                 {"major", device.major},
                                 {"minor", device.minor},
                                 {"fileMode", 0666}});
    rules.push_back(JsonObject{{"allow", true},
                               {"type", "c"},
                               {"major", device.major},
                               {"minor", device.minor},
                               {"access", device.permissions}});
  }
  JsonObject out{{"namespaces", namespaces_of(in)},
                 {"devices", std::move(devices)},
                 {"resources", JsonObject{{"devices", std::move(rules)}}}};
  if (std::string propagation = rootfs_propagation(in.container); !propagation.empty()) {
    out["rootfsPropagation"] = propagation;
  }
  // Where a real privileged container may write, a simulated one would write to the machine.
  out["maskedPaths"] = JsonArray{"/proc/kcore", "/proc/sysrq-trigger", "/proc/keys", "/proc/timer_list"};
  out["readonlyPaths"] = JsonArray{"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs"};
  return out;
}

}  // namespace

bool annotation_passes(const std::vector<std::string>& patterns, std::string_view key) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (pattern.ends_with('*'))
      return key.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
    return key == pattern;
  });
}

Result<std::vector<std::string>> requested_cdi_devices(const ContainerSpec& container) {
  std::vector<std::string> out;
  auto add = [&](const std::string& name) {
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  for (const std::string& name : container.cdi_devices) add(name);
  for (const auto& [key, value] : container.annotations) {
    if (!key.starts_with("cdi.k8s.io/")) continue;
    for (const std::string& name : split(value, ',')) {
      TRY_IN(cdi::parse_qualified_name(name), "failed to parse CDI device annotation '" + key + "'");
      add(name);
    }
  }
  return out;
}

Json build_oci_spec(const SpecInputs& in) {
  JsonObject process{{"terminal", false},
                     {"user", JsonObject{{"uid", in.container.run_as_user.value_or(0)}, {"gid", 0}}},
                     {"args", strings(arguments_of(in))},
                     {"env", strings(environment_of(in))},
                     {"cwd", in.container.working_dir.empty() ? "/" : in.container.working_dir},
                     {"capabilities", capabilities_of(in.container.privileged)}};
  return JsonObject{{"ociVersion", "1.2.0"},
                    {"process", std::move(process)},
                    {"root", JsonObject{{"path", "rootfs"}, {"readonly", in.container.read_only_rootfs}}},
                    {"hostname", in.sandbox.hostname},
                    {"mounts", mounts_of(in)},
                    {"annotations", annotations_of(in)},
                    {"linux", linux_of(in)}};
}

}  // namespace gpuop::cluster
