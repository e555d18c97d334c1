// Logging: one line an event, key=value pairs or JSON, to standard error. Cheap header: no formatting library
// reaches the includer.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace gpuop::log {

enum class Level { kDebug, kInfo, kWarn, kError };
enum class Format { kText, kJson };

// Call once in main. `component` is shown on every line.
void setup(std::string component, Level level = Level::kInfo, Format format = Format::kText);
Result<Level> parse_level(std::string_view name);
bool enabled(Level level);

// A key with its value already as text.
struct Field {
  template <class T>
  Field(std::string_view k, const T& v) : key(k) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      value = std::string(std::string_view(v));
    } else if constexpr (std::is_same_v<T, bool>) {
      value = v ? "true" : "false";
    } else if constexpr (std::is_same_v<T, Error>) {
      value = v.text();
    } else {
      value = std::to_string(v);
    }
  }
  std::string_view key;
  std::string value;
};
using Fields = std::initializer_list<Field>;

void write(Level level, std::string_view message, Fields fields);
inline void debug(std::string_view message, Fields fields = {}) {
  write(Level::kDebug, message, fields);
}
inline void info(std::string_view message, Fields fields = {}) {
  write(Level::kInfo, message, fields);
}
inline void warn(std::string_view message, Fields fields = {}) {
  write(Level::kWarn, message, fields);
}
inline void error(std::string_view message, Fields fields = {}) {
  write(Level::kError, message, fields);
}

}  // namespace gpuop::log
