// OCI hooks: programs that are run with the container's state on standard input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cluster/launcher/oci_spec.h"

namespace gpuop::cluster {

// Runs the hooks one after another in the caller's namespaces and waits for each; the first that fails ends
// it. A hook's environment is what its entry says and GPUOP_KERNEL_ROOT, never the caller's: a hook that
// inherits what an image chose is a way out of the container (container-toolkit-cdi.md §6.4, S8). Error:
// "error running createContainer hook #0: 'PATH': exit status 1, stderr: …".
Result<> run_hooks(std::string_view stage, const std::vector<OciHook>& hooks, const Json& state);

}  // namespace gpuop::cluster
