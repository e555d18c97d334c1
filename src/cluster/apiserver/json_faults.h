// What is wrong with a JSON text, in the words of the real server's decoder; and keys that occur twice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpuop::cluster::api {

// "unexpected end of JSON input", "invalid character 't' after top-level value", …; "" for a good text.
std::string json_fault(std::string_view text);

// Dotted paths of keys that an object has already, in the order in which they stand. For good texts.
std::vector<std::string> duplicate_keys(std::string_view text);

// The start of a body as messages about it show it.
std::string body_summary(std::string_view text);

}  // namespace gpuop::cluster::api
