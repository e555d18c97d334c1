// The gate that operands wait at before they look at the driver, and the facts in it.
#pragma once

#include <map>
#include <string>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop {

// Waits until the driver-ready file exists and puts its KEY=value lines over `env`, as sourcing it would.
//
// DRIVER_READY_FILE in `env` names the file; when it is not set, /run/nvidia/validations/driver-ready is
// waited for if its folder is mounted here, and nothing is waited for otherwise (an operand that runs without
// an operator). An empty DRIVER_READY_FILE: no gate. kCancelled: the loop was stopped meanwhile.
Result<> pass_driver_gate(Loop& loop, std::map<std::string, std::string>& env);

// This process' environment as a map.
std::map<std::string, std::string> environment_map();

}  // namespace gpuop
