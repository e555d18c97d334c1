// Private to the supervisor's .cc files: what it knows, and the steps that it takes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/inotify.h"
#include "cluster/fleet/control.h"
#include "cluster/fleet/forwarder.h"
#include "cluster/fleet/node_root.h"
#include "cluster/fleet/service.h"
#include "cluster/fleet/supervisor.h"

namespace gpuop::cluster {

inline constexpr int kApiPortOnNodes = 6443;

struct SimNode {
  FleetNode spec;
  std::size_t index = 0;
  std::string address;
  pid_t setup = 0;  // the process that builds its root
  Fd setup_report, setup_release;
  Handle setup_ready;
  NodeNamespaces spaces;
  bool is_up = false;
  bool kubelet_started = false;
  std::unique_ptr<Forwarder> api;
  // Power: `down` is called when the last process of a node that goes down is gone.
  int boots = 0;
  bool off = false, cut_off = false;
  std::function<void()> down;
  std::vector<ControlServer::Reply> waiting;  // for the node to be up
};

class FleetSupervisor {
 public:
  FleetSupervisor(Loop& loop, FleetOptions options) : loop_(loop), options_(std::move(options)) {}
  Result<> begin();
  bool failed() const { return status_.phase == FleetStatus::Phase::kFailed; }

 private:
  // supervisor_run.cc
  Result<> own_mounts();
  Result<> start_control_plane();
  Result<> use_cluster();
  Result<> set_up(SimNode& node);
  void set_up_ended(SimNode& node);
  Result<> node_is_there(SimNode& node);
  Result<> start_vgpus(SimNode& node);
  Result<> start_kubelet(SimNode& node);
  void api_is_there();
  void reap();
  void give_up(const Error& error);
  void publish();
  void publish_soon();
  // Starts the service, or gives the one that is held there a new launch.
  void run_service(const std::string& role, const std::string& node, Launch launch);
  Result<int> open_log(const std::string& name);
  std::vector<std::string> environment() const;
  void note_limits();

  // supervisor_events.cc
  void serve(const Json& request, ControlServer::Reply reply);
  Result<SimNode*> find_node(const std::string& name);
  void node_event(SimNode& node, const NodeEvent& event, ControlServer::Reply reply);
  void reboot(SimNode& node, ControlServer::Reply reply);
  void power_off(SimNode& node, std::function<void()> down);
  void go_on_going_down();
  void boot(SimNode& node, ControlServer::Reply reply);
  void restart(const std::string& role, SimNode& node, const ControlServer::Reply& reply);
  Result<> restart_runtime_whole(SimNode& node);
  Result<> connect_api(SimNode& node);
  Service* service(const std::string& role, const std::string& node);
  // Runs `work` in a process inside the node's mount namespace.
  Result<> inside(SimNode& node, const std::function<Result<>()>& work);

  Loop& loop_;
  FleetOptions options_;
  FleetStatus status_;
  std::string api_host_ = "127.0.0.1";
  int api_port_ = 0;
  Fd api_socket_;
  Fd kubeconfig_;  // in memory: it travels to kubelets as an open file
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<Service>> services_;
  std::vector<std::pair<std::string, Fd>> logs_;
  std::unique_ptr<DirWatch> watch_;
  std::unique_ptr<ControlServer> control_;
  Handle signals_;
  bool publishing_ = false;
};

}  // namespace gpuop::cluster
