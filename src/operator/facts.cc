#include "operator/facts.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "fleet/missing.h"
#include "kube/object.h"
#include "operator/drift.h"
#include "operator/pod.h"

namespace gpuop::op {
namespace {

// A node that a DaemonSet's controller puts a pod of this template on.
bool takes_pod(const Json& node, const Json& pod_spec) {
  return kube::node_matches(node, pod_spec) && fleet::taint_keeping_off(node, pod_spec) == nullptr;
}

// How many nodes with GPUs the template is for; beyond `enough` nobody counts.
std::int64_t nodes_for(const ClusterCache& cache, const Json& pod_spec, std::int64_t enough) {
  std::int64_t count = 0;
  for (const std::string& name : cache.gpu_nodes().placed(pod_spec)) {
    const auto node = cache.of(kube::kNodes).get(name);
    if (node && takes_pod(*node, pod_spec) && ++count > enough) break;
  }
  return count;
}

// A DaemonSet that leaves out nodes which it is wanted on: because somebody changed where its pods may run,
// or because its controller has not got to it.
Readiness everywhere(const ClusterCache& cache, const Json& live, const Json& wanted) {
  const std::int64_t desired = get_int(live, {"status", "desiredNumberScheduled"});
  const auto moved = of_placement(differences(live, wanted));
  if (desired > 0 && moved.empty()) return {};
  const Json* pod_spec = find(wanted, {"spec", "template", "spec"});
  if (!pod_spec || nodes_for(cache, *pod_spec, desired) <= desired) return {};
  const std::string name = "DaemonSet " + str(kube::name_of(live));
  if (moved.empty()) return {false, name + " has no pod yet on the nodes that it is for"};
  return {false,
          name + " leaves out nodes that it is for: " + fields_text(moved) + " is not as the operator set it",
          true};
}

// The cluster-wide proxy, and the images of the driver toolkit by RHCOS version.
void gather_openshift(const ClusterCache& cache, ClusterFacts& facts) {
  if (cache.synced(kProxies)) {
    if (const auto proxy = cache.of(kProxies).get("cluster"))
      facts.proxy =
          ClusterFacts::Proxy{.http = str(get_string(*proxy, {"spec", "httpProxy"})),
                              .https = str(get_string(*proxy, {"spec", "httpsProxy"})),
                              .no_proxy = str(get_string(*proxy, {"spec", "noProxy"})),
                              .trusted_ca = !get_string(*proxy, {"spec", "trustedCA", "name"}).empty()};
  }
  if (!cache.synced(kImageStreams)) return;
  const auto stream = cache.of(kImageStreams).get("openshift/driver-toolkit");
  if (!stream) return;
  facts.driver_toolkit_images.emplace();
  for (const Json& tag : get_array(*stream, {"spec", "tags"})) {
    const auto name = get_string(tag, {"name"}), image = get_string(tag, {"from", "name"});
    if (name.empty()) facts.driver_toolkit_broken = true;
    if (!name.empty() && name != "latest" && !image.empty())
      facts.driver_toolkit_images->emplace(name, image);
  }
}

// Whose form a driver's anti-affinity has: a ClusterPolicy's of ours is no requirement, an NVIDIADriver's of
// ours names managers of virtual GPUs as they are called (D-04).
bool made_by_upstream(const Json& live, bool of_policy) {
  const auto& terms = get_array(live, {"spec", "template", "spec", "affinity", "podAntiAffinity",
                                       "requiredDuringSchedulingIgnoredDuringExecution"});
  // One that somebody added by hand is nobody's form.
  const std::string text = terms.empty() ? "" : to_text(terms.at(0));
  if (!text.contains("\"app.kubernetes.io/component\"")) return false;
  return of_policy || !text.contains("nvidia-vgpu-host-manager");
}

void gather_daemonset(const Json& live, ClusterFacts& facts) {
  const std::string name(kube::name_of(live));
  if (const auto first = kube::annotation(live, kModuleConfigFirst); !first.empty())
    facts.module_configs[name] = {str(first),
                                  has(live, {"spec", "template", "metadata", "annotations", kModuleConfig})};
  const Json* owner = kube::controller_of(live);
  const bool of_resource = owner && get_string(*owner, {"kind"}) == "NVIDIADriver";
  const bool of_policy = name.starts_with("nvidia-driver-daemonset");
  if ((of_resource || of_policy) && made_by_upstream(live, of_policy)) facts.taken_over.insert(name);
  const Json* pod = of_resource ? find(live, {"spec", "template", "spec"}) : nullptr;
  if (const Json* manager = pod ? find_container(*pod, "k8s-driver-manager") : nullptr)
    facts.driver_managers[name] = {str(get_string(*manager, {"image"})),
                                   env_value(*manager, "DRIVER_CONFIG_DIGEST")};
}

}  // namespace

ToolkitFindings driver_toolkit_findings(const policy::ClusterPolicySpec& spec, const ClusterFacts& facts) {
  ToolkitFindings out;
  if (!facts.openshift() || !spec.op.use_ocp_driver_toolkit.value_or(true) || spec.driver.use_precompiled)
    return out;
  std::set<std::string> versions;
  for (const auto& node : facts.gpu_nodes)
    if (!node.ostree.empty()) versions.insert(node.ostree);
  out.nfd_too_old = versions.empty() && !facts.gpu_nodes.empty();
  out.stream_missing = !facts.driver_toolkit_images;
  out.stream_broken = facts.driver_toolkit_broken;
  out.enabled = versions.empty() || out.stream_missing ? -1 : 1;
  if (out.enabled == 1)
    out.tags_missing = !std::ranges::all_of(
        versions, [&](const auto& version) { return facts.driver_toolkit_images->contains(version); });
  return out;
}

std::string detect_runtime(const ClusterCache& cache, bool openshift, std::vector<std::string>& warnings) {
  if (openshift) return "crio";
  std::map<std::string, std::set<std::string>> by_runtime;
  for (const auto& [kind, names] : cache.gpu_nodes().kinds())
    if (!kind.runtime.empty()) by_runtime[kind.runtime].insert(names.begin(), names.end());
  if (by_runtime.empty()) return "containerd";
  const std::string chosen = by_runtime.contains("containerd") ? "containerd" : by_runtime.begin()->first;
  for (const auto& [runtime, names] : by_runtime) {
    if (runtime == chosen) continue;
    warnings.push_back("nodes with " + runtime + " beside nodes with " + chosen +
                       ", but one toolkit DaemonSet serves one runtime; not configured: " +
                       join(std::vector<std::string>(names.begin(), names.end()), ", "));
  }
  return chosen;
}

ClusterFacts gather_facts(const ClusterCache& cache, const std::vector<std::string>& config_maps,
                          const std::vector<std::string>& secrets, const ServerFacts& server) {
  ClusterFacts facts;
  facts.operator_namespace = cache.ns();
  facts.kubernetes_version = server.kubernetes_version;
  facts.has_service_monitors = server.has_service_monitors;
  facts.has_prometheus_rules = server.has_prometheus_rules;
  facts.openshift_version = server.openshift_version;
  facts.gpu_nodes = cache.gpu_nodes().examples();
  cache.of(kube::kDaemonSets).for_each([&](const std::shared_ptr<const Json>& live) {
    gather_daemonset(*live, facts);
  });
  cache.of(kube::kRuntimeClasses).for_each([&](const std::shared_ptr<const Json>& live) {
    if (kube::label(*live, "nvidia.com/kata-runtime-class") == "true")
      facts.kata_runtime_classes.insert(std::string(kube::name_of(*live)));
  });
  if (facts.openshift()) gather_openshift(cache, facts);
  for (const auto& name : config_maps) {
    const auto live = cache.of(kube::kConfigMaps).get(kube::object_key(cache.ns(), name));
    if (!live) continue;
    auto& keys = facts.config_maps[name];
    for (const auto& [key, value] : get_object(*live, {"data"})) keys.emplace_back(key);
    std::sort(keys.begin(), keys.end());
    const Json* data = find(*live, {"data"});
    facts.config_map_hashes[name] = std::to_string(fnv1a32(data ? to_canonical_text(*data) : ""));
  }
  for (const auto& name : secrets) {
    if (cache.of(kube::kSecrets).get(kube::object_key(cache.ns(), name))) facts.secrets.insert(name);
  }
  return facts;
}

Readiness live_readiness(const ClusterCache& cache, const Json& wanted, bool same_configuration) {
  const ObjectRef ref = ref_of(wanted);
  const auto live = cache.live(ref);
  if (ref.kind != "DaemonSet") return {};
  // Where somebody changed the hash alone, nothing is rolled out.
  if (live && kube::annotation(*live, kHashAnnotation) != kube::annotation(wanted, kHashAnnotation) &&
      std::ranges::any_of(differences(*live, wanted),
                          [](const Difference& one) { return one.path.front().key == "spec"; })) {
    return {false, "its new form is being rolled out"};
  }
  using Object = std::shared_ptr<const Json>;
  std::vector<Object> pods;
  std::vector<Object> revisions;
  if (live && get_string(*live, {"spec", "updateStrategy", "type"}) == "OnDelete") {
    pods = cache.examples_of_pods(kube::uid_of(*live));
    cache.of(kube::kControllerRevisions).for_each([&](const Object& revision) {
      revisions.push_back(revision);
    });
  }
  const Readiness ready = daemonset_ready(live.get(), pods, revisions, same_configuration);
  return ready.ready && live ? everywhere(cache, *live, wanted) : ready;
}

}  // namespace gpuop::op
