#include "node/node_files.h"

#include <sys/mount.h>

#include <cerrno>

#include "base/json.h"
#include "base/process.h"
#include "cluster/fleet/node_root.h"

namespace gpuop::real {
namespace {

// The base of every container: containerd's own, and the node's kernel, which simulated nodes show to their
// containers in the same way (architecture: the runtime sets GPUOP_KERNEL_ROOT, the one thing that it adds).
constexpr const char* kBaseSpec = "/etc/containerd/base.json";

constexpr const char* kContainerdConfig = R"(version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/gpuop/pause:1"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "/etc/containerd/base.json"
)";

// Pods share the node's network, so this only satisfies the runtime, which wants to see a network.
constexpr const char* kNetwork = R"({"cniVersion":"0.4.0","name":"node","plugins":[{"type":"loopback"}]}
)";

Result<> bind(const fs::path& from, const fs::path& to) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return fail(errno_error("mount '" + from.string() + "' on '" + to.string() + "'", errno));
  return {};
}

// At their place, now that /sys is the node's. Private first, or what goes from one place would go from both.
Result<> show_cgroups() {
  TRY(make_dirs("/sys/fs/cgroup"));
  if (::mount(nullptr, kCgroups, nullptr, MS_PRIVATE | MS_REC, nullptr) != 0)
    return fail(errno_error("mount '/sys/fs/cgroup'", errno));
  TRY(bind(kCgroups, "/sys/fs/cgroup"));
  if (::umount2(kCgroups, MNT_DETACH) != 0) return fail(errno_error("mount '/sys/fs/cgroup'", errno));
  return {};
}

Result<> write_base_spec() {
  const ExitState made = TRY(run_command(Command{.argv = {"/usr/bin/ctr", "oci", "spec"}}, 20s));
  if (!made.ok()) return fail(Code::kUnknown, "ctr oci spec: " + made.err);
  Json spec = TRY(parse_json(made.out));
  Json* mounts = find_mutable(spec, {"mounts"});
  if (!mounts || !mounts->is_array()) return fail(Code::kInvalid, "ctr oci spec: no mounts in it");
  mounts->as_array().push_back(JsonObject{{"destination", cluster::kNodeKernelRoot},
                                          {"type", "bind"},
                                          {"source", cluster::kNodeKernelRoot},
                                          {"options", JsonArray{"rbind", "rw"}}});
  JsonArray env = get_array(spec, {"process", "env"});
  env.emplace_back(std::string("GPUOP_KERNEL_ROOT=") + cluster::kNodeKernelRoot);
  set(spec, {"process", "env"}, std::move(env));
  TRY(write_file_atomic(kBaseSpec, to_pretty_text(spec)));
  return {};
}

// Settings that a kubelet makes on the machine that it owns. This one does not own it: it finds them made, in
// files that lie over the kernel's.
Result<> show_settings() {
  const std::pair<const char*, const char*> settings[] = {{"vm/overcommit_memory", "1"},
                                                          {"vm/panic_on_oom", "0"},
                                                          {"kernel/panic", "10"},
                                                          {"kernel/panic_on_oops", "1"},
                                                          {"kernel/keys/root_maxkeys", "1000000"},
                                                          {"kernel/keys/root_maxbytes", "25000000"}};
  for (const auto& [name, value] : settings) {
    const fs::path setting = fs::path("/proc/sys") / name, file = fs::path("/run/gpuop-sysctl") / name;
    if (!file_exists(setting)) continue;
    TRY(make_dirs(file.parent_path()));
    TRY(write_file_atomic(file, std::string(value) + "\n"));
    TRY(bind(file, setting));
  }
  return {};
}

}  // namespace

Result<> prepare_node(const NodeOptions& options) {
  (void)options;
  TRY(make_dirs("/etc/cni/net.d"));
  TRY(write_file_atomic("/etc/cni/net.d/10-node.conflist", kNetwork));
  TRY(write_file_atomic("/etc/containerd/config.toml", kContainerdConfig));
  TRY(show_cgroups());
  TRY(show_settings());
  return write_base_spec();
}

}  // namespace gpuop::real
