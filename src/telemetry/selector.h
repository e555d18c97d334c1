// Device selectors: which entities have samples (telemetry.md §2.4).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "telemetry/facts.h"

namespace gpuop::telemetry {

struct Selector {
  bool flexible = true;  // "f": of each GPU its instances, or itself where it has none
  // Otherwise: the whole things ("g") and the parts ("i"); an empty list means all of them.
  std::optional<std::vector<unsigned>> majors;
  std::optional<std::vector<unsigned>> minors;
  bool operator==(const Selector&) const = default;
};

Result<Selector> parse_selector(std::string_view text);

struct Selection {
  std::vector<EntityKey> entities;  // sorted
  // "couldn't find requested GPU ID '9'": what the selector names and the node lacks.
  std::vector<std::string> missing;
};
Selection select(const Selector& selector, const std::vector<GpuFacts>& gpus);

}  // namespace gpuop::telemetry
