// What rendering must know of the cluster, read from the cache.
#pragma once

#include "operator/cache.h"
#include "operator/readiness.h"
#include "operator/render.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {

// Facts that come from requests rather than watches; they change with the cluster's version only.
struct ServerFacts {
  std::string kubernetes_version;  // "v1.34.4"
  bool has_service_monitors = false;
  bool has_prometheus_rules = false;
  std::string openshift_version;  // "4.19"; "" elsewhere
};

// `config_maps` and `secrets`: those (in the operator's namespace) that rendering asks about, as
// config_map_refs() and secret_refs() name them.
ClusterFacts gather_facts(const ClusterCache& cache, const std::vector<std::string>& config_maps,
                          const std::vector<std::string>& secrets, const ServerFacts& server);

// What OpenShift's driver toolkit asks and lacks (operator.md §7.1, §8.1).
struct ToolkitFindings {
  int enabled = 0;           // 1 on, 0 not asked for, -1 asked for and impossible
  bool nfd_too_old = false;  // no GPU node has its RHCOS version in a label
  bool stream_missing = false, stream_broken = false;
  bool tags_missing = false;  // for an RHCOS version of a GPU node
};
ToolkitFindings driver_toolkit_findings(const policy::ClusterPolicySpec& spec, const ClusterFacts& facts);

// Whether a wanted object that is in the cluster has done what its form asks; anything but a DaemonSet has.
// `same_configuration`: as daemonset_ready() has it.
Readiness live_readiness(const ClusterCache& cache, const Json& wanted, bool same_configuration = false);

// "containerd", "docker" or "crio" from the gpu.present nodes (§4.6); warnings for a mixed cluster.
std::string detect_runtime(const ClusterCache& cache, bool openshift, std::vector<std::string>& warnings);

}  // namespace gpuop::op
