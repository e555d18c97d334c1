// The machine beneath a hollow node: hardware, kernel, and what operands leave on it. No files, no processes:
// facts that programs (program.h) change and wait for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "cluster/fleet/fleet.h"
#include "features/feature_set.h"
#include "labels/facts.h"
#include "plugin/facts.h"
#include "sim/profile.h"
#include "validate/gates.h"

namespace gpuop::cluster {

// The boards of a node, as its profile and the fleet's seed make them; shared by nothing.
struct HollowHardware {
  std::vector<sim::Board> boards;
  std::string product;  // of the machine: "DGXA100 …"
};
// `profiles`: folder of GPU profiles; `read`: those that were read already. kNotFound, kInvalid: no such
// model, or more boards than it has.
Result<HollowHardware> make_hardware(const FleetNode& node, std::uint64_t seed, const fs::path& profiles,
                                     std::map<std::string, sim::GpuProfile>& read);

class HollowMachine {
 public:
  HollowMachine(Loop& loop, FleetNode node, HollowHardware hardware);

  const FleetNode& node() const { return node_; }
  const std::string& kernel() const { return kernel_; }
  std::string boot_id() const;
  std::size_t gpus() const { return hardware_.boards.size(); }
  const std::string& uuid(std::size_t gpu) const { return uuids_.at(gpu); }

  // --- what operands and administrators do
  // The module that is loaded; "" for none.
  const std::string& driver() const { return driver_; }
  bool driver_is_host() const { return node_.driver == DriverSource::kPreinstalled; }
  void load_driver(const std::string& version);
  void unload_driver();
  // Gate files: names in /run/nvidia/validations.
  bool gate(const std::string& name) const { return gates_.contains(name); }
  void open_gate(const std::string& name);
  void remove_gates(std::string_view pattern);  // '*' as in a shell
  // Whose they are (validate/gates.h).
  const validate::GateOwner& gate_owner() const { return gate_owner_; }
  void decide_gates(const validate::GateDecision& decision);
  // The container toolkit has wired the runtime.
  bool toolkit() const { return toolkit_; }
  void wire_toolkit();
  // HTTP servers of containers that answer, by port.
  bool serves(int port) const { return ports_.contains(port); }
  void serve(int port, bool on);
  // Labels of a features file of ours (GPU feature discovery without NodeFeature objects).
  const std::map<std::string, std::string>& feature_files() const { return feature_files_; }
  void write_feature_file(std::map<std::string, std::string> labels);

  // --- faults
  void lose_gpu(std::size_t gpu, bool lost);
  bool lost(std::size_t gpu) const { return lost_.contains(gpu); }
  // The driver reports an XID for a GPU; who listens hears it.
  void xid(std::size_t gpu, int code);
  // Everything in memory and tmpfs is gone; the node's own driver comes with the boot.
  void reboot(const std::string& kernel);

  // Called on a later turn after anything changed, while the handle is held.
  Handle on_change(std::function<void()> changed);
  Handle on_xid(std::function<void(std::size_t gpu, int code)> xid);

  // --- facts, as the operands would observe them
  plugin::Facts plugin_facts() const;
  labels::Facts label_facts() const;
  features::FeatureSet features() const;

 private:
  void changed();
  hardware::Inventory inventory() const;
  std::vector<std::size_t> present() const;  // GPUs that answer

  Loop& loop_;
  FleetNode node_;
  HollowHardware hardware_;
  std::vector<std::string> uuids_;
  std::string kernel_;
  int boots_ = 1;
  std::string driver_;
  std::set<std::string> gates_;
  validate::GateOwner gate_owner_;
  bool toolkit_ = false;
  std::map<int, int> ports_;
  std::map<std::string, std::string> feature_files_;
  std::set<std::size_t> lost_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::function<void()>> listeners_;
  std::map<std::uint64_t, std::function<void(std::size_t, int)>> xid_listeners_;
  bool telling_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// As sim's kernel has it: CUDA comes with the driver's branch.
int cuda_version_of(std::string_view driver);

}  // namespace gpuop::cluster
