// Patterns in which '*' stands for any run of characters.
#pragma once

#include <string_view>

namespace gpuop {

// Whether the whole text fits. An empty pattern fits the empty text alone.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace gpuop
