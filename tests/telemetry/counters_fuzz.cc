// Collectors files of any bytes.
#include <string_view>

#include "telemetry/counters.h"

using namespace gpuop::telemetry;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto set = parse_counters(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.csv");
  if (!set) return 0;
  for (const Counter& counter : set->families)
    if (!field_id(counter.name) || counter.kind == Kind::kLabel) __builtin_trap();
  drop_profiling(*set);
  return 0;
}
