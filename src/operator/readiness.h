// Whether an operand's DaemonSet has done what its current form asks (operator.md §3.2). Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop::op {

struct Readiness {
  bool ready = true;
  std::string reason;  // why not: "2 of 3 pods available"
  bool fault = false;  // not ready, and time alone will not help
};

// `pods`: those that the DaemonSet's selector matches, or one of each form that runs and one that does not;
// `revisions`: the ControllerRevisions of its namespace. Both are only looked at for the OnDelete strategy.
// `live` null: it does not exist. `same_configuration`: a pod of an older template counts as current when
// that has the same driver configuration digest (operator.md §3.2, OURS: an edit that changes no driver would
// otherwise never be done).
Readiness daemonset_ready(const Json* live, const std::vector<std::shared_ptr<const Json>>& pods,
                          const std::vector<std::shared_ptr<const Json>>& revisions,
                          bool same_configuration = false);
Readiness deployment_ready(const Json* live);

}  // namespace gpuop::op
