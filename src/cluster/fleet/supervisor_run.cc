// The supervisor's own process.
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
#include <cstdlib>
#include <map>

#include "base/log.h"
#include "base/text.h"
#include "cluster/fleet/fleet_files.h"
#include "cluster/fleet/supervisor_impl.h"
#include "kube/config.h"

namespace gpuop::cluster {

std::vector<std::string> FleetSupervisor::environment() const {
  std::vector<std::string> env{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               "HOME=/root"};
  // Sanitizers' and logging's own.
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "GPUOP_LOG_LEVEL"}) {
    if (const char* value = std::getenv(name)) env.push_back(std::string(name) + "=" + value);
  }
  return env;
}

Result<> FleetSupervisor::own_mounts() {
  if (::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0 ||
      ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return fail(errno_error("mount '/proc'", errno));
  }
  fs::path nodes = options_.state_dir / "nodes";
  if (::mount("nodes", nodes.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0) {
    return fail(errno_error("mount '" + nodes.string() + "'", errno));
  }
  return {};
}

// About sixteen instances a node with a dozen operands: said before something fails in the middle.
void FleetSupervisor::note_limits() {
  constexpr std::int64_t kEach = 16;
  auto limit = read_file("/proc/sys/fs/inotify/max_user_instances");
  std::int64_t have = limit ? parse_int(trim(*limit)).value_or(0) : 0;
  std::int64_t need = kEach * static_cast<std::int64_t>(options_.fleet.nodes.size());
  if (have == 0 || need <= have) return;
  status_.notes.push_back("fs.inotify.max_user_instances is " + std::to_string(have) + ", enough for about " +
                          std::to_string(have / kEach) + " nodes with processes; raise it with 'sysctl -w " +
                          "fs.inotify.max_user_instances=" + std::to_string(need * 2) + "'");
}

Result<int> FleetSupervisor::open_log(const std::string& name) {
  for (const auto& [known, fd] : logs_) {
    if (known == name) return fd.get();
  }
  fs::path path = options_.state_dir / "log" / (name + ".log");
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return fail(errno_error("open '" + path.string() + "'", errno));
  logs_.emplace_back(name, std::move(fd));
  return logs_.back().second.get();
}

void FleetSupervisor::run_service(const std::string& role, const std::string& node, Launch launch) {
  if (Service* known = service(role, node)) return known->release(std::move(launch));
  services_.push_back(
      std::make_unique<Service>(loop_, role, node, std::move(launch), [this] { publish_soon(); }));
  services_.back()->start();
}

Result<> FleetSupervisor::begin() {
  TRY(own_mounts());
  note_limits();
  signals_ = on_signals(loop_, {SIGCHLD, SIGTERM, SIGINT}, [this](int signal) {
    if (signal == SIGCHLD) return reap();
    loop_.stop();
  });
  TRY(options_.kubeconfig.empty() ? start_control_plane() : use_cluster());
  std::size_t index = 0;
  for (const FleetNode& spec : options_.fleet.nodes) {
    nodes_.push_back(std::make_unique<SimNode>());
    nodes_.back()->spec = spec;
    nodes_.back()->index = index++;
    TRY(set_up(*nodes_.back()));
  }
  control_ = TRY(ControlServer::create(
      loop_, options_.state_dir,
      [this](const Json& request, ControlServer::Reply reply) { serve(request, std::move(reply)); }));
  watch_ = TRY(DirWatch::create(loop_, options_.state_dir, [this] { api_is_there(); }));
  publish();
  return {};
}

Result<> FleetSupervisor::start_control_plane() {
  // The socket is ours: a control plane that comes back is found where the last one was.
  // One that keeps its data keeps its port, so that kubeconfigs stay good.
  std::int64_t port = 0;
  if (!options_.data_dir.empty())
    if (auto kept = read_file(options_.data_dir / "port")) port = parse_int(trim(*kept)).value_or(0);
  auto socket = listen_here("127.0.0.1", static_cast<int>(port));
  if (!socket && port != 0) {
    return fail(Error(socket.error().code(), socket.error().text() + " (the port that kubeconfigs for '" +
                                                 options_.data_dir.string() + "' name)"));
  }
  api_socket_ = TRY(std::move(socket));
  api_port_ = TRY(port_of(api_socket_.get()));
  Launch launch{
      .argv = {options_.program, "sim-control-plane", "--state", options_.state_dir, "--listen-fd", "3"},
      .env = environment(),
      .output = TRY(open_log("control-plane")),
      .files = {{api_socket_.get(), 3}}};
  if (!options_.data_dir.empty()) {
    launch.argv.emplace_back("--data-dir");
    launch.argv.push_back(options_.data_dir);
  }
  if (!options_.faults.empty()) {
    const fs::path file = options_.state_dir / "faults.yaml";
    TRY(put_file(file, options_.faults));
    launch.argv.insert(launch.argv.end(), {"--faults", file});
  }
  run_service("control-plane", "", std::move(launch));
  return {};
}

namespace {

// host and port of "https://HOST:PORT".
Result<std::pair<std::string, int>> host_and_port(const std::string& server) {
  std::size_t at = server.find("://");
  std::string rest = at == std::string::npos ? server : server.substr(at + 3);
  rest = rest.substr(0, rest.find('/'));
  bool v6 = rest.starts_with('[');
  std::size_t close = v6 ? rest.find(']') : 0, colon = rest.find(':', close);
  std::string host = rest.substr(v6 ? 1 : 0, (v6 ? close : colon) - (v6 ? 1 : 0));
  int port =
      colon == std::string::npos ? 443 : static_cast<int>(parse_int(rest.substr(colon + 1)).value_or(0));
  if (host.empty() || port <= 0)
    return fail(Code::kInvalid, "use cluster '" + server + "': no host and port");
  return std::pair{host, port};
}

// A kubeconfig that stands alone: what it referred to by path is not there on a node. JSON is YAML too.
Result<std::string> stand_alone(const kube::Config& config) {
  std::string doing = "use cluster '" + config.server + "'";
  if (config.exec.is_object()) {
    return fail(Code::kUnsupported,
                doing +
                    ": its credentials come from a program, which nodes do not have; use a "
                    "certificate or a token");
  }
  auto pem = [](const std::string& text, const std::string& file) -> Result<std::string> {
    if (text.empty() && !file.empty()) return read_file(file);
    return text;
  };
  JsonObject cluster{{"server", config.server}}, user;
  if (std::string ca = TRY_IN(pem(config.ca_pem, config.ca_file), doing); !ca.empty()) {
    cluster["certificate-authority-data"] = base64_encode(ca);
  }
  if (config.insecure) cluster["insecure-skip-tls-verify"] = true;
  if (!config.tls_server_name.empty()) cluster["tls-server-name"] = config.tls_server_name;
  std::string certificate = TRY_IN(pem(config.client_cert_pem, config.client_cert_file), doing);
  std::string key = TRY_IN(pem(config.client_key_pem, config.client_key_file), doing);
  if (!certificate.empty()) user["client-certificate-data"] = base64_encode(certificate);
  if (!key.empty()) user["client-key-data"] = base64_encode(key);
  if (std::string token = TRY_IN(pem(config.token, config.token_file), doing); !token.empty()) {
    user["token"] = std::string(trim(token));
  }
  JsonObject out{
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", "fleet"},
      {"clusters", JsonArray{JsonObject{{"name", "fleet"}, {"cluster", std::move(cluster)}}}},
      {"users", JsonArray{JsonObject{{"name", "fleet"}, {"user", std::move(user)}}}},
      {"contexts", JsonArray{JsonObject{{"name", "fleet"},
                                        {"context", JsonObject{{"cluster", "fleet"}, {"user", "fleet"}}}}}}};
  return to_pretty_text(Json(std::move(out)));
}

}  // namespace

Result<> FleetSupervisor::use_cluster() {
  kube::Config config = TRY(kube::load_kubeconfig({options_.kubeconfig}));
  auto [host, port] = TRY(host_and_port(config.server));
  api_host_ = host;
  api_port_ = port;
  return put_file(options_.state_dir / "kubeconfig", TRY(stand_alone(config)), 0600);
}

Result<> FleetSupervisor::set_up(SimNode& node) {
  // All of 127/8 is loopback: an address that means the node inside its namespace, and its kubelet outside.
  node.address = "127.0." + std::to_string(1 + node.index / 250) + "." + std::to_string(1 + node.index % 250);
  std::array<int, 2> report{}, release{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0 || ::pipe2(release.data(), O_CLOEXEC) != 0) {
    return fail(errno_error("make a pipe", errno));
  }
  node.setup_report.reset(report[0]);
  node.setup_release.reset(release[1]);
  Fd their_report(report[1]), their_release(release[0]);
  NodeRootOptions root{node.spec,
                       options_.fleet.seed,
                       node.address,
                       options_.image,
                       InstallTree::at(options_.install_tree),
                       options_.state_dir / "nodes" / node.spec.name,
                       node.boots++ > 0};
  clone_args clone{};
  clone.flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET;
  clone.exit_signal = SIGCHLD;
  long pid = ::syscall(SYS_clone3, &clone, sizeof clone);
  if (pid < 0) return fail(errno_error("set up node '" + node.spec.name + "'", errno));
  if (pid == 0) {
    node.setup_release.reset();
    auto done = become_node(root);
    std::string text = done ? "+" : "-" + done.error().text();
    [[maybe_unused]] ssize_t n = ::write(their_report.get(), text.data(), text.size());
    // The namespaces live through us until the supervisor has opened them.
    char byte = 0;
    n = ::read(their_release.get(), &byte, 1);
    ::_exit(0);
  }
  node.setup = static_cast<pid_t>(pid);
  node.setup_ready = loop_.on_readable(node.setup_report.get(), [this, &node] { set_up_ended(node); });
  return {};
}

void FleetSupervisor::set_up_ended(SimNode& node) {
  node.setup_ready.reset();
  std::array<char, 4096> buffer{};
  ssize_t n = ::read(node.setup_report.get(), buffer.data(), buffer.size());
  auto there = [&]() -> Result<> {
    if (n <= 0) return fail(Code::kUnknown, "set up node '" + node.spec.name + "': its process ended");
    if (buffer[0] != '+')
      return fail(Code::kUnknown, std::string(buffer.data() + 1, static_cast<std::size_t>(n) - 1));
    return node_is_there(node);
  }();
  node.setup_release.reset();
  node.setup_report.reset();
  if (!there) {
    if (status_.phase == FleetStatus::Phase::kStarting) return give_up(there.error());
    log::error("node does not boot", {{"node", node.spec.name}, {"why", there.error()}});
    node.off = true;
    for (auto& reply : std::exchange(node.waiting, {})) reply(fail(there.error()));
    return;
  }
  api_is_there();
}

Result<> FleetSupervisor::node_is_there(SimNode& node) {
  std::string spaces = "/proc/" + std::to_string(node.setup) + "/ns/";
  const std::pair<Fd*, const char*> wanted[] = {
      {&node.spaces.mount, "mnt"}, {&node.spaces.uts, "uts"}, {&node.spaces.network, "net"}};
  for (const auto& [fd, name] : wanted) {
    fd->reset(::open((spaces + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!*fd) return fail(errno_error("keep namespaces of node '" + node.spec.name + "'", errno));
  }
  TRY(connect_api(node));
  node.is_up = true;
  Launch launch{.argv = {"/usr/bin/gpuctl", "sim-node-runtime", "--node", node.spec.name},
                .env = environment(),
                .mount = node.spaces.mount.get(),
                .uts = node.spaces.uts.get(),
                .network = node.spaces.network.get(),
                .output = TRY(open_log(node.spec.name + "-runtime"))};
  run_service("runtime", node.spec.name, std::move(launch));
  return node.spec.vgpu_host ? start_vgpus(node) : Result<>();
}

// Writes to a node's /sys are files' here: somebody has to be the driver that they reach.
Result<> FleetSupervisor::start_vgpus(SimNode& node) {
  Launch launch{.argv = {"/usr/bin/gpuctl", "sim-node-vgpus", "--node", node.spec.name},
                .env = environment(),
                .mount = node.spaces.mount.get(),
                .uts = node.spaces.uts.get(),
                .network = node.spaces.network.get(),
                .output = TRY(open_log(node.spec.name + "-vgpus"))};
  run_service("vgpus", node.spec.name, std::move(launch));
  return {};
}

// A kubelet stands outside its node's network, where the API server reaches it; its probes go inside.
Result<> FleetSupervisor::start_kubelet(SimNode& node) {
  Launch launch{.argv = {"/usr/bin/gpuctl", "sim-node-kubelet", "--node", node.spec.name, "--kubeconfig",
                         "/proc/self/fd/3", "--api-port", std::to_string(kApiPortOnNodes)},
                .env = environment(),
                .mount = node.spaces.mount.get(),
                .uts = node.spaces.uts.get(),
                .output = TRY(open_log(node.spec.name + "-kubelet")),
                .files = {{kubeconfig_.get(), 3}}};
  run_service("kubelet", node.spec.name, std::move(launch));
  node.kubelet_started = true;
  return {};
}

void FleetSupervisor::api_is_there() {
  if (failed()) return;
  if (!kubeconfig_) {
    auto text = read_file(options_.state_dir / "kubeconfig");
    if (!text) return;
    Fd memory(static_cast<int>(::syscall(SYS_memfd_create, "kubeconfig", 1u /* MFD_CLOEXEC */)));
    if (!memory ||
        ::pwrite(memory.get(), text->data(), text->size(), 0) != static_cast<ssize_t>(text->size())) {
      return give_up(errno_error("hand kubelets the kubeconfig", errno));
    }
    kubeconfig_ = std::move(memory);
  }
  bool all = true;
  for (auto& node : nodes_) {
    if (node->is_up && !node->kubelet_started) {
      if (auto started = start_kubelet(*node); !started) return give_up(started.error());
    }
    all = all && node->kubelet_started;
    if (!node->kubelet_started) continue;
    for (auto& reply : std::exchange(node->waiting, {})) reply(Json());
  }
  if (all && status_.phase == FleetStatus::Phase::kStarting) {
    status_.phase = FleetStatus::Phase::kUp;
    publish();
  }
}

void FleetSupervisor::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    for (auto& service : services_) {
      if (service->pid() == pid) service->ended(status);
    }
  }
  go_on_going_down();
}

void FleetSupervisor::give_up(const Error& error) {
  log::error("fleet failed", {{"why", error}});
  status_.phase = FleetStatus::Phase::kFailed;
  status_.error = error.text();
  publish();
  loop_.stop();
}

void FleetSupervisor::publish() {
  status_.services.clear();
  for (const auto& service : services_) {
    status_.services.push_back({service->role(), service->node(), service->pid(), service->restarts()});
  }
  if (auto put = put_file(options_.state_dir / "status.json", to_text(to_json(status_))); !put) {
    log::error("publish status", {{"why", put.error()}});
  }
}

void FleetSupervisor::publish_soon() {
  if (publishing_) return;
  publishing_ = true;
  loop_.post([this] {
    publishing_ = false;
    publish();
  });
}

namespace {

Result<bool> supervise(const fs::path& state_dir) {
  std::string text = TRY(read_file(state_dir / "fleet.json"));
  FleetOptions options = TRY(fleet_options_from_json(TRY_IN(parse_json(text), "read fleet")));
  Loop loop;
  FleetSupervisor supervisor(loop, std::move(options));
  TRY(supervisor.begin());
  loop.run();
  return !supervisor.failed();
}

}  // namespace

int run_supervisor(const fs::path& state_dir) {
  auto done = supervise(state_dir);
  if (!done) {
    log::error("supervisor ends", {{"why", done.error()}});
    FleetStatus status;
    status.phase = FleetStatus::Phase::kFailed;
    status.error = done.error().text();
    if (const auto told = put_file(state_dir / "status.json", to_text(to_json(status))); !told)
      log::error("the fleet's state was not written", {{"why", told.error()}});
    return 1;
  }
  return *done ? 0 : 1;
}

}  // namespace gpuop::cluster
