// The processes of a simulated fleet that are not the control plane: its supervisor, and each node's runtime
// and kubelet. The supervisor starts them; nobody else does.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"
#include "cli.h"
#include "cluster/fleet/node_root.h"
#include "cluster/fleet/supervisor.h"
#include "cluster/kubelet/kubelet.h"
#include "cluster/runtime/engine_config.h"
#include "cluster/runtime/node_runtime.h"
#include "cluster/runtime/remote_runtime.h"
#include "cluster/runtime/runtime_server.h"
#include "commands.h"
#include "kube/config.h"
#include "sim/vgpu_watch.h"

namespace gpuop {
namespace {

using namespace gpuop::cluster;

// What containers of a node are made from: see install_tree.h for the folders.
ImageTable images_of(const NodeConfig& config) {
  std::string base = std::string(kNodeImages) + "/image", driver = std::string(kNodeImages) + "/driver";
  ImageTable table;
  table.os_tag = config.node.os_tag();
  table.kernel = config.node.kernel;
  table.rows.push_back({.reference = config.image, .layers = {base}});
  table.rows.push_back(
      {.reference = "*/driver", .layers = {driver, base}, .entrypoint = {"nvidia-driver"}, .driver = true});
  return table;
}

Result<> serve_runtime(const std::string& name) {
  NodeConfig config = TRY(read_node_config());
  Engine engine = TRY(find_engine(config.node.runtime, config.node.runtime_version));
  engine.passes_cdi = engine.passes_cdi || config.node.cri_dockerd_cdi;
  log::info("runtime starts", {{"node", name}, {"engine", engine.name}});
  Loop loop;
  NodeRuntimeOptions options;
  options.node_name = name;
  options.kernel_root = kNodeKernelRoot;
  options.images = images_of(config);
  options.engine = engine;
  options.pulls = kNodePulls;
  auto runtime = TRY(NodeRuntime::create(loop, std::move(options)));
  auto server = TRY(RuntimeServer::create(loop, engine.socket, *runtime));
  // containerd ends when it is told to hang up, and its supervisor starts it again with what the files now
  // say; dockerd reads them in place.
  auto signals = on_signals(loop, {SIGHUP, SIGTERM, SIGINT}, [&](int signal) {
    if (signal != SIGHUP || !engine.reloads) return loop.stop();
    if (auto reloaded = runtime->reload(); !reloaded)
      log::error("cannot read the configuration again", {{"why", reloaded.error()}});
  });
  loop.run();
  return {};
}

KubeletOptions kubelet_options(const NodeConfig& config, int api_port) {
  const FleetNode& node = config.node;
  KubeletOptions options;
  options.node_name = node.name;
  options.labels = node.labels;
  if (!node.instance_type.empty()) options.labels["node.kubernetes.io/instance-type"] = node.instance_type;
  for (const FleetTaint& taint : node.taints) {
    options.taints.push_back(
        JsonObject{{"key", taint.key}, {"value", taint.value}, {"effect", taint.effect}});
  }
  options.facts = read_node_facts("/", node.name);
  options.facts.cpus = node.cpus;
  options.facts.memory_bytes = node.memory_mib << 20;
  options.netns_path = kNodeNetwork;
  options.topology_policy = parse_topology_policy(node.topology_policy).value_or(TopologyPolicy::kNone);
  options.numa_nodes = node.numa_nodes;
  if (auto engine = find_engine(node.runtime)) options.container_scheme = engine->scheme;
  options.node_ip = config.address;
  options.http_address = config.address;
  options.service_host = "127.0.0.1";
  options.service_port = std::to_string(api_port);
  return options;
}

Result<> serve_kubelet(const std::string& kubeconfig, int api_port) {
  NodeConfig config = TRY(read_node_config());
  Loop loop;
  kube::ClientOptions client_options;
  client_options.user_agent = "kubelet/" GPUOP_VERSION;
  client_options.field_manager = "kubelet";
  const kube::Config config_of_api = TRY(kube::load_kubeconfig({kubeconfig}));
  auto client = TRY(kube::make_client(loop, config_of_api, client_options));
  auto runtime = TRY(RemoteRuntime::create(loop, TRY(find_engine(config.node.runtime)).socket));
  KubeletOptions options = kubelet_options(config, api_port);
  options.client_ca = config_of_api.ca_pem;
  auto kubelet = TRY(Kubelet::create(loop, *client, *runtime, std::move(options)));
  auto signals = on_signals(loop, {SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  kubelet->start();
  loop.run();
  kubelet->stop();
  return {};
}

Result<> serve_vgpus() {
  Loop loop;
  auto watch = TRY(sim::VgpuWatch::create(loop, kNodeKernelRoot));
  auto signals = on_signals(loop, {SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  loop.run();
  return {};
}

// Who listens on a socket.
Result<pid_t> peer_pid(const fs::path& path) {
  const std::string doing = "ask who listens on '" + path.string() + "'";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return fail(errno_error(doing, errno));
  }
  if (peer.pid <= 0) return fail(Code::kUnavailable, doing + ": it is in another PID namespace");
  return peer.pid;
}

// systemctl of a node, for the unit of its container engine: `restart` and `try-restart` end it (its
// supervisor starts it again), `reload` hangs up, `is-active` asks.
Result<int> systemctl(const std::vector<std::string>& words) {
  NodeConfig config = TRY(read_node_config());
  const Engine engine = TRY(find_engine(config.node.runtime));
  std::vector<std::string> names;
  std::ranges::copy_if(words, std::back_inserter(names),
                       [](const auto& word) { return !word.starts_with('-'); });
  if (names.size() != 2) return fail(Code::kUnsupported, "a simulated node's systemctl takes VERB UNIT");
  const std::string unit = names[1].substr(0, names[1].rfind(".service"));
  if (unit != engine.unit) {
    if (names[0] == "is-active") std::puts("inactive");
    if (names[0] == "is-active") return 3;
    std::fprintf(stderr, "Failed to %s %s.service: Unit %s.service not found.\n", names[0].c_str(),
                 unit.c_str(), unit.c_str());
    return 5;
  }
  if (names[0] == "is-active") {
    std::puts("active");
    return 0;
  }
  const std::vector<std::string> verbs{"restart", "try-restart", "reload", "is-active"};
  if (std::ranges::find(verbs, names[0]) == verbs.end()) {
    return fail(Code::kUnsupported, "Unknown command verb " + names[0] + did_you_mean(names[0], verbs));
  }
  const pid_t pid = TRY(peer_pid(engine.socket));
  if (names[0] == "reload") return ::kill(pid, SIGHUP) == 0 ? 0 : 1;
  Loop loop;
  auto gone = TRY(on_process_exit(loop, pid, [&] { loop.stop(); }));
  ::kill(pid, SIGTERM);
  loop.run_until([] { return false; }, 10s);
  // A unit is active again when its service answers.
  Loop wait;
  auto runtime = TRY(RemoteRuntime::create(wait, engine.socket));
  wait.run_until([&] { return runtime->available(); }, 30s);
  return runtime->available() ? 0 : 1;
}

int end(const Result<>& how, const char* who) {
  if (how) return 0;
  std::fprintf(stderr, "gpuctl: %s: %s\n", who, how.error().text().c_str());
  return 1;
}

}  // namespace

int sim_supervisor_main(int argc, char** argv) {
  CLI::App app("The supervisor of a simulated fleet; started by gpuctl demo.");
  std::string state;
  app.add_option("--state", state)->required();
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("supervisor");
  return run_supervisor(state);
}

int sim_node_runtime_main(int argc, char** argv) {
  CLI::App app("The container runtime of a simulated node; started by its supervisor.");
  std::string node;
  app.add_option("--node", node)->required();
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("runtime");
  return end(serve_runtime(node), "runtime");
}

int sim_node_vgpus_main(int argc, char** argv) {
  CLI::App app("The vGPU manager's part of a simulated node's kernel; started by its supervisor.");
  std::string node;
  app.add_option("--node", node)->required();
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("vgpus");
  return end(serve_vgpus(), "vGPUs");
}

int sim_node_systemctl_main(int argc, char** argv) {
  log::setup("systemctl");
  const auto code = systemctl({argv + 1, argv + argc});
  if (code) return *code;
  std::fprintf(stderr, "%s\n", code.error().text().c_str());
  return 1;
}

int sim_node_kubelet_main(int argc, char** argv) {
  CLI::App app("The kubelet of a simulated node; started by its supervisor.");
  std::string node, kubeconfig;
  int api_port = 6443;
  app.add_option("--node", node)->required();
  app.add_option("--kubeconfig", kubeconfig)->required();
  app.add_option("--api-port", api_port);
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("kubelet");
  return end(serve_kubelet(kubeconfig, api_port), "kubelet");
}

}  // namespace gpuop
