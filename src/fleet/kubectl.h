// The kubectl commands that cures name. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace gpuop::fleet {

// "kubectl -n NAMESPACE WHAT NAME"; `what` is "logs", "describe pod", …; without a namespace no -n.
std::string kubectl(std::string_view ns, std::string_view what, std::string_view name);
// The same of an object by its metadata.
std::string kubectl(const Json& object, std::string_view what);

}  // namespace gpuop::fleet
