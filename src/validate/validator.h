// nvidia-validator: proves one stage of a node and leaves its gate file (operands-driver-validator.md §4).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "validate/driver.h"
#include "validate/kubelet_devices.h"

namespace gpuop::validate {

struct ValidatorOptions {
  std::string component;
  std::string node;
  std::string ns;
  std::string kubeconfig;
  kube::Client* client = nullptr;  // null: one is made from the kubeconfig
  bool with_wait = false;
  bool with_workload = true;
  bool cleanup_all = false;
  std::filesystem::path output_dir = "/run/nvidia/validations";
  Duration interval = 5s;  // between tries of what cannot be waited for by an event
  int metrics_port = 0;
  bool no_dev_char = false;
  std::filesystem::path gate_owner;  // file that says whose the gates are (gates.h); empty: everybody's
  std::string pod;                   // our pod's UID, where there is such a file
  DriverPaths driver;
  KubeletFolders kubelet;
  std::string default_workload;    // of nodes without a label that names one (validate/machines.h)
  Duration vgpu_limit = 300s;      // from a vGPU host's driver to what it enables
  Duration cuda_limit = 300s;      // 60 tries of 5 s upstream
  Duration capacity_limit = 150s;  // 30 tries of 5 s
  // toolkit: this container is older than the driver, so that the runtime had none to give it; the cuda
  // component's pod proves the runtime.
  bool proven_later = false;
  // cuda: its pod proves the toolkit as well, whose gate is opened with its own. `toolkit_configured`: the
  // file that says that the runtime can start such a pod; empty: it is not waited for.
  bool proves_toolkit = false;
  std::filesystem::path toolkit_configured;
  // Called whenever there is another reason to wait; `failing`: what was tried failed, and more than time is
  // missing. May be empty.
  std::function<void(bool failing, const std::string& why)> waiting;
};

// The components that run() knows.
std::vector<std::string> components();
// Names of the gate files that the components of nodes with containers leave.
std::vector<std::string> gates();
// Checks flags as upstream does; the message starts with the flag's letter form.
Result<> check_options(const ValidatorOptions& options);

// Runs one component to its end. Removes its gate first and makes it again only on success. kConflict:
// another validator has the gates. kCancelled when the loop was stopped meanwhile.
Result<> run(Loop& loop, const ValidatorOptions& options);

// Runs `attempt` until it succeeds, or fails with kConflict: at once, whenever something changes in `dirs`,
// and every `interval`. `waiting` as in the options: an error of kNotFound is no failure.
Result<> retry(Loop& loop, const std::vector<std::filesystem::path>& dirs, Duration interval,
               const std::function<Result<>()>& attempt,
               const std::function<void(bool failing, const std::string& why)>& waiting = {});

}  // namespace gpuop::validate
