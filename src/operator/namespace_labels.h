// Labels of the operator's own namespace (operator.md §4.7). Pure.
#pragma once

#include "base/json.h"

namespace gpuop::op {

// The merge patch that gives `ns`, the live Namespace, the labels that it lacks; an empty object: none.
// `pod_security`: spec.psa.enabled. On OpenShift only the namespace nvidia-gpu-operator is touched, which is
// watched by the cluster's monitoring as well.
Json namespace_patch(const Json& ns, bool pod_security, bool openshift);

}  // namespace gpuop::op
