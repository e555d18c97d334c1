// Where a live object is not as the operator wants it, and who changed it. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace gpuop::op {

// Every field of `wanted` has the same value in `live`; empty values of `wanted` may be absent there.
bool covers(const Json& live, const Json& wanted);

struct Difference {
  struct Step {
    std::string key;                   // of a map
    std::optional<std::size_t> index;  // in a list; then `key` is the item's name, or its index as text
  };
  std::vector<Step> path;
  std::string live;          // the value there, as text; "" where it is absent
  std::string text() const;  // "spec.template.spec.containers[dcgm-exporter].image"
  bool same_as(const Difference& other) const { return text() == other.text() && live == other.live; }
};

// Where `live` does not cover `wanted`: of DaemonSets, for which the operator's hash stands otherwise, the
// spec alone; of all other kinds also labels, annotations and the maps that are owned whole, such as a
// ConfigMap's data. Lists of different length, and lists whose items are not maps, differ as a whole.
std::vector<Difference> differences(const Json& live, const Json& wanted);

// The field managers other than `own` that own one of `found` (metadata.managedFields), each once.
// nullopt: the server keeps no such account of the object.
std::optional<std::vector<std::string>> managers_of(const Json& live, const std::vector<Difference>& found,
                                                    std::string_view own);

// "spec.replicas, spec.paused and 3 more fields"
std::string fields_text(const std::vector<Difference>& found);

}  // namespace gpuop::op
