// Changing one key of a user's TOML file without touching anything else of its text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace gpuop::toolkit {

// Appends `value` to the list of texts at top-level key `key`, made before the first table when it is absent;
// nothing changes when the list has it already. The result is parsed and compared: an edit that would change
// anything else is an error.
Result<std::string> add_to_top_level_list(std::string_view text, std::string_view key,
                                          std::string_view value);

}  // namespace gpuop::toolkit
