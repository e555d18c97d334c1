#include "base/json.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/parse_options.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <cmath>

#include "base/json_arena.h"

namespace gpuop {
namespace {

const JsonArray kEmptyArray;
const JsonObject kEmptyObject;

std::pair<int, int> line_and_column(std::string_view text, std::size_t offset) {
  int line = 1;
  int column = 1;
  for (std::size_t i = 0; i < std::min(offset, text.size()); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return {line, column};
}

void append_pretty(std::string& out, const Json& value, int indent) {
  const std::string pad(static_cast<std::size_t>(indent) * 2, ' ');
  if (value.is_object() && !value.get_object().empty()) {
    out += "{\n";
    bool first = true;
    for (const auto& [key, item] : value.get_object()) {
      if (!first) out += ",\n";
      first = false;
      out += pad;
      out += "  ";
      out += boost::json::serialize(Json(key));
      out += ": ";
      append_pretty(out, item, indent + 1);
    }
    out += '\n';
    out += pad;
    out += '}';
  } else if (value.is_array() && !value.get_array().empty()) {
    out += "[\n";
    bool first = true;
    for (const auto& item : value.get_array()) {
      if (!first) out += ",\n";
      first = false;
      out += pad;
      out += "  ";
      append_pretty(out, item, indent + 1);
    }
    out += '\n';
    out += pad;
    out += ']';
  } else {
    out += boost::json::serialize(value);
  }
}

void append_canonical(std::string& out, const Json& value) {
  if (value.is_object()) {
    std::vector<std::string_view> keys;
    for (const auto& [key, item] : value.get_object()) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    out += '{';
    bool first = true;
    for (auto key : keys) {
      if (!first) out += ',';
      first = false;
      out += boost::json::serialize(Json(key));
      out += ':';
      append_canonical(out, value.get_object().at(key));
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const auto& item : value.get_array()) {
      if (!first) out += ',';
      first = false;
      append_canonical(out, item);
    }
    out += ']';
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

namespace {

// Whether a number of the text may be out of a double's range: one with an exponent, or some 300 digits in a
// row.
bool may_be_out_of_range(std::string_view text) {
  std::size_t digits = 0;
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      if (++digits > 300) return true;
    } else {
      if ((c == 'e' || c == 'E') && digits > 0) return true;
      digits = 0;
    }
  }
  return false;
}

bool is_finite(const Json& value) {
  if (value.is_double()) return std::isfinite(value.get_double());
  if (value.is_array()) return std::ranges::all_of(value.get_array(), is_finite);
  if (value.is_object()) {
    return std::ranges::all_of(value.get_object(),
                               [](const auto& entry) { return is_finite(entry.value()); });
  }
  return true;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::size_t max_depth) {
  return parse_json_into({}, text, max_depth);
}

Result<Json> parse_json_into(const boost::json::storage_ptr& where, std::string_view text,
                             std::size_t max_depth) {
  boost::json::parse_options options;
  options.max_depth = max_depth;
  unsigned char scratch[4096];  // for what is open while it reads
  boost::json::stream_parser parser({}, options, scratch);
  parser.reset(where);
  boost::system::error_code error;
  const std::size_t taken = parser.write_some(text.data(), text.size(), error);
  if (!error) {
    std::size_t rest = taken;
    while (rest < text.size() && std::string_view(" \t\r\n").find(text[rest]) != std::string_view::npos)
      ++rest;
    if (rest < text.size()) error = boost::json::error::extra_data;
  }
  if (!error) parser.finish(error);
  if (error) {
    const auto [line, column] = line_and_column(text, taken);
    return fail(Code::kInvalid, "JSON line " + std::to_string(line) + ", column " + std::to_string(column) +
                                    ": " + error.message());
  }
  Json value = parser.release();
  // Boost reads 1e400 and 400 nines as infinity and 0e999 as not-a-number, which no JSON text can say again.
  if (may_be_out_of_range(text) && !is_finite(value)) {
    return fail(Code::kInvalid, "JSON: a number is out of range");
  }
  return value;
}

std::string to_text(const Json& value) {
  return boost::json::serialize(value);
}

std::string to_pretty_text(const Json& value) {
  std::string out;
  append_pretty(out, value, 0);
  out += '\n';
  return out;
}

std::string to_canonical_text(const Json& value) {
  std::string out;
  append_canonical(out, value);
  return out;
}

const Json* find(const JsonObject& root, std::string_view key) {
  return root.if_contains(key);
}

const Json* find(const Json& root, Keys keys) {
  const Json* at = &root;
  for (auto key : keys) {
    if (!at->is_object()) return nullptr;
    at = at->get_object().if_contains(key);
    if (!at) return nullptr;
  }
  return at;
}

Json* find_mutable(Json& root, Keys keys) {
  return const_cast<Json*>(find(root, keys));
}

std::string_view get_string(const Json& root, Keys keys, std::string_view fallback) {
  const Json* at = find(root, keys);
  return at && at->is_string() ? std::string_view(at->get_string()) : fallback;
}

std::int64_t get_int(const Json& root, Keys keys, std::int64_t fallback) {
  const Json* at = find(root, keys);
  if (!at) return fallback;
  if (at->is_int64()) return at->get_int64();
  if (at->is_uint64() && at->get_uint64() <= INT64_MAX) return static_cast<std::int64_t>(at->get_uint64());
  if (at->is_double() && std::abs(at->get_double()) < 9e15 &&
      at->get_double() == std::trunc(at->get_double())) {
    return static_cast<std::int64_t>(at->get_double());
  }
  return fallback;
}

double get_double(const Json& root, Keys keys, double fallback) {
  const Json* at = find(root, keys);
  if (!at || !at->is_number()) return fallback;
  if (at->is_double()) return at->get_double();
  return at->is_int64() ? static_cast<double>(at->get_int64()) : static_cast<double>(at->get_uint64());
}

std::optional<bool> find_bool(const Json& root, Keys keys) {
  const Json* at = find(root, keys);
  if (!at || !at->is_bool()) return std::nullopt;
  return at->get_bool();
}

bool get_bool(const Json& root, Keys keys, bool fallback) {
  return find_bool(root, keys).value_or(fallback);
}

const JsonArray& get_array(const Json& root, Keys keys) {
  const Json* at = find(root, keys);
  return at && at->is_array() ? at->get_array() : kEmptyArray;
}

const JsonObject& get_object(const Json& root, Keys keys) {
  const Json* at = find(root, keys);
  return at && at->is_object() ? at->get_object() : kEmptyObject;
}

bool has(const Json& root, Keys keys) {
  return find(root, keys) != nullptr;
}

Json& ensure(Json& root, Keys keys) {
  Json* at = &root;
  for (auto key : keys) {
    if (!at->is_object()) at->emplace_object();
    at = &at->get_object()[key];
  }
  return *at;
}

void set(Json& root, Keys keys, Json value) {
  ensure(root, keys) = std::move(value);
}

bool remove(Json& root, Keys keys) {
  if (keys.size() == 0) return false;
  Json* at = &root;
  auto key = keys.begin();
  for (; key + 1 != keys.end(); ++key) {
    if (!at->is_object()) return false;
    at = at->get_object().if_contains(*key);
    if (!at) return false;
  }
  if (!at->is_object()) return false;
  auto& object = at->get_object();
  auto found = object.find(*key);
  if (found == object.end()) return false;
  object.stable_erase(found);
  return true;
}

std::string_view as_text(const Json& value) {
  return value.is_string() ? std::string_view(value.get_string()) : std::string_view();
}

std::string plain_text(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? str(as_text(value)) : to_text(value);
}

std::string str(std::string_view view) {
  return std::string(view);
}

}  // namespace gpuop
