#include "node/machine.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/inotify.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "cluster/fleet/fleet.h"
#include "cluster/fleet/forwarder.h"
#include "cluster/fleet/node_root.h"
#include "cluster/fleet/service.h"
#include "node/node_files.h"

namespace gpuop::real {
namespace {

constexpr int kApiPortOnNode = 6443;
constexpr const char* kContainerdSocket = "/run/containerd/containerd.sock";

const std::vector<std::string>& environment() {
  static const std::vector<std::string> kEnv{
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"};
  return kEnv;
}

Result<Fd> open_log(const NodeOptions& options, const std::string& program) {
  const fs::path path = fs::path(options.cluster) / "log" / (options.name + "-" + program + ".log");
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return fail(errno_error("open '" + path.string() + "'", errno));
  return fd;
}

// Files of the machine that the inner process needs open, since it cannot reach them by name.
struct Opened {
  Fd containerd_log, kubelet_log;
  Fd kubelet_socket;  // listens on the machine's loopback
  Fd report;          // the inner process says "+" or why not
};

class Inside {
 public:
  Inside(const NodeOptions& options, Opened& opened) : options_(options), opened_(opened) {}
  Result<> run();

 private:
  Result<> import_next();
  void start_kubelet();
  void reap();

  const NodeOptions& options_;
  Opened& opened_;
  Loop loop_;
  Handle signals_;
  std::unique_ptr<cluster::Forwarder> kubelet_way_;
  std::unique_ptr<cluster::Service> containerd_, kubelet_;
  std::unique_ptr<DirWatch> socket_there_;
  std::vector<std::string> archives_;
  Result<> failed_{};
  pid_t import_ = 0;
};

void Inside::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (containerd_ && containerd_->pid() == pid) containerd_->ended(status);
    if (kubelet_ && kubelet_->pid() == pid) kubelet_->ended(status);
    if (pid != import_) continue;
    import_ = 0;
    if (status != 0) {
      log::error("an image could not be imported", {{"archive", archives_.back()}});
      return loop_.stop();
    }
    archives_.pop_back();
    if (auto next = import_next(); !next) {
      failed_ = std::move(next);
      loop_.stop();
    }
  }
}

// One archive after the other, then the kubelet: pods find their images from its first moment.
Result<> Inside::import_next() {
  if (archives_.empty()) {
    start_kubelet();
    return {};
  }
  cluster::Launch launch;
  launch.argv = {
      "/usr/bin/ctr", "--address", kContainerdSocket, "--namespace",
      "k8s.io",       "images",    "import",          std::string(kImages) + "/" + archives_.back()};
  launch.env = environment();
  launch.output = opened_.containerd_log.get();
  import_ = TRY(cluster::spawn(launch));
  return {};
}

void Inside::start_kubelet() {
  cluster::Launch launch;
  launch.argv = {"/usr/bin/kubelet",
                 "--config",
                 std::string(kEtc) + "/kubelet.yaml",
                 "--kubeconfig",
                 std::string(kEtc) + "/kubelet.conf",
                 "--hostname-override",
                 options_.name,
                 "--cloud-provider",
                 "external",  // the node's address comes from whoever started it
                 "--cert-dir",
                 "/var/lib/kubelet/pki"};
  launch.env = environment();
  launch.output = opened_.kubelet_log.get();
  kubelet_ = std::make_unique<cluster::Service>(loop_, "kubelet", options_.name, std::move(launch), [] {});
  kubelet_->start();
}

Result<> Inside::run() {
  signals_ = on_signals(loop_, {SIGCHLD, SIGTERM, SIGINT}, [this](int signal) {
    if (signal == SIGCHLD) return reap();
    loop_.stop();
  });
  kubelet_way_ = TRY(cluster::Forwarder::create(loop_, std::move(opened_.kubelet_socket), "127.0.0.1",
                                                options_.kubelet_port));
  archives_ = TRY(list_dir(kImages));
  cluster::Launch launch;
  launch.argv = {"/usr/bin/containerd"};
  launch.env = environment();
  launch.output = opened_.containerd_log.get();
  containerd_ =
      std::make_unique<cluster::Service>(loop_, "containerd", options_.name, std::move(launch), [] {});
  containerd_->start();
  socket_there_ = TRY(DirWatch::create(loop_, fs::path(kContainerdSocket).parent_path(), [this] {
    if (import_ != 0 || kubelet_ || !file_exists(kContainerdSocket)) return;
    if (auto next = import_next(); !next) {
      failed_ = std::move(next);
      loop_.stop();
    }
  }));
  loop_.run();
  return failed_;
}

Result<> set_up(const NodeOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string text = TRY(read_file(options.fleet));
  cluster::Fleet fleet = TRY(cluster::parse_fleet(text, options.fleet.string()));
  if (fleet.nodes.empty())
    return fail(Code::kInvalid, "read '" + options.fleet.string() + "': holds no node");
  cluster::NodeRootOptions root;
  root.node = fleet.nodes.front();
  root.node.name = options.name;
  // The kubelet gives pods the CPUs that it finds: they must be there.
  root.node.cpus = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  root.node.numa_nodes = 1;
  root.seed = fleet.seed;
  root.address = options.address;
  root.image = options.image;
  root.tree = cluster::InstallTree::at(options.stage);
  root.folder = options.folder;
  root.layers = {options.tools};
  root.binds = {
      {options.folder / "etc", kEtc}, {options.folder / "images", kImages}, {"/sys/fs/cgroup", kCgroups}};
  root.binds.emplace_back("/dev/null",
                          "/dev/kmsg");  // the kubelet reads it, and the machine's is not this node's
  TRY(cluster::become_node(root));
  return prepare_node(options);
}

[[noreturn]] void be_inside(const NodeOptions& options, Opened& opened) {
  const auto done = set_up(options);
  const std::string text = done ? "+" : "-" + done.error().text();
  [[maybe_unused]] const ssize_t n = ::write(opened.report.get(), text.data(), text.size());
  opened.report.reset();
  if (!done) ::_exit(1);
  const auto ran = Inside(options, opened).run();
  if (!ran) log::error("node ends", {{"why", ran.error()}});
  ::_exit(ran ? 0 : 1);
}

Result<> outside(const NodeOptions& options, pid_t inner) {
  const std::string space = "/proc/" + std::to_string(inner) + "/ns/net";
  const Fd network(::open(space.c_str(), O_RDONLY | O_CLOEXEC));
  if (!network) return fail(errno_error("open '" + space + "'", errno));
  Fd plain = TRY(cluster::listen_in_namespace(network.get(), "127.0.0.1", kApiPortOnNode));
  Fd service = TRY(cluster::listen_in_namespace(network.get(), kServiceAddress, 443));
  Loop loop;
  const auto api = TRY(cluster::Forwarder::create(loop, std::move(plain), "127.0.0.1", options.api_port));
  const auto in_cluster =
      TRY(cluster::Forwarder::create(loop, std::move(service), "127.0.0.1", options.api_port));
  TRY(write_file_atomic(options.folder / "init.pid", std::to_string(inner) + "\n"));
  auto ended = TRY(on_process_exit(loop, inner, [&loop] { loop.stop(); }));
  auto signals = on_signals(loop, {SIGTERM, SIGINT}, [&loop](int) { loop.stop(); });
  loop.run();
  return {};
}

}  // namespace

Result<> run_node(const NodeOptions& options) {
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) return fail(errno_error("make a pipe", errno));
  Opened opened;
  opened.containerd_log = TRY(open_log(options, "containerd"));
  opened.kubelet_log = TRY(open_log(options, "kubelet"));
  opened.kubelet_socket = TRY(cluster::listen_here(options.address, options.kubelet_port));
  opened.report.reset(report[1]);
  Fd said(report[0]);
  clone_args clone{};
  clone.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWIPC;
  clone.exit_signal = SIGCHLD;
  const long pid = ::syscall(SYS_clone3, &clone, sizeof clone);
  if (pid < 0) return fail(errno_error("set up node '" + options.name + "'", errno));
  if (pid == 0) {
    said.reset();
    be_inside(options, opened);
  }
  opened = Opened{};
  const std::string answer = TRY(read_fd(said.get()));
  if (answer != "+")
    return fail(Code::kUnknown,
                answer.empty() ? "set up node '" + options.name + "': its process ended" : answer.substr(1));
  auto ran = outside(options, static_cast<pid_t>(pid));
  ::kill(static_cast<pid_t>(pid), SIGKILL);
  ::waitpid(static_cast<pid_t>(pid), nullptr, 0);
  return ran;
}

}  // namespace gpuop::real
