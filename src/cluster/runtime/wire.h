// The runtime interface's structs as JSON: for the socket between kubelet and runtime, and for the state on
// disk.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

Json to_json(const SandboxSpec& spec);
Json to_json(const ContainerSpec& spec);
Json to_json(const ContainerInfo& info);
// Lenient: what is absent or of another type has its default. Both sides are ours.
SandboxSpec sandbox_from_json(const Json& json);
ContainerSpec container_from_json(const Json& json);
ContainerInfo info_from_json(const Json& json);

// Errors travel with their code.
Json to_json(const Error& error);
Error error_from_json(const Json& json);

}  // namespace gpuop::cluster
