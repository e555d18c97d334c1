// What an API server's refusal means for whoever runs the cluster, in words: the right that is missing, the
// webhook or the quota that is in the way; and fields that a stale definition drops. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fleet/refusals.h"

namespace gpuop::op {

using fleet::cure_of_refusal;

// The fields that `wanted` (our CustomResourceDefinition) has in its version `version` and `live` has not, so
// that the API server drops them from every object: "spec.fleet", "status.observedGeneration". The topmost
// missing one stands for all below it.
std::vector<std::string> dropped_fields(const Json& live, const Json& wanted, std::string_view version);

}  // namespace gpuop::op
