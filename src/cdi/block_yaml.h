// A quick reader for the YAML that generators of CDI specs write: block maps and lists, one-line scalars. A
// container start reads whole folders of such files, and a general reader takes milliseconds for each.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"

namespace gpuop::cdi {

// The value, exactly as the general reader (base/yaml.h) answers it; nullopt for anything that is not surely
// of that plain kind: the general reader then decides, and words the errors.
std::optional<Json> parse_block_yaml(std::string_view text);

}  // namespace gpuop::cdi
