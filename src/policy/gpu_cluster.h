// GPUCluster, nvidia.com/v1alpha1: GPUs by dynamic resource allocation instead of a ClusterPolicy's device
// plugin (operator.md §1.5).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "policy/cluster_policy.h"

namespace gpuop::policy {

struct GpuClusterSpec {
  struct Healthcheck {
    bool enabled = true;
    std::int64_t port = 0;  // 0: the plugin's own, 51516 for GPUs, 51515 for compute domains
  };
  struct KubeletPlugin {
    std::vector<EnvVar> env;
    Json resources;
    Healthcheck healthcheck;
  };
  struct Controller {
    std::vector<EnvVar> env;
    Json resources;
  };
  struct Gpus {
    KubeletPlugin kubelet_plugin;
  };
  struct ComputeDomains {
    bool enabled = true;
    Controller controller;
    KubeletPlugin kubelet_plugin;
  };
  struct DraDriver : ImageSpec {
    Json feature_gates;  // gate to boolean; null when absent
    Gpus gpus;
    ComputeDomains compute_domains;
  };
  struct HostPaths {
    std::string driver_install_dir;  // "" counts as "/run/nvidia/driver"
    std::string kubelet_root_dir = "/var/lib/kubelet";
  };

  DraDriver dra_driver;
  DcgmSpec dcgm;
  DcgmExporterSpec dcgm_exporter{on<DcgmExporterSpec>()};
  HostPaths host_paths;
  DaemonsetsSpec daemonsets;
};

struct GpuCluster {
  std::string name;
  std::string uid;
  GpuClusterSpec spec;
  std::vector<Note> notes;
};

// As parse_cluster_policy().
Result<GpuCluster> parse_gpu_cluster(const Json& object);

}  // namespace gpuop::policy
