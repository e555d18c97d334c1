// The NVIDIADriver controller: gives GPU nodes their owner, and each resource its DaemonSets (operator.md
// §1.4). Driver upgrades are not its business.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
                   StatusWriter& status);

  // Whether the kind is watched and its first list has come.
  bool synced() const;
  // One pass over every resource: owner labels, then objects and status of one after the other. `active`: the
  // active ClusterPolicy's spec; without one the resources stand on their own. `done(false)`: something must
  // be tried again.
  void pass(const std::optional<policy::ClusterPolicySpec>& active, const ServerFacts& server,
            std::function<void(bool ok)> done);
  // Name of each resource to whether its drivers are upgraded by themselves.
  std::map<std::string, bool> auto_upgrades() const;
  // The cache has seen a change of an object.
  void seen(const Json& object, bool gone) { applier_.seen(object, gone); }

 private:
  using Object = std::shared_ptr<const Json>;
  struct Pass;

  std::vector<Object> live_drivers() const;
  std::vector<DriverNode> gpu_nodes() const;
  void label_nodes(const std::shared_ptr<Pass>& pass, const DriverOwnership& ownership);
  void next(const std::shared_ptr<Pass>& pass);
  void reconcile(const std::shared_ptr<Pass>& pass, const Object& live, const policy::NvidiaDriver& driver);
  ClusterFacts facts_for(const Pass& pass, const policy::NvidiaDriverSpec& spec) const;
  void keep_shared_script(State& state) const;
  void write_status(const std::shared_ptr<Pass>& pass, const Object& live, const Outcome& outcome,
                    const std::vector<policy::Note>& notes, std::function<void()> done);

  kube::Client& client_;
  ClusterCache& cache_;
  const ControllerOptions& options_;
  StatusWriter& status_;
  Applier applier_;
};

}  // namespace gpuop::op
