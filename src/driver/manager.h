// The driver manager, run before the driver container: clears the way for a driver, or says that the host has
// one (operands-driver-validator.md §7).
#pragma once

#include <filesystem>
#include <string>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "kube/events.h"

namespace gpuop::driver {

struct ManagerOptions {
  std::string node;
  std::string ns = "gpu-operator";
  bool drain_force = false;
  std::string drain_selector;
  Duration drain_timeout{0};  // 0: no limit
  bool drain_delete_empty_dir = false;
  bool auto_drain = true;
  bool gpu_pod_eviction = true;
  std::string eviction_label;  // a further label to pause
  bool rdma = false;
  bool host_mofed = false;
  bool force_reinstall = false;
  std::string config_digest;

  std::filesystem::path host_root = "/host";
  std::filesystem::path run = "/run/nvidia";
  std::filesystem::path mofed_ready = "/run/mellanox/drivers/.driver-ready";
  Duration pod_patience = 5min;     // for operand pods to end
  Duration removal_patience = 60s;  // for this pod to be taken away after it labelled its node
};

class DriverManager {
 public:
  DriverManager(Loop& loop, kube::Client& client, ManagerOptions options)
      : loop_(loop),
        client_(client),
        options_(std::move(options)),
        events_(client, "k8s-driver-manager", options_.node) {}

  // Everything of uninstall_driver, in its order. An error means exit status 1; "driver is pre-installed on
  // host" is one of them, after the node was labelled.
  Result<> uninstall();

 private:
  Result<Json> get_node();
  Result<> set_labels(const std::map<std::string, std::string>& labels);
  Result<> set_unschedulable(bool value);
  Result<std::vector<Json>> pods_here();
  Result<> host_driver_found(const std::string& version);
  Result<> prepare_unloaded();
  Result<> replace_loaded(const Json& node);
  Result<> wait_for_operands(const Json& node);
  Result<> drain(bool only_gpu_pods);
  Result<> evict(const Json& pod);
  Result<> unload();
  Result<> remove_leftovers();
  Result<> wait_for_mofed();
  Result<> finish(bool uncordon);
  Error give_up(Error error);
  bool same_configuration() const;
  void note(std::string_view type, std::string_view reason, const std::string& message);

  Loop& loop_;
  kube::Client& client_;
  ManagerOptions options_;
  kube::EventRecorder events_;
  Json node_;
  bool upgrade_policy_owns_ = false;  // the upgrade controller cordons and drains
};

}  // namespace gpuop::driver
