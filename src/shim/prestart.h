// nvidia-container-runtime-hook: the prestart hook that engines insert for `docker --gpus` and the like
// (container-toolkit-cdi.md §3.7).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "shim/config.h"

namespace gpuop::shim {

// Whether the container asks for GPUs and, if so, why this hook refuses it: everything but mode legacy
// belongs to the runtime. Answers false for a container that asks for nothing.
Result<bool> check_prestart(const Json& oci, const Config& config);

// The program; `args` without its name. Exit status 0, 1, or 2 for wrong use.
int prestart_main(const std::vector<std::string>& args);

}  // namespace gpuop::shim
