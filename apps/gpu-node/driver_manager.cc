// driver-manager: flags and environment of operands-driver-validator.md §7.1.
#include <csignal>

#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/text.h"
#include "cli.h"
#include "driver/manager.h"
#include "kube/config.h"
#include "roles.h"

namespace gpuop {
namespace {

int uninstall(driver::ManagerOptions options, const std::string& kubeconfig) {
  Loop loop;
  Handle signals = on_signals(loop, {SIGHUP, SIGINT, SIGQUIT, SIGTERM}, [&](int number) {
    log::info("stopping", {{"signal", number}});
    loop.stop();
  });
  auto config = kube::find_config(kubeconfig);
  if (!config) {
    log::error(config.error().text());
    return 1;
  }
  auto client = kube::make_client(loop, *config);
  if (!client) {
    log::error(client.error().text());
    return 1;
  }
  driver::DriverManager manager(loop, **client, std::move(options));
  if (auto done = manager.uninstall(); !done) {
    log::error(done.error().text());
    return 1;
  }
  return 0;
}

}  // namespace

int driver_manager_main(int argc, char** argv) {
  driver::ManagerOptions options;
  std::string kubeconfig;
  std::string timeout = "0s";
  std::string command;
  CLI::App app("Clear the node for a driver container, or find that the host has a driver.");
  app.add_option("command", command, "uninstall_driver or preflight_check")->required();
  app.add_option("--node-name", options.node, "this node")->envname("NODE_NAME")->required();
  app.add_option("--drain-use-force", options.drain_force, "evict pods without a controller")
      ->envname("DRAIN_USE_FORCE");
  app.add_option("--drain-pod-selector-label", options.drain_selector, "label selector of a full drain")
      ->envname("DRAIN_POD_SELECTOR_LABEL");
  app.add_option("--drain-timeout-seconds", timeout, "limit of an eviction; 0s: none")
      ->envname("DRAIN_TIMEOUT_SECONDS");
  app.add_option("--drain-delete-emptydir-data", options.drain_delete_empty_dir,
                 "evict pods with emptyDir volumes")
      ->envname("DRAIN_DELETE_EMPTYDIR_DATA");
  app.add_option("--enable-auto-drain", options.auto_drain, "drain the node when GPU pods stay")
      ->envname("ENABLE_AUTO_DRAIN");
  app.add_option("--enable-gpu-pod-eviction", options.gpu_pod_eviction, "evict pods that use GPUs")
      ->envname("ENABLE_GPU_POD_EVICTION");
  app.add_option("--operator-namespace", options.ns, "namespace of the operands")
      ->envname("OPERATOR_NAMESPACE");
  app.add_option("--node-label-for-gpu-pod-eviction", options.eviction_label, "a further node label to pause")
      ->envname("NODE_LABEL_FOR_GPU_POD_EVICTION");
  app.add_option("--gpu-direct-rdma-enabled", options.rdma, "wait for the network driver")
      ->envname("GPU_DIRECT_RDMA_ENABLED");
  app.add_option("--use-host-mofed", options.host_mofed, "the network driver is the host's")
      ->envname("USE_HOST_MOFED");
  app.add_option("--kubeconfig", kubeconfig, "cluster access (default: the pod's own)")
      ->envname("KUBECONFIG");
  app.add_option("--force-reinstall", options.force_reinstall,
                 "replace a driver of the same configuration too")
      ->envname("FORCE_REINSTALL");
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("driver-manager");

  options.config_digest = env_or("DRIVER_CONFIG_DIGEST");
  // A bare number is seconds.
  auto limit = parse_int(timeout) ? parse_go_duration(timeout + "s") : parse_go_duration(timeout);
  if (!limit) {
    log::error("--drain-timeout-seconds: " + limit.error().text());
    return 1;
  }
  options.drain_timeout = *limit;
  if (command == "preflight_check") return 0;
  if (command != "uninstall_driver") {
    const std::vector<std::string> known = {"uninstall_driver", "preflight_check"};
    log::error("unknown command '" + command + "'" + did_you_mean(command, known));
    return 1;
  }
  return uninstall(std::move(options), kubeconfig);
}

}  // namespace gpuop
