// The processes of a simulated fleet that are not the control plane: its supervisor, and each node's runtime
// and kubelet. The supervisor starts them; nobody else does.
#include <signal.h>

#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "cli.h"
#include "cluster/fleet/node_root.h"
#include "cluster/fleet/supervisor.h"
#include "cluster/kubelet/kubelet.h"
#include "cluster/runtime/node_runtime.h"
#include "cluster/runtime/remote_runtime.h"
#include "cluster/runtime/runtime_server.h"
#include "commands.h"
#include "kube/config.h"

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
  log::info("runtime starts", {{"node", name}});
  Loop loop;
  NodeRuntimeOptions options;
  options.node_name = name;
  options.kernel_root = kNodeKernelRoot;
  options.images = images_of(config);
  auto runtime = TRY(NodeRuntime::create(loop, std::move(options)));
  auto server = TRY(RuntimeServer::create(loop, kRuntimeSocket, *runtime));
  // As containerd does: told to hang up it ends, and its supervisor starts it again with what the files now
  // say.
  auto signals = on_signals(loop, {SIGHUP, SIGTERM, SIGINT}, [&](int) { loop.stop(); });
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
  auto client = TRY(kube::make_client(loop, TRY(kube::load_kubeconfig({kubeconfig})), client_options));
  auto runtime = TRY(RemoteRuntime::create(loop, kRuntimeSocket));
  auto kubelet = TRY(Kubelet::create(loop, *client, *runtime, kubelet_options(config, api_port)));
  auto signals = on_signals(loop, {SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  kubelet->start();
  loop.run();
  kubelet->stop();
  return {};
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
