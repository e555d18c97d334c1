// Text in double quotes, as files of several formats hold it.
#pragma once

#include <string>
#include <string_view>

namespace gpuop {

// \" \\ \n \t \r stand for themselves, other control characters become `control` and two hex digits: "\\x" as
// in Go, "\\u00" as in TOML.
std::string in_quotes(std::string_view text, std::string_view control);

}  // namespace gpuop
