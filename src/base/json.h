// JSON values, and reading them without ceremony. Kubernetes objects stay JSON everywhere (architecture §6).
//
// Paths are given as key lists. Readers never throw: a missing key, a wrong type or a null answers the
// fallback, as Kubernetes readers treat absent fields.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpuop {

using Json = boost::json::value;
using JsonObject = boost::json::object;
using JsonArray = boost::json::array;
using Keys = std::initializer_list<std::string_view>;

// Strict RFC 8259 text, at most `max_depth` levels. Errors carry line and column.
Result<Json> parse_json(std::string_view text, std::size_t max_depth = 64);
// Compact text; object keys in their stored order.
std::string to_text(const Json& value);
// Two-space indented text with a trailing newline.
std::string to_pretty_text(const Json& value);
// Keys sorted at every level: the same text for equal values.
std::string to_canonical_text(const Json& value);

// The value at `keys` below `root`; nullptr when any step is absent or not an object.
const Json* find(const Json& root, Keys keys);
const Json* find(const JsonObject& root, std::string_view key);
Json* find_mutable(Json& root, Keys keys);

std::string_view get_string(const Json& root, Keys keys, std::string_view fallback = {});
std::int64_t get_int(const Json& root, Keys keys, std::int64_t fallback = 0);
double get_double(const Json& root, Keys keys, double fallback = 0);
bool get_bool(const Json& root, Keys keys, bool fallback = false);
// nullopt when absent or null or not a boolean.
std::optional<bool> find_bool(const Json& root, Keys keys);
// An empty array or object when absent or of another type.
const JsonArray& get_array(const Json& root, Keys keys);
const JsonObject& get_object(const Json& root, Keys keys);
bool has(const Json& root, Keys keys);

// Makes every object on the way; a non-object on the way is replaced.
Json& ensure(Json& root, Keys keys);
void set(Json& root, Keys keys, Json value);
inline void set(Json& root, Keys keys, std::string_view text) {
  set(root, keys, Json(text));
}
inline void set(Json& root, Keys keys, const char* text) {
  set(root, keys, Json(text));
}
// Removes the last key; order of the others stays. False when it was absent.
bool remove(Json& root, Keys keys);

// Views a JSON string; empty for any other kind.
std::string_view as_text(const Json& value);
// A string as it is, "" for null, any other value as compact text: as it is read in place of a text.
std::string plain_text(const Json& value);
// A std::string for storage.
std::string str(std::string_view view);

}  // namespace gpuop
