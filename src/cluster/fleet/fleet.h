// A fleet file: which nodes a simulation has. Ours, so anything unknown in it is an error with path, line and
// the nearest right name.
//
//   seed: 7                      # UUIDs, serials; default 1
//   mode: hollow                 # processes (default), hollow or light; also by node group
//   kubernetes: v1.34.0          # what a hollow fleet's control plane says it is
//   nodes:
//     - name: a100               # a100-0, a100-1 with count above 1
//       count: 2
//       os: ubuntu22.04          # ID and VERSION_ID of os-release
//       kernel: 5.15.0-91-generic
//       runtime: containerd      # or crio, or docker
//       runtimeVersion: 2.1.0
//       gpus: {model: A100-SXM4-80GB, count: 8}
//       vgpuHost: true           # its driver is the vGPU manager's: boards can be shared out to virtual
//       machines driver: preinstalled     # or container, or none driverVersion: 580.95.05 # of a
//       preinstalled one instanceType: p4de.24xlarge numa: 2 topologyPolicy: best-effort   # of the kubelet;
//       or none, restricted, single-numa-node cpus: 96 memory: 1152Gi labels: {zone: a} taints: [{key: k,
//       value: v, effect: NoSchedule}]
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster {

enum class DriverSource { kPreinstalled, kContainer, kNone };
std::string_view driver_word(DriverSource driver);  // as a fleet file writes it

struct FleetTaint {
  std::string key, value, effect;
  bool operator==(const FleetTaint&) const = default;
};

// One node; groups with a count are unfolded.
struct FleetNode {
  std::string name;
  bool hollow = false;  // no processes: src/cluster/hollow plays what its containers would do
  bool light = false;   // hollow, and its pods only turn Ready: for the size of a cluster
  std::string os_id = "ubuntu", os_version = "22.04";
  std::string kernel = "5.15.0-91-generic";
  std::string runtime = "containerd";
  std::string runtime_version = "2.1.0";
  bool cri_dockerd_cdi = false;  // with Docker: cri-dockerd hands CDI devices on, as it does since late 2025
  std::string gpu_model;         // as a profile names it; empty: no GPU
  int gpu_count = 0;
  bool vgpu_host = false;  // boards can be shared out to virtual machines
  DriverSource driver = DriverSource::kNone;
  std::string driver_version;
  std::string instance_type;
  int numa_nodes = 1;
  std::string topology_policy = "none";  // of the kubelet's topology manager
  int cpus = 8;
  std::int64_t memory_mib = 32768;
  std::map<std::string, std::string> labels;
  std::vector<FleetTaint> taints;
  bool operator==(const FleetNode&) const = default;

  // "ubuntu22.04": what a driver image's tag ends in; the minor version is dropped for rhel, rocky and ol.
  std::string os_tag() const;
};

struct Fleet {
  std::uint64_t seed = 1;
  std::vector<FleetNode> nodes;
  std::string kubernetes = "v1.34.0";  // of hollow fleets
  bool operator==(const Fleet&) const = default;

  // Every node is hollow: control plane, operator and nodes can share one thread and a virtual clock.
  bool hollow() const;
  bool any_hollow() const;
};

// `models` are the names that `gpus.model` may have, for the check and its suggestion, `vgpu_models` those of
// them that `vgpuHost` may go with; empty: not checked.
// Errors: "read fleet 'FILE': line 4: nodes[0].gpus.model: no such model 'A10'; known are … (did you mean
// …?)".
Result<Fleet> parse_fleet(std::string_view text, std::string_view file,
                          const std::vector<std::string>& models = {},
                          const std::vector<std::string>& vgpu_models = {});

// As the supervisor keeps it.
Json to_json(const Fleet& fleet);
Result<Fleet> fleet_from_json(const Json& json);

}  // namespace gpuop::cluster
