#include "operator/readiness.h"

#include <map>
#include <set>

#include "base/text.h"
#include "kube/object.h"
#include "operator/render.h"

namespace gpuop::op {
namespace {

Readiness no(std::string reason) {
  return {false, std::move(reason)};
}

std::string count_of(std::int64_t have, std::int64_t want, const char* what) {
  return std::to_string(have) + " of " + std::to_string(want) + " " + what;
}

// What of a template makes another driver: the digest, and the content of its kernel modules' configuration.
std::string configuration_of(const Json& revision) {
  std::string digest;
  for (const Json& container : get_array(revision, {"data", "spec", "template", "spec", "initContainers"}))
    for (const Json& entry : get_array(container, {"env"}))
      if (get_string(entry, {"name"}) == "DRIVER_CONFIG_DIGEST") digest = get_string(entry, {"value"});
  if (digest.empty()) return digest;
  return digest + " " +
         str(get_string(revision, {"data", "spec", "template", "metadata", "annotations", kModuleConfig}));
}

// The hashes of the ControllerRevisions whose pods are current: the newest, and with `same_configuration`
// those that have its configuration. A hash is the suffix of a revision's name behind "<daemonset>-".
std::set<std::string> current_revisions(const Json& live,
                                        const std::vector<std::shared_ptr<const Json>>& revisions,
                                        bool same_configuration) {
  const std::string prefix = std::string(kube::name_of(live)) + "-";
  std::map<std::int64_t, const Json*> own;
  for (const auto& revision : revisions) {
    const Json* owner = kube::controller_of(*revision);
    if (!owner || get_string(*owner, {"uid"}) != kube::uid_of(live)) continue;
    if (kube::name_of(*revision).starts_with(prefix)) own[get_int(*revision, {"revision"})] = revision.get();
  }
  std::set<std::string> out;
  if (own.empty()) return out;
  const Json& newest = *own.rbegin()->second;
  const std::string configuration = same_configuration ? configuration_of(newest) : "";
  for (const auto& [number, revision] : own)
    if (revision == &newest || (!configuration.empty() && configuration_of(*revision) == configuration))
      out.emplace(kube::name_of(*revision).substr(prefix.size()));
  return out;
}

Readiness on_delete_ready(const Json& live, const std::vector<std::shared_ptr<const Json>>& pods,
                          const std::vector<std::shared_ptr<const Json>>& revisions,
                          bool same_configuration) {
  const auto current = current_revisions(live, revisions, same_configuration);
  if (current.empty()) return no("no revision recorded yet");
  int owned = 0;
  for (const auto& pod : pods) {
    const Json* owner = kube::controller_of(*pod);
    if (!owner || get_string(*owner, {"uid"}) != kube::uid_of(live)) continue;
    ++owned;
    const std::string name(kube::name_of(*pod));
    if (!current.contains(str(kube::label(*pod, "controller-revision-hash")))) {
      return no("pod " + name + " runs an older template and is replaced only when it is deleted (OnDelete)");
    }
    if (get_string(*pod, {"status", "phase"}) != "Running") {
      return no("pod " + name + " is " + std::string(get_string(*pod, {"status", "phase"}, "Pending")));
    }
    for (const auto& container : get_array(*pod, {"status", "containerStatuses"})) {
      if (!get_bool(container, {"ready"})) {
        return no("container " + std::string(get_string(container, {"name"})) + " of pod " + name +
                  " is not ready");
      }
    }
  }
  if (owned == 0) return no("no pods yet");
  return {};
}

}  // namespace

Readiness daemonset_ready(const Json* live, const std::vector<std::shared_ptr<const Json>>& pods,
                          const std::vector<std::shared_ptr<const Json>>& revisions,
                          bool same_configuration) {
  if (!live) return no("not created yet");
  const std::int64_t generation = get_int(*live, {"metadata", "generation"});
  const std::int64_t observed = get_int(*live, {"status", "observedGeneration"});
  if (observed < generation) return no("not yet seen by the DaemonSet controller");
  const std::int64_t desired = get_int(*live, {"status", "desiredNumberScheduled"});
  if (desired == 0) return {};
  const std::int64_t available = get_int(*live, {"status", "numberAvailable"});
  if (get_int(*live, {"status", "numberUnavailable"}) != 0)
    return no(count_of(available, desired, "pods available"));
  if (get_string(*live, {"spec", "updateStrategy", "type"}) == "OnDelete")
    return on_delete_ready(*live, pods, revisions, same_configuration);
  const std::int64_t updated = get_int(*live, {"status", "updatedNumberScheduled"});
  if (updated != desired) return no(count_of(updated, desired, "pods run the current template"));
  if (available != desired) return no(count_of(available, desired, "pods available"));
  return {};
}

Readiness deployment_ready(const Json* live) {
  if (!live) return no("not created yet");
  if (get_int(*live, {"status", "observedGeneration"}) < get_int(*live, {"metadata", "generation"})) {
    return no("not yet seen by the Deployment controller");
  }
  const std::int64_t unavailable = get_int(*live, {"status", "unavailableReplicas"});
  if (unavailable != 0) return no(std::to_string(unavailable) + " replicas unavailable");
  return {};
}

}  // namespace gpuop::op
