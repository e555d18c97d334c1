// The commands that the chart's hooks run: manage-crds and cleanup-gpuclusters.
#pragma once

#include <optional>

namespace gpuop {

// The exit code of such a command, or nothing where the command line is the operator's own.
std::optional<int> run_hook(int argc, char** argv);

}  // namespace gpuop
