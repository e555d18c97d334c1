// NVIDIADriver resources: which GPU nodes each owns, the pools of like nodes among them, and what is made for
// a pool (operator.md §1.4). All pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/render.h"
#include "policy/nvidia_driver.h"

namespace gpuop::op {

inline constexpr std::string_view kDriverOwner = "nvidia.com/gpu-operator.driver.owner";

// A node with nvidia.com/gpu.present=true.
struct DriverNode {
  std::string name;
  JsonObject labels;
};

// Why a resource cannot be acted on.
struct DriverRefusal {
  std::string reason;  // of the condition Error: ReconcileFailed, ConflictingNodeSelector
  std::string message;
};

struct DriverOwnership {
  std::map<std::string, DriverRefusal> refused;  // resource name to why
  // Node to its owner; "": none, a label that is there goes. Nodes that a refused resource lays a claim to
  // are left out: their labels stay as they are.
  std::map<std::string, std::string> owner;
};

// `drivers`: those that are not being deleted.
DriverOwnership decide_ownership(const std::vector<policy::NvidiaDriver>& drivers,
                                 const std::vector<DriverNode>& nodes);

// Nodes of one owner that one DaemonSet serves.
struct DriverPool {
  std::string os_tag;      // "ubuntu22.04"
  std::string os_id;       // "ubuntu"
  std::string kernel;      // precompiled drivers only
  std::string rhcos;       // OpenShift without precompiled drivers: the RHCOS version; "" elsewhere
  std::string os_version;  // "22.04"
  std::map<std::string, std::string> selector;  // feature labels that its nodes share
};
// Sorted by OS tag, kernel, RHCOS version. A node that lacks a label that is needed is skipped with a
// warning.
std::vector<DriverPool> driver_pools(const policy::NvidiaDriverSpec& spec,
                                     const std::vector<DriverNode>& owned, bool openshift,
                                     std::vector<std::string>& warnings);

// "nvidia-gpu-driver-ubuntu22.04-5fbfb449f9": at most 63 characters; also the pods' label app.
std::string pool_name(const policy::NvidiaDriver& driver, const DriverPool& pool);
// Of the pool's ServiceAccount, roles and bindings.
std::string pool_account(const policy::NvidiaDriver& driver, const DriverPool& pool);

// What the resource wants in the cluster, one DaemonSet a pool; no pool, no object. The objects are owned by
// the resource. `host_root`: spec.hostPaths.rootFS of the ClusterPolicy, "/" without one.
State render_driver(const policy::NvidiaDriver& driver, const std::vector<DriverPool>& pools,
                    const ClusterFacts& facts, const Assets& assets, const std::string& host_root);

// The ConfigMaps and Secrets (in the operator's namespace) that rendering depends on.
std::vector<std::string> config_map_refs(const policy::NvidiaDriverSpec& spec);
std::vector<std::string> secret_refs(const policy::NvidiaDriverSpec& spec);

}  // namespace gpuop::op
