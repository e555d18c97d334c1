// ClusterPolicy, nvidia.com/v1: the one resource that describes a GPU stack (operator.md §1.3).
//
// These are plain values. A member that the user left out holds the value that the controller assumes, which
// is the initializer here; std::optional marks the few fields where absence itself means something. Names,
// types, defaults, limits and descriptions of the JSON fields are declared once, in cluster_policy.cc, and
// the parser, the CRD's schema and docs/clusterpolicy.md all come from there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "policy/shared_types.h"

namespace gpuop::policy {

struct OperatorSpec {
  std::string default_runtime;
  std::string runtime_class = "nvidia";
  ImageSpec init_container;
  StringMap labels;
  StringMap annotations;
  struct Metrics {
    std::optional<ServiceMonitor> service_monitor;
  } metrics;
  std::optional<bool> use_ocp_driver_toolkit;  // absent: true on OpenShift
};

struct DaemonsetsSpec {
  StringMap labels;
  StringMap annotations;
  JsonArray tolerations;  // core/v1 Toleration; non-empty replaces the manifests' own
  std::string priority_class_name;
  std::string update_strategy = "RollingUpdate";
  struct RollingUpdate {
    std::string max_unavailable;  // "3" or "10%"
  } rolling_update;
  Json pod_security_context;  // core/v1 PodSecurityContext; null when absent
};

struct DriverSpec : Operand {
  bool use_nvidia_driver_crd = false;
  bool use_precompiled = false;
  bool use_open_kernel_modules = false;  // deprecated, has no effect
  std::string kernel_module_type = "auto";
  std::optional<Probe> startup_probe;
  std::optional<Probe> liveness_probe;
  std::optional<Probe> readiness_probe;
  Rdma rdma;
  std::optional<UpgradePolicy> upgrade_policy;
  Manager manager;
  struct RepoConfig {
    std::string config_map_name;
  } repo_config;
  NamedConfig cert_config;
  struct Licensing {
    std::string config_map_name;
    std::string secret_name;
    bool nls_enabled = false;
  } licensing_config;
  struct VirtualTopology {
    std::string config;
  } virtual_topology;
  NamedConfig kernel_module_config;
  std::string secret_env;
};

struct ToolkitSpec : Operand {
  std::string install_dir = "/usr/local/nvidia";
};

struct DevicePluginSpec : Operand {
  DefaultedConfig config;
  struct Mps {
    std::string root = "/run/nvidia/mps";
  } mps;
};

struct DcgmSpec : Operand {
  std::int64_t host_port = 0;  // deprecated, ignored
};

struct DcgmExporterSpec : Operand {
  StringMap annotations;
  NamedConfig config;
  std::optional<ServiceMonitor> service_monitor;
  struct Service {
    std::string type;
    std::string internal_traffic_policy;
  } service;
  bool host_pid = false;
  struct HpcJobMapping {
    bool enabled = false;
    std::string directory = "/var/lib/dcgm-exporter/job-mapping";
  } hpc_job_mapping;
  bool enable_pod_labels = false;
  bool enable_pod_uid = false;
  std::vector<std::string> pod_label_allowlist_regex;
};

struct MigManagerSpec : Operand {
  struct Config {
    std::string name;
    std::string default_config = "all-disabled";
  } config;
  NamedConfig gpu_clients_config;
};

struct ValidatorSpec : Operand {
  struct Check {
    std::vector<EnvVar> env;
  };
  Check plugin, toolkit, driver, cuda, vfio_pci, vgpu_manager, vgpu_devices;
};

struct SandboxWorkloadsSpec {
  bool enabled = false;
  std::string default_workload = "container";
  std::string mode = "kubevirt";
};

struct VfioManagerSpec : Operand {
  Manager driver_manager;
};

struct VgpuManagerSpec : Operand {
  Manager driver_manager;
  NamedConfig kernel_module_config;
};

struct VgpuDeviceManagerSpec : Operand {
  struct Config {
    std::string name;
    std::string default_config = "default";
  } config;
};

struct CdiSpec {
  bool enabled = true;
  bool is_default = false;  // deprecated, ignored
  bool nri_plugin_enabled = false;
};

struct KataManagerSpec : Operand {  // the whole block is deprecated and ignored
  struct RuntimeClass {
    std::string name;
    StringMap node_selector;
    struct Artifacts {
      std::string url;
      std::string pull_secret;
    } artifacts;
  };
  struct Config {
    std::string artifacts_dir = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses";
    std::vector<RuntimeClass> runtime_classes;
  } config;
};

struct CcManagerSpec : Operand {
  std::string default_mode;  // "", on, off, devtools
};

// Additions of ours, unknown to upstream and off unless asked for.
struct FleetSpec {
  struct StartupTaint {
    bool enabled = false;
    std::string key = "nvidia.com/gpu.not-ready";
  } startup_taint;
  struct DedicatedTaint {
    bool enabled = false;
    std::string key = "nvidia.com/gpu";
  } dedicated_taint;
};

struct ClusterPolicySpec {
  OperatorSpec op;  // "operator"
  DaemonsetsSpec daemonsets;
  DriverSpec driver{on<DriverSpec>()};
  ToolkitSpec toolkit{on<ToolkitSpec>()};
  DevicePluginSpec device_plugin{on<DevicePluginSpec>()};
  DcgmSpec dcgm{on<DcgmSpec>()};
  DcgmExporterSpec dcgm_exporter{on<DcgmExporterSpec>()};
  Operand node_status_exporter;
  Operand gfd{on<Operand>()};
  struct Mig {
    std::string strategy;  // "", none, single, mixed
  } mig;
  MigManagerSpec mig_manager{on<MigManagerSpec>()};
  Toggle psp;  // deprecated, ignored
  Toggle psa;
  ValidatorSpec validator;
  Sidecar gds;
  Sidecar gdrcopy;
  SandboxWorkloadsSpec sandbox_workloads;
  VfioManagerSpec vfio_manager;
  Operand sandbox_device_plugin;
  Operand kata_sandbox_device_plugin;
  VgpuManagerSpec vgpu_manager;
  VgpuDeviceManagerSpec vgpu_device_manager;
  CdiSpec cdi;
  KataManagerSpec kata_manager;
  CcManagerSpec cc_manager;
  HostPaths host_paths;
  FleetSpec fleet;
};

struct ClusterPolicy {
  std::string name;
  std::string uid;
  ClusterPolicySpec spec;
  std::vector<Note> notes;  // what the user should know: unknown and deprecated fields
};

// Reads a ClusterPolicy object as the API server gives it (or as a user wrote it): null counts as absent,
// defaults are filled in, unknown fields are taken and noted. The first thing wrong is the error, kInvalid:
//   "load ClusterPolicy 'gpus': spec.mig.strategy: must be one of none, single, mixed; got 'mixd' (did you
//   mean 'mixed'?)"
// with "(and N more)" behind it when there is more than one. Does not run check() below.
Result<ClusterPolicy> parse_cluster_policy(const Json& object);

// The rules between fields that no schema holds (operator.md §1.3, controller-side validation), for every
// reconcile.
Result<> check(const ClusterPolicySpec& spec);

}  // namespace gpuop::policy
