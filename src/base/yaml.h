// YAML in, JSON values out, with line numbers kept for messages. The one YAML reader of the project.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop {

struct YamlDocument {
  Json value;
  // Dotted path ("spec.driver.env[0].name"; "" is the document) to its 1-based line.
  std::map<std::string, int> lines;
  // Keys that occur twice in one map, as dotted paths; the last one won.
  std::vector<std::string> duplicate_keys;

  int line_of(std::string_view path) const;  // nearest known ancestor's line
};

// All documents of a stream, empty ones dropped. Plain scalars become null, bool, int, double or string by
// the YAML 1.1 rules of Kubernetes' own reader: yes/no/on/off are booleans, 010 is octal, dates stay text.
// `file` is used in messages: "read 'FILE': line 3, column 5: …".
Result<std::vector<YamlDocument>> parse_yaml(std::string_view text, std::string_view file);
// Exactly one document; none is an error.
Result<YamlDocument> parse_yaml_one(std::string_view text, std::string_view file);
// Block-style YAML, keys in stored order; strings quoted where they must be.
std::string to_yaml(const Json& value);

}  // namespace gpuop
