// Strict reading of our own YAML files: typed values, and complaints with path, line and the nearest right
// name: "read fleet 'f.yaml': line 4: nodes[0].count: must be a whole number".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"
#include "base/yaml.h"

namespace gpuop {

// A place in a document, which must outlive it. Errors are kInvalid and begin with `doing`.
class YamlPlace {
 public:
  YamlPlace(const YamlDocument& document, std::string doing)
      : YamlPlace(document, std::move(doing), document.value, "") {}

  std::unexpected<Error> wrong(std::string_view key, const std::string& what) const;
  // A map with no other keys than these.
  Result<> only(const std::vector<std::string>& keys) const;
  bool has(std::string_view key) const;
  const Json& at(std::string_view key) const;  // of a key that is there
  const Json& value() const { return value_; }
  YamlPlace child(std::string_view key, const Json& value) const;
  YamlPlace item(std::string_view key, std::size_t index, const Json& value) const;

  // The fallback where the key is absent.
  Result<std::string> text(std::string_view key, std::string fallback) const;
  Result<std::int64_t> number(std::string_view key, std::int64_t fallback, std::int64_t low,
                              std::int64_t high) const;
  Result<double> fraction(std::string_view key, double fallback, double low, double high) const;
  Result<std::string> choice(std::string_view key, std::string fallback,
                             const std::vector<std::string>& choices) const;
  // "1m30s"; never negative.
  Result<Duration> span(std::string_view key, Duration fallback) const;
  // A text or a list of texts.
  Result<std::vector<std::string>> texts(std::string_view key) const;

 private:
  YamlPlace(const YamlDocument& document, std::string doing, const Json& value, std::string path)
      : document_(document), doing_(std::move(doing)), value_(value), path_(std::move(path)) {}

  const YamlDocument& document_;
  std::string doing_;
  const Json& value_;
  std::string path_;
};

}  // namespace gpuop
