// Which of the free devices go well together (device-plugin-gfd-mps.md §4.2).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plugin/allocate.h"

namespace gpuop::plugin {

struct Preference {
  std::vector<std::string> ids;
  std::string problem;  // what made it fall back, for the log; empty when nothing did
};

// Never fails: an RPC error here would fail the pod for good. When the wish cannot be met the answer is the
// required devices and then free ones in list order, `size` at most (aligned allocation: nothing at all, as
// upstream answers).
Preference preferred(const Offer& offer, std::span<const std::string> available,
                     std::span<const std::string> required, int size);

// Sets of physical GPUs, as positions in `scores`. `available` in the order of preference among equals.
// Empty when there is no answer.
std::vector<int> aligned_set(const std::vector<std::vector<int>>& scores, const std::vector<int>& available,
                             const std::vector<int>& required, int size);

}  // namespace gpuop::plugin
