#include "base/yaml_place.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/text.h"

namespace gpuop {

std::unexpected<Error> YamlPlace::wrong(std::string_view key, const std::string& what) const {
  std::string path = key.empty() ? path_ : path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  return fail(Code::kInvalid, doing_ + ": line " + std::to_string(document_.line_of(path)) + ": " +
                                  (path.empty() ? "" : path + ": ") + what);
}

Result<> YamlPlace::only(const std::vector<std::string>& keys) const {
  if (!value_.is_object()) return wrong("", "must be a map");
  for (const auto& [key, value] : value_.get_object()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return wrong(key, "unknown key" + did_you_mean(key, keys));
    }
  }
  return {};
}

bool YamlPlace::has(std::string_view key) const {
  return value_.is_object() && find(value_.get_object(), key) != nullptr;
}
const Json& YamlPlace::at(std::string_view key) const {
  return *find(value_.get_object(), key);
}

YamlPlace YamlPlace::child(std::string_view key, const Json& value) const {
  return {document_, doing_, value, path_.empty() ? std::string(key) : path_ + "." + std::string(key)};
}
YamlPlace YamlPlace::item(std::string_view key, std::size_t index, const Json& value) const {
  return child(std::string(key) + "[" + std::to_string(index) + "]", value);
}

Result<std::string> YamlPlace::text(std::string_view key, std::string fallback) const {
  if (!has(key)) return fallback;
  const Json& value = at(key);
  // "22.04" without quotes is a number to YAML.
  if (value.is_int64() || value.is_double()) return wrong(key, "must be text: put it in quotes");
  if (!value.is_string()) return wrong(key, "must be text");
  return str(as_text(value));
}

Result<std::int64_t> YamlPlace::number(std::string_view key, std::int64_t fallback, std::int64_t low,
                                       std::int64_t high) const {
  if (!has(key)) return fallback;
  const Json& value = at(key);
  if (!value.is_int64()) return wrong(key, "must be a whole number");
  if (value.get_int64() < low || value.get_int64() > high) {
    return wrong(key, "must be from " + std::to_string(low) + " to " + std::to_string(high) + "; got " +
                          std::to_string(value.get_int64()));
  }
  return value.get_int64();
}

Result<double> YamlPlace::fraction(std::string_view key, double fallback, double low, double high) const {
  if (!has(key)) return fallback;
  const Json& value = at(key);
  if (!value.is_int64() && !value.is_double()) return wrong(key, "must be a number");
  const double got = value.is_int64() ? static_cast<double>(value.get_int64()) : value.get_double();
  if (!(got >= low && got <= high)) {
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "must be from %g to %g; got %g", low, high, got);
    return wrong(key, text.data());
  }
  return got;
}

Result<std::string> YamlPlace::choice(std::string_view key, std::string fallback,
                                      const std::vector<std::string>& choices) const {
  std::string value = TRY(text(key, std::move(fallback)));
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  return wrong(
      key, "must be one of " + join(choices, ", ") + "; got '" + value + "'" + did_you_mean(value, choices));
}

Result<Duration> YamlPlace::span(std::string_view key, Duration fallback) const {
  if (!has(key)) return fallback;
  // 5 without a unit is a number to YAML, and would be none in quotes either.
  if (at(key).is_number()) return wrong(key, "must be a span such as 1m30s; got " + to_text(at(key)));
  const std::string given = TRY(text(key, ""));
  const auto span = parse_go_duration(given);
  if (!span || *span < Duration::zero())
    return wrong(key, "must be a span such as 1m30s; got '" + given + "'");
  return *span;
}

Result<std::vector<std::string>> YamlPlace::texts(std::string_view key) const {
  if (!has(key)) return std::vector<std::string>{};
  if (!at(key).is_array()) return std::vector<std::string>{TRY(text(key, ""))};
  std::vector<std::string> out;
  for (const Json& one : at(key).get_array()) {
    if (!one.is_string()) return wrong(key, "must be a list of texts");
    out.push_back(str(as_text(one)));
  }
  return out;
}

}  // namespace gpuop
