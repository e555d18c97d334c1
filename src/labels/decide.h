// The labels of a node's GPUs (device-plugin-gfd-mps.md §6.2 to §6.5): decided from facts.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "labels/facts.h"
#include "sharing/settings.h"

namespace gpuop::labels {

using Labels = std::map<std::string, std::string>;

struct Decision {
  Labels labels;
  std::vector<std::string> warnings;  // whole sentences, for the log
};

// `timestamp`: Unix seconds of the latest (re)load. Errors end the program: no NVML while fail-on-init-error
// holds, or a platform that nothing is known of.
Result<Decision> decide(const sharing::Settings& settings, const Facts& facts, std::int64_t timestamp);

// A label value from text that somebody else wrote: unfit characters are dropped, words joined by '-'.
std::string sanitise(std::string_view text);
// Model and suffixes ("MIG-1g.5gb", "SHARED") joined by '-', at most 63 characters: the model gives way.
std::string product_name(std::string_view model, const std::vector<std::string>& suffixes);
// "ampere" for 8.0 (§6.4).
std::string_view family_of(hardware::ComputeCapability capability);

// "key=value" lines, sorted.
std::string features_text(const Labels& labels);

}  // namespace gpuop::labels
