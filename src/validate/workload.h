// The workload pods that prove a GPU can be used (operands-driver-validator.md §4.3).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "validate/kubelet_devices.h"

namespace gpuop::validate {

struct WorkloadOptions {
  std::string node;
  std::string ns;
  std::string image;                      // VALIDATOR_IMAGE
  std::string pull_policy;                // VALIDATOR_IMAGE_PULL_POLICY
  std::vector<std::string> pull_secrets;  // VALIDATOR_IMAGE_PULL_SECRETS, split at commas
  std::string runtime_class;              // VALIDATOR_RUNTIME_CLASS
  // A folder of the node, mounted here by the same path, into which the CUDA pod's check writes that it has
  // passed; a kubelet tells a second later that it ended well. Empty: only the kubelet tells.
  std::string proof_folder;  // VALIDATOR_PROOF_FOLDER
};
// From the environment.
WorkloadOptions workload_options(std::string node, std::string ns);

enum class Workload { kCuda, kPlugin };

// The pod; `owner`: the DaemonSet nvidia-operator-validator, whose owners and tolerations it gets.
// `resource`: for kPlugin, what it asks for. `proof`: the file in the proof folder that a kCuda writes;
// empty: none. Pure.
Json workload_pod(Workload which, const WorkloadOptions& options, const Json& owner,
                  std::string_view resource, std::string_view proof = {});

// The resource that kPlugin asks for, from the node's allocatable: MIG names sorted first, then exactly
// nvidia.com/gpu, then the rest sorted. kNotFound when there is none. Pure.
Result<std::string> pick_resource(const Json& node);
// The check of a workload pod, its init container, ended well. What follows only prints a line, and takes the
// kubelet two or three seconds. Pure.
bool check_passed(const Json& pod);
// Some capacity of nvidia.com/gpu* or nvidia.com/mig-* is at least one.
bool has_gpu_capacity(const Json& node);
// The node's label nvidia.com/gpu.deploy.device-plugin switches the device plugin off: none will be offered.
bool plugin_is_off(const Json& node);

// Deletes earlier pods of the kind on the node, makes a new one and waits until its check has passed.
// kTimeout says what the pod was doing.
Result<> run_workload(Loop& loop, kube::Client& client, Workload which, const WorkloadOptions& options,
                      Duration limit);
// Waits until the node's status shows GPU capacity or, where `kubelet` is given, until the kubelet itself
// says that it has GPUs: whichever is first. The log says which it was. false: the node's label switches the
// device plugin off, there is nothing to wait for.
Result<bool> wait_for_capacity(Loop& loop, kube::Client& client, const std::string& node, Duration limit,
                               const std::optional<KubeletFolders>& kubelet, Duration interval);

}  // namespace gpuop::validate
