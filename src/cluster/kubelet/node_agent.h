// Registers the node, renews its Lease every 10 s and writes its status whenever that changes, at once; one
// write at a time, so that changes meanwhile travel together.
//
// It registers once, as a kubelet does: a Node that somebody deletes stays away until the kubelet is started
// anew, or until somebody creates it again.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "cluster/kubelet/context.h"
#include "cluster/kubelet/node_status.h"
#include "kube/informer.h"

namespace gpuop::cluster {

class NodeAgent {
 public:
  NodeAgent(KubeletContext& context, std::function<std::map<std::string, DeviceCounts>()> devices);
  ~NodeAgent();
  void start();
  void set_port(std::uint16_t port) { port_ = port; }
  // Before start(), of a node that was installed anew: extended resources that it shows are of the one
  // before, and 0 until a plugin registers.
  void reset_extended_resources() { reset_ = true; }
  void set_runtime_version(std::string version);
  void set_ready(bool ready, std::string message);
  // Device counts may have changed.
  void changed();

 private:
  NodeStatusFacts facts() const;
  void register_node();
  void registered(const Json& node);
  void fix_labels(const Json& node);
  void node_changed(const std::shared_ptr<const Json>& node);
  void note_reboot(const Json& node);
  Json self() const;
  void publish(bool heartbeat);
  void publish_soon();
  void renew();
  void lease_missing();
  void heartbeat();

  KubeletContext& context_;
  std::function<std::map<std::string, DeviceCounts>()> devices_;
  kube::Informer informer_;
  std::uint16_t port_ = 0;
  std::string runtime_version_;
  bool ready_ = true;
  bool rebooted_ = false;  // until the node has been told so
  bool reset_ = false;
  bool first_report_ = false;   // is still to be made
  std::set<std::string> gone_;  // extended resources that are still to be shown as 0
  std::string not_ready_message_;
  bool registered_ = false, present_ = false, writing_ = false, soon_ = false, announced_ = false;
  std::string uid_;
  Json observed_;
  std::int64_t observed_version_ = 0;
  Json last_patch_;  // an equal one is not sent again for a while, should a server store it otherwise
  Time last_patch_time_{};
  Backoff backoff_{std::chrono::milliseconds(200), std::chrono::seconds(7)};
  Backoff lease_backoff_{std::chrono::milliseconds(200), std::chrono::seconds(7)};
  Handle call_, timer_, lease_call_, lease_timer_, heartbeat_timer_, label_call_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace gpuop::cluster
