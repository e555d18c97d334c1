// What an API server refuses, in words: what is in the way, and whose pods it does not take. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fleet/chain.h"

namespace gpuop::fleet {

// What to do about a refusal, from the server's sentence: "; add to the ClusterRole of ServiceAccount … the
// rule …". "" when the sentence is none of those that are known.
std::string cure_of_refusal(std::string_view message);

// Why DaemonSets could not make pods, by their names: what the last of their Events FailedCreate says.
std::map<std::string, std::string> refused_pods(const Objects& events);

// Which Events these are, and what of them is read, for an informer.
inline constexpr std::string_view kRefusedPods = "reason=FailedCreate";
std::vector<std::string> event_fields();

}  // namespace gpuop::fleet
