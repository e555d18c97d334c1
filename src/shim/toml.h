// TOML in and out, as JSON values. Dates become text.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace gpuop {

// An object, keys sorted. Errors: "read 'FILE': line 3, column 5: …".
Result<Json> parse_toml(std::string_view text, std::string_view file);

// Keys sorted inside each table, scalars before sub-tables, `indent` spaces a level; arrays of tables as
// [[…]]. A table that holds only sub-tables still gets its header.
std::string to_toml(const Json& table, int indent = 2);

// A string as a TOML basic string, quotes included.
std::string toml_string(std::string_view text);

}  // namespace gpuop
