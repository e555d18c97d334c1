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
  bool added = false;        // the operator says nothing there
  std::string text() const;  // "spec.template.spec.containers[dcgm-exporter].image"
  bool same_as(const Difference& other) const { return text() == other.text() && live == other.live; }
};

// Where `live` does not cover `wanted`: spec, labels, annotations and owners; and what is live and not wanted
// of the parts that are owned whole: a DaemonSet's spec but for its pods' labels and annotations (what the
// API server fills in by itself is no difference), a ConfigMap's data, a Role's rules, a RuntimeClass's
// scheduling. Lists of different length, and lists whose items are not maps, differ as a whole.
std::vector<Difference> differences(const Json& live, const Json& wanted);
// Those of `found` that decide on which nodes a DaemonSet's pods run.
std::vector<Difference> of_placement(const std::vector<Difference>& found);

// Those of `found` that another manager than `own` adds by server-side apply and that do not decide where
// pods run: two who apply one object each have their own fields of it.
std::vector<Difference> applied_beside(const Json& live, const std::vector<Difference>& found,
                                       std::string_view own);

// The field managers other than `own` that own one of `found` (metadata.managedFields), each once.
// nullopt: the server keeps no such account of the object.
std::optional<std::vector<std::string>> managers_of(const Json& live, const std::vector<Difference>& found,
                                                    std::string_view own);

// "spec.replicas, spec.paused and 3 more fields"
std::string fields_text(const std::vector<Difference>& found);

}  // namespace gpuop::op
