// What the driver manager decides about a node's labels and pods (operands-driver-validator.md §7.2, §7.3).
// Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace gpuop::driver {

// The labels that pause an operand on a node, without the prefix nvidia.com/gpu.deploy.
const std::vector<std::string>& operand_labels();
std::string operand_label(std::string_view operand);

// "true" → "paused-for-driver-upgrade", other v → "v_paused-for-driver-upgrade"; "", "false" and what is
// paused stay.
std::string paused(std::string_view value);
std::string restored(std::string_view value);
// Labels whose value differs after `change`; absent and empty ones never (D-18).
std::map<std::string, std::string> changed_labels(const Json& node, const std::string& extra_label,
                                                  std::string (*change)(std::string_view));

// App labels of the operand pods that must have ended before the driver can go, given the node's labels.
std::vector<std::string> waited_apps(const Json& node);
// Whether the pod is one of them, in the operator's namespace, or a client of gpu.deploy.client.
bool is_waited_for(const Json& pod, const std::string& ns, const std::vector<std::string>& apps,
                   bool clients);

// Requests or limits of nvidia.com/gpu… or nvidia.com/mig-… in any container, init containers too.
bool uses_gpu(const Json& pod);
bool is_finished(const Json& pod);

struct DrainRules {
  bool only_gpu_pods = true;
  bool force = false;             // pods without a controller
  bool delete_empty_dir = false;  // pods with emptyDir volumes
  std::string selector;           // label selector of a full drain; not applied to GPU pods
};
struct DrainPlan {
  std::vector<Json> evict;
  std::vector<std::string> blockers;  // "ns/name: why": nothing is evicted when there is one
  std::vector<std::string> left;      // pods of DaemonSets, and mirror pods
};
DrainPlan plan_drain(const std::vector<Json>& pods, const DrainRules& rules);

}  // namespace gpuop::driver
