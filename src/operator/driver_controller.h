// The NVIDIADriver controller: gives GPU nodes their owner, and each resource its DaemonSets (operator.md
// §1.4). Driver upgrades are not its business.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "kube/client.h"
#include "operator/apply.h"
#include "operator/cache.h"
#include "operator/controller.h"
#include "operator/driver_pools.h"
#include "operator/facts.h"
#include "operator/status_writer.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {

class DriverController {
 public:
  DriverController(kube::Client& client, ClusterCache& cache, const ControllerOptions& options,
                   StatusWriter& status, kube::EventRecorder& events, std::function<void()> ask_for_pass);

  // Whether the kind is watched and its first list has come.
  bool synced() const;
  // What the next pass has to look at: a resource and its objects, the owners of a node, or everything.
  void touch(const std::string& driver) { touched_.insert(driver); }
  void touch_node(const std::string& node);
  void touch_all() { all_touched_ = true; }
  // Whether some resource selects the node as it is and did not as it was, or the other way round.
  bool selects_otherwise(const Json& old, const Json& now) const;
  // One pass: owner labels, then objects and status of the resources that were touched, or whose nodes
  // changed hands, one after the other. `active`: the active ClusterPolicy's spec; without one the resources
  // stand on their own. `done(false)`: something must be tried again, and stays touched.
  void pass(const std::optional<policy::ClusterPolicySpec>& active, const ServerFacts& server,
            std::function<void(bool ok)> done);
  // Name of each resource to whether its drivers are upgraded by themselves.
  std::map<std::string, bool> auto_upgrades() const;
  // The cache has seen a change of an object.
  void seen(const Json& object, bool gone) { applier_.seen(object, gone); }

 private:
  using Object = std::shared_ptr<const Json>;
  struct Pass;
  // The nodes with GPUs, and whose they are.
  struct Nodes {
    std::vector<DriverNode> all;
    DriverOwnership ownership;
  };

  std::vector<Object> live_drivers() const;
  const Result<policy::NvidiaDriver>& parsed(const Json& live) const;
  void touch_changed_hands(const DriverOwnership& ownership);
  std::vector<DriverNode> gpu_nodes() const;
  void label_nodes(const std::shared_ptr<Pass>& pass);
  void next(const std::shared_ptr<Pass>& pass);
  void end_if_through(const std::shared_ptr<Pass>& pass);
  void failed(Pass& pass);
  void look_again(const std::string& driver, Duration wait);
  void reconcile(const std::shared_ptr<Pass>& pass, const Object& live, const policy::NvidiaDriver& driver);
  ClusterFacts facts_for(const Pass& pass, const policy::NvidiaDriverSpec& spec) const;
  void keep_shared_script(State& state) const;
  void write_status(const Object& live, const Outcome& outcome, const std::vector<policy::Note>& notes,
                    std::vector<std::string> advice = {});

  kube::Client& client_;
  ClusterCache& cache_;
  const ControllerOptions& options_;
  StatusWriter& status_;
  Applier applier_;
  std::function<void()> ask_for_pass_;
  std::map<std::string, Handle> again_;  // resource to when it is looked at again without an event
  // As each resource was last read, until its version changes.
  struct Read {
    std::string version;
    Result<policy::NvidiaDriver> driver;
  };
  mutable std::map<std::string, Read> read_;
  std::set<std::string> touched_;
  bool all_touched_ = true;                     // nothing is known yet
  std::shared_ptr<const Nodes> nodes_;          // of the last pass; null: a node has changed since
  std::map<std::string, std::string> owners_;   // node to its owner, as of the last pass
  std::map<std::string, std::string> refused_;  // resource to why, as of the last pass
  std::string runtime_;                         // of the last pass
};

}  // namespace gpuop::op
