// What the operator makes of a ClusterPolicy: the operand states in order, each with the objects that it
// wants.
//
// render() is pure: the same policy, facts and manifests give the same plan, byte for byte. It reads nothing,
// writes nothing and knows no clock; the controllers gather the facts and apply the plan. States and their
// rules are operator.md §3.1, transformations §5, images §1.6, the hash annotation §3.2, the driver digest
// §9.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {

// The annotation by which a DaemonSet's change is noticed: the hash of the object as it was rendered.
inline constexpr std::string_view kHashAnnotation = "nvidia.com/last-applied-hash";
// What the files of kernelModuleConfig were when a driver's DaemonSet was first made or taken over
// ("NAME:HASH", on the DaemonSet), and what they are, on its pods, from the first change on: so that pods
// roll with it, and never at a takeover (operands-driver-validator.md, D-29).
inline constexpr std::string_view kModuleConfigFirst = "nvidia.com/gpu-operator.kernel-module-config-first";
inline constexpr std::string_view kModuleConfig = "nvidia.com/gpu-operator.kernel-module-config";
// The label of a ConfigMap whose data OpenShift fills in: once it is there it is left alone.
inline constexpr std::string_view kInjectCertificates = "config.openshift.io/inject-trusted-cabundle";

// --- manifests ---

struct Manifest {
  std::string file;  // "0500_daemonset.yaml"
  Json object;
  bool openshift_only() const { return file.find("openshift") != std::string::npos; }
};

// The operand manifests: state name to its files, in file-name order. One object a file.
struct Assets {
  std::map<std::string, std::vector<Manifest>> states;
};

// Reads every folder beneath `dir` (assets/ in the repository, /opt/gpu-operator/assets in the image).
Result<Assets> load_assets(const fs::path& dir);

// --- facts ---

// A node with nvidia.com/gpu.present=true, as far as rendering asks.
struct GpuNode {
  std::string name;
  std::string os_id;       // feature.node.kubernetes.io/system-os_release.ID
  std::string os_version;  // …system-os_release.VERSION_ID
  std::string kernel;      // …kernel-version.full
  std::string ostree;      // …system-os_release.OSTREE_VERSION, OpenShift only
};

struct ClusterFacts {
  std::string operator_namespace;
  std::string own_image;                   // the operator's own image reference; "" when unknown
  std::map<std::string, std::string> env;  // the operator's environment: DRIVER_IMAGE, VALIDATOR_IMAGE, …
  std::string runtime = "containerd";      // containerd, docker or crio (operator.md §4.6)
  std::string kubernetes_version;          // "v1.35.0"
  std::vector<GpuNode> gpu_nodes;          // by name; of those that differ in their name only, one is enough
  // Keys of the ConfigMaps in the operator's namespace that the policy names; a name that is absent here does
  // not exist. config_map_refs() says which to look for.
  std::map<std::string, std::vector<std::string>> config_maps;
  std::map<std::string, std::string> config_map_hashes;  // of the same, over keys and values
  std::set<std::string> secrets;                         // of secret_refs(): those that exist
  bool has_service_monitors = false;                     // CRD servicemonitors.monitoring.coreos.com is there
  bool has_prometheus_rules = false;                     // CRD prometheusrules.monitoring.coreos.com is there

  JsonArray own_taints;  // core/v1 Taints that the operator puts on GPU nodes: every operand tolerates them

  // Driver DaemonSets that upstream's operator made and we took over: their pod template keeps upstream's
  // form, since a change would restart drivers (operator.md §9).
  std::set<std::string> taken_over;

  // By DaemonSet of an NVIDIADriver: the driver manager's image that it has now, and its driver's digest.
  struct DriverManager {
    std::string image, digest;
  };
  std::map<std::string, DriverManager> driver_managers;

  // RuntimeClasses that a Kata manager of old made (label nvidia.com/kata-runtime-class=true).
  std::set<std::string> kata_runtime_classes;

  // By DaemonSet: what kModuleConfigFirst says, and whether its pods have kModuleConfig.
  struct ModuleConfig {
    std::string first;
    bool changed = false;
  };
  std::map<std::string, ModuleConfig> module_configs;

  // OpenShift; version "" elsewhere.
  std::string openshift_version;  // "4.19"
  struct Proxy {
    std::string http, https, no_proxy;
    bool trusted_ca = false;
  };
  std::optional<Proxy> proxy;
  std::optional<std::map<std::string, std::string>>
      driver_toolkit_images;  // RHCOS version to image; nullopt: no ImageStream

  bool driver_toolkit_broken = false;  // that ImageStream has a tag without a name

  bool openshift() const { return !openshift_version.empty(); }
};

// The ConfigMaps and Secrets (in the operator's namespace) whose presence or keys rendering depends on.
std::vector<std::string> config_map_refs(const policy::ClusterPolicySpec& spec);
std::vector<std::string> secret_refs(const policy::ClusterPolicySpec& spec);

// --- the plan ---

struct ObjectRef {
  std::string api_version, kind, namespace_name, name;  // namespace_name "" for cluster-scoped
  bool operator==(const ObjectRef&) const = default;
  auto operator<=>(const ObjectRef&) const = default;
};
ObjectRef ref_of(const Json& object);

// DaemonSets that are deleted unless they are among the state's objects: those in the operator's namespace
// whose name starts so and that this ClusterPolicy owns.
struct Sweep {
  std::string name_prefix;
  bool orphan_pods = false;  // delete with propagation Orphan (a hand-over to NVIDIADriver)
};

struct State {
  std::string name;  // "state-driver"
  bool enabled = false;
  // Objects to apply, in order; each is complete: namespace, ownerReferences and, for DaemonSets, the hash
  // annotation. DaemonSets are left out while the cluster has no GPU node.
  std::vector<Json> objects;
  // Objects that must be gone: all of a disabled state's, and those whose own gate is shut.
  std::vector<ObjectRef> absent;
  std::vector<Sweep> sweeps;
  // Set when the state cannot be rendered (an image cannot be resolved, a ConfigMap is missing, …): nothing
  // of it may be applied or deleted; other states go on.
  std::optional<Error> error;
  std::vector<std::string> reasons;  // why it is as it is, for `gpuctl explain`
};

struct Plan {
  std::vector<State> states;  // in the order of operator.md §3.1
  std::vector<std::string>
      warnings;  // what works but should be looked at, e.g. a start-up delay that costs time
};

// Renders every state. `policy` must have passed policy::check().
Plan render(const policy::ClusterPolicy& policy, const ClusterFacts& facts, const Assets& assets);

// One state by name; nullptr when there is none.
const State* find_state(const Plan& plan, std::string_view name);

// --- parts with a meaning of their own ---

// The OS tag of driver images: ID plus VERSION_ID, the latter cut at its first dot for rhel, rocky and ol.
std::string os_tag(const GpuNode& node);
// A kernel release as it stands in object names: "5.14.0-503.11.1.el9_5.aarch64_64k" →
// "5.14.0-503.11.1.el9.5".
std::string sanitized_kernel(std::string_view kernel);

// operator.md §1.6. `what` names the operand in messages, `variable` the fallback in `env`.
Result<std::string> resolve_image(const policy::ImageSpec& spec, std::string_view what,
                                  std::string_view variable, const std::map<std::string, std::string>& env);

// FNV-1a-32 in decimal over the object's canonical text; the annotation itself does not count.
std::string object_hash(const Json& object);

}  // namespace gpuop::op
