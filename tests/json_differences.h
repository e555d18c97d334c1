// Where two JSON values differ, for tests that compare objects and say what is otherwise.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop {

struct JsonDifference {
  std::string path;  // ".spec.driver.env[0].name"
  const Json* left;  // null: absent there
  const Json* right;
};

// One for each smallest part that differs, by the order of keys; lists of different lengths differ as a
// whole.
inline void json_differences(const Json& left, const Json& right, const std::string& path,
                             std::vector<JsonDifference>& out) {
  if (left.is_object() && right.is_object()) {
    std::vector<std::string> keys;
    for (const Json* one : {&left, &right}) {
      for (const auto& [key, value] : one->get_object()) keys.emplace_back(key);
    }
    std::ranges::sort(keys);
    keys.erase(std::ranges::unique(keys).begin(), keys.end());
    for (const std::string& key : keys) {
      const Json* a = find(left, {key});
      const Json* b = find(right, {key});
      if (a && b)
        json_differences(*a, *b, path + "." + key, out);
      else
        out.push_back({path + "." + key, a, b});
    }
  } else if (left.is_array() && right.is_array() && left.get_array().size() == right.get_array().size()) {
    for (std::size_t i = 0; i < left.get_array().size(); ++i)
      json_differences(left.get_array()[i], right.get_array()[i], path + "[" + std::to_string(i) + "]", out);
  } else if (to_canonical_text(left) != to_canonical_text(right)) {
    out.push_back({path, &left, &right});
  }
}

}  // namespace gpuop
