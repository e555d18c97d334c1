// NVIDIADriver, nvidia.com/v1alpha1: drivers for a part of the nodes (operator.md §1.4).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "policy/shared_types.h"

namespace gpuop::policy {

struct DriverUpgradePolicy : UpgradePolicy {
  DriverUpgradePolicy() { auto_upgrade = true; }
};

struct NvidiaDriverSpec : ImageSpec {
  NvidiaDriverSpec() { image = "nvcr.io/nvidia/driver"; }

  bool is_default = false;  // "default": the owner of GPU nodes that no other resource selects
  std::string driver_type = "gpu";
  bool use_precompiled = false;
  bool use_open_kernel_modules = false;  // deprecated, has no effect
  std::string kernel_module_type = "auto";
  std::optional<Probe> startup_probe, liveness_probe, readiness_probe;
  Rdma rdma;
  Sidecar gds, gdrcopy;
  Manager manager;
  Json resources;
  std::vector<std::string> args;  // appended after `init`
  std::vector<EnvVar> env;
  NamedConfig repo_config, cert_config, kernel_module_config, virtual_topology_config;
  struct Licensing {
    std::string secret_name;
    std::string name;  // deprecated: a ConfigMap
    bool nls_enabled = true;
  } licensing_config;
  std::string secret_env;
  DriverUpgradePolicy upgrade_policy;
  StringMap node_selector;
  Json node_affinity;  // core/v1 NodeAffinity; null when absent
  StringMap labels;
  StringMap annotations;
  JsonArray tolerations;  // appended to the built-in one
  std::string priority_class_name;
  Json pod_security_context;
  bool host_network = false;
};

struct NvidiaDriver {
  std::string name;
  std::string uid;
  NvidiaDriverSpec spec;
  std::vector<Note> notes;
};

// As parse_cluster_policy(); also refuses a default resource with a node selector, as the CRD's own rule
// does.
Result<NvidiaDriver> parse_nvidia_driver(const Json& object);

}  // namespace gpuop::policy
