#include "operator/namespace_labels.h"

#include "kube/object.h"

namespace gpuop::op {

Json namespace_patch(const Json& ns, bool pod_security, bool openshift) {
  Json patch = JsonObject{};
  const bool openshift_s_own = kube::name_of(ns) == "nvidia-gpu-operator";
  const auto& labels = get_object(ns, {"metadata", "labels"});
  if (openshift && !openshift_s_own) return patch;
  if (pod_security) {
    for (const char* mode : {"enforce", "audit", "warn"}) {
      const std::string key = std::string("pod-security.kubernetes.io/") + mode;
      if (kube::label(ns, key) != "privileged") set(patch, {"metadata", "labels", key}, "privileged");
    }
  }
  if (openshift && !labels.contains("openshift.io/cluster-monitoring"))
    set(patch, {"metadata", "labels", "openshift.io/cluster-monitoring"}, "true");
  return patch;
}

}  // namespace gpuop::op
