// The workload pods that prove a GPU can be used (operands-driver-validator.md §4.3).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"

namespace gpuop::validate {

struct WorkloadOptions {
  std::string node;
  std::string ns;
  std::string image;                      // VALIDATOR_IMAGE
  std::string pull_policy;                // VALIDATOR_IMAGE_PULL_POLICY
  std::vector<std::string> pull_secrets;  // VALIDATOR_IMAGE_PULL_SECRETS, split at commas
  std::string runtime_class;              // VALIDATOR_RUNTIME_CLASS
};
// From the environment.
WorkloadOptions workload_options(std::string node, std::string ns);

enum class Workload { kCuda, kPlugin };

// The pod; `owner`: the DaemonSet nvidia-operator-validator, whose owners and tolerations it gets.
// `resource`: for kPlugin, what it asks for. Pure.
Json workload_pod(Workload which, const WorkloadOptions& options, const Json& owner,
                  std::string_view resource);

// The resource that kPlugin asks for, from the node's allocatable: MIG names sorted first, then exactly
// nvidia.com/gpu, then the rest sorted. kNotFound when there is none. Pure.
Result<std::string> pick_resource(const Json& node);
// Some capacity of nvidia.com/gpu* or nvidia.com/mig-* is at least one.
bool has_gpu_capacity(const Json& node);

// Deletes earlier pods of the kind on the node, makes a new one and waits until it succeeded. kTimeout says
// what the pod was doing.
Result<> run_workload(Loop& loop, kube::Client& client, Workload which, const WorkloadOptions& options,
                      Duration limit);
// Waits until the node has GPU capacity.
Result<> wait_for_capacity(Loop& loop, kube::Client& client, const std::string& node, Duration limit);

}  // namespace gpuop::validate
