// A hollow fleet: control plane, controllers, nodes and the operator in one thread, on a virtual clock. The
// same fleet, objects, faults and seed give the same run, event for event.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "cluster/faults/event_log.h"
#include "cluster/faults/faults.h"
#include "cluster/faults/names.h"
#include "cluster/fleet/fleet.h"
#include "fleet/chain.h"
#include "kube/client.h"
#include "operator/render.h"

namespace gpuop::cluster {

struct HollowFleetOptions {
  Fleet fleet;  // every node hollow
  FaultPlan faults;
  std::uint64_t seed = 1;              // uids, names and tokens; together with the fleet's own
  std::vector<Json> objects;           // applied at the start: CRDs, the operator's manifests, the policy
  std::vector<Json> default_policy;    // applied where the cluster has no ClusterPolicy then
  fs::path data_dir;                   // keeps the cluster for the next fleet with it; empty: nothing is kept
  std::string image;                   // the operator's own image reference
  fs::path profiles;                   // GPU profiles
  const op::Assets* assets = nullptr;  // of the operator; outlives the fleet
  std::function<void(std::string_view line)> events;  // lines of the event log; unset: they are kept
  bool log_reads = true;
};

class HollowFleet {
 public:
  // kInvalid, kNotFound: a model that is not there, a selector of a fault that fits nothing (names.h); a node
  // with processes; a damaged data folder. kBusy: another process uses the data folder.
  static Result<std::unique_ptr<HollowFleet>> create(HollowFleetOptions options);
  ~HollowFleet();

  Loop& loop();
  // An administrator's: not struck by faults, not in the event log.
  kube::Client& client();
  const EventLog& events() const;
  std::uint64_t requests() const;  // to the API server
  std::uint64_t struck() const;    // API faults
  // Every request of a component ("gpu-operator") so far.
  std::uint64_t requests_of(const std::string& component) const;
  // The same by what was asked: "patch nodes" to how often; requests outside of collections by their verb.
  std::map<std::string, std::uint64_t> requests_by(const std::string& component) const;

  // What a person should know of a kept cluster that went on: nodes that are gone, a sentence each.
  const std::vector<std::string>& notes() const;
  // How far the cluster is, whether an operator works on it, and what device plugins know of GPUs. No cure in
  // it needs a cluster that can be reached: nobody but this process can. Valid after the first turn of the
  // loop.
  fleet::ClusterChain chain() const;
  // The policy is ready, an operator runs and leads (its Lease is renewed), and every node of the fleet with
  // GPUs is ready; on a kept cluster by what was told in this run.
  bool ready() const;
  // Every fault has come and those with an end are over, all is ready, nothing but heartbeats was written for
  // `quiet`, and no pod of the operator's namespace is on its way to something else: none waits out a
  // back-off.
  bool stable(Duration quiet = std::chrono::seconds(60)) const;
  // What keeps the last of these from being so: "pod x: container y waits: CrashLoopBackOff"; empty: nothing.
  std::string unsettled() const;
  // When every fault of the plan has come and those with an end are over.
  Duration faults_over() const;
  // Faults that struck nothing so far, and those that are on and have no end (names.h).
  std::vector<IdleFault> idle_faults() const;
  std::vector<std::string> endless_faults() const;
  // In words: "node gpu-1, stage toolkit: …".
  std::string first_broken_link() const;

  // Every object of the cluster but Events, Leases, tokens and what the control plane makes for itself, as
  // text, without what differs between two runs that ended alike: uid, resourceVersion, generation, times,
  // names of pods and their hashes, counts of restarts.
  std::string normalised() const;

  struct Impl;

 private:
  explicit HollowFleet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
