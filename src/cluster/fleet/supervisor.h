// A whole simulated fleet as one process tree: a supervisor that is the init of a PID namespace of its own,
// beneath it a control plane (unless another cluster's is used) and for every node a runtime and a kubelet.
// Whatever ends it, the kernel ends everything beneath with it (architecture §8).
//
// Everything lies in one folder:
//   STATE/kubeconfig        admin's, once the API server answers
//   STATE/status.json       what runs (FleetStatus)
//   STATE/supervisor.json   who it is
//   STATE/log/…             one file a program
//   STATE/nodes/…           the nodes' file systems; only seen from inside
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/loop.h"
#include "base/result.h"
#include "cluster/fleet/fleet.h"

namespace gpuop::cluster {

struct FleetOptions {
  Fleet fleet;
  fs::path state_dir;      // made; must not hold a fleet that runs
  fs::path install_tree;   // `out` of stage_install_tree
  fs::path program;        // gpuctl, whose hidden commands are the processes; empty: this program
  std::string image;       // the operator's image reference: what the install tree is the content of
  std::string kubeconfig;  // an existing cluster's; empty: a control plane of its own
  fs::path data_dir;       // the control plane keeps everything here across fleets; empty: nothing is kept
  bool keep = false;       // outlive the caller
  std::string faults;      // text of a faults file for a control plane of its own; may be empty
};

struct FleetService {
  std::string role;  // "control-plane", "runtime", "kubelet", "vgpus"
  std::string node;
  int pid = 0;  // in the fleet's PID namespace; 0: down at the moment
  int restarts = 0;
};

struct FleetStatus {
  enum class Phase { kStarting, kUp, kFailed } phase = Phase::kStarting;
  std::string error;               // why it failed
  std::vector<std::string> notes;  // what is plainly said: limits
  std::vector<FleetService> services;
};

class FleetProcess {
 public:
  // kPermission: root is needed; kBusy: a fleet runs in that folder. `changed` comes on the loop with each
  // new status, `ended` once when the supervisor is gone.
  static Result<std::unique_ptr<FleetProcess>> start(Loop& loop, FleetOptions options,
                                                     std::function<void(const FleetStatus&)> changed,
                                                     std::function<void()> ended);
  // Stops it and removes the folder, unless it is to be kept.
  ~FleetProcess();
  fs::path kubeconfig() const;
  pid_t pid() const;
  // Ends everything, waits, removes the folder (unless `leave_files`). Also a fleet that was to be kept.
  void stop(bool leave_files = false);
  struct Impl;

 private:
  explicit FleetProcess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

Result<FleetStatus> read_fleet_status(const fs::path& state_dir);
// For `gpuctl demo --stop`. kNotFound: nothing runs there.
Result<> stop_fleet(const fs::path& state_dir);

// Every process of a fleet, as the caller's PID namespace numbers them.
struct FleetProcessInfo {
  // "supervisor", "control-plane", "runtime", "kubelet", "vgpus", "shim", "pause" or "container"
  std::string role;
  std::string node;       // of a runtime, kubelet, shim or container
  std::string container;  // "NAMESPACE/POD/CONTAINER" of a shim and of what runs beneath it
  std::string program;    // file name of the program
  fs::path bundle;        // of a shim or container: its OCI bundle, as the caller reaches it
  pid_t pid = 0;
};
Result<std::vector<FleetProcessInfo>> list_fleet_processes(const fs::path& state_dir);

// The supervisor's own work: the body of a hidden command of gpuctl. Returns when told to end (SIGTERM,
// SIGINT).
int run_supervisor(const fs::path& state_dir);

}  // namespace gpuop::cluster
