// One hollow node: the real kubelet over a runtime that starts no process; programs (program.h) play what its
// containers would do on its machine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/faults/event_log.h"
#include "cluster/hollow/machine.h"
#include "cluster/hollow/program.h"
#include "cluster/kubelet/kubelet.h"
#include "cluster/kubelet/recording_runtime.h"
#include "cluster/runtime/images.h"
#include "kube/transport.h"

namespace gpuop::cluster {

struct HollowNodeOptions {
  FleetNode node;
  HollowHardware hardware;
  int index = 0;      // its address follows from it
  std::string image;  // the operator's own image reference
  const op::Assets* assets = nullptr;
  EventLog* log = nullptr;           // may be null
  std::function<void()> pull_began;  // of an image; may be null
};

class HollowNode {
 public:
  // `loop`, `transport` outlive the node. The loop may be real or virtual.
  HollowNode(Loop& loop, std::shared_ptr<kube::Transport> transport, HollowNodeOptions options);
  ~HollowNode();
  HollowNode(const HollowNode&) = delete;
  HollowNode& operator=(const HollowNode&) = delete;

  const std::string& name() const { return machine_.node().name; }
  HollowMachine& machine() { return machine_; }
  // --- faults
  void start_kubelet();
  void stop_kubelet();  // containers run on
  // Cut off from the API server: kubelet and operands reach nobody.
  void set_network(bool up);
  // Everything that runs is gone; start_kubelet() is the end of the boot. `kernel` empty: the same one.
  void power_off(const std::string& kernel);
  // Ends running containers whose name fits with 137. False when there is none.
  bool crash(const std::string& container);
  std::set<std::string> containers() const;  // names of those that run
  // What the programs in them know to be wrong with its GPUs.
  std::vector<std::string> gpu_faults() const;
  void set_pull_delay(Duration delay) { runtime_->pull_takes = delay; }
  void set_pull_fault(bool fails) { pull_fails_ = fails; }

 private:
  class Link;
  struct Running {
    std::string container;
    std::unique_ptr<Program> program;
  };

  // A probe that waits for files.
  struct Wait {
    std::string container;  // its id
    std::vector<std::string> files;
    std::vector<std::string> probe;  // of a driver, which waits for it; empty: the files are waited for
    Runtime::Done<ExitState> done;
    Handle deadline;
  };

  HollowNodeOptions options_;
  Loop& loop_;
  std::shared_ptr<Link> link_;
  HollowMachine machine_;
  ImageTable images_;
  std::unique_ptr<RecordingRuntime> runtime_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<Kubelet> kubelet_;
  HollowWorld world_;
  std::vector<std::shared_ptr<HollowOffer>> offers_;
  KeptCheckpoint device_checkpoint_ =
      std::make_shared<std::optional<DeviceCheckpoint>>();  // on the node's disk, so to say
  std::map<std::string, Running> running_;                  // by container id
  std::vector<std::unique_ptr<Program>>
      ended_;  // until the next turn: a program's own call may have ended it
  Handle wiring_;
  std::map<std::uint64_t, Wait> waits_;
  std::uint64_t next_wait_ = 1;
  Handle waited_;  // while somebody waits
  bool pull_fails_ = false;
  bool on_ = false;  // programs may run
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  KubeletOptions kubelet_options() const;
  RecordingRuntime::Play play(const ContainerSpec& spec);
  Result<std::unique_ptr<Program>> program_of(const ContainerSpec& spec, const std::string& id);
  void container_started(const ContainerSpec& spec, const ContainerInfo& info);
  void container_ended(const ContainerInfo& info);
  bool wait_for(const ContainerInfo& info, const std::vector<std::string>& argv, Duration limit,
                const Runtime::Done<ExitState>& done);
  void look_at_waits();
  void end_wait(std::uint64_t number, int code);
  std::string image_fault(const std::string& image, bool pull) const;
  const SandboxSpec* sandbox(const std::string& uid) const;
  void note(std::string_view verb, std::string_view object, std::string_view detail = {});
};

}  // namespace gpuop::cluster
