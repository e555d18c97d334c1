// YAML as an API server reads it, to the letter.
#pragma once

#include <string_view>
#include <vector>

#include "base/yaml.h"

namespace gpuop {

// Like parse_yaml(), and as Kubernetes' API server takes a request's body: plain y and n are booleans too,
// 1_000 is a number, !!binary is decoded, and plain keys that are no text (on, 010, 1.50) become what JSON
// writes for them.
Result<std::vector<YamlDocument>> parse_api_yaml(std::string_view text, std::string_view file);

}  // namespace gpuop
