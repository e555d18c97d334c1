// What rendering must know of the cluster, read from the cache.
#pragma once

#include "operator/cache.h"
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

ClusterFacts gather_facts(const ClusterCache& cache, const policy::ClusterPolicySpec& spec,
                          const ServerFacts& server);

// "containerd", "docker" or "crio" from the gpu.present nodes (§4.6); warnings for a mixed cluster.
std::string detect_runtime(const ClusterCache& cache, bool openshift, std::vector<std::string>& warnings);

}  // namespace gpuop::op
