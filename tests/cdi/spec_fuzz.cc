// CDI specs: whatever is accepted is written and read back as the same, and the quick YAML reader agrees with
// the general one.
#include <cstdlib>

#include "base/yaml.h"
#include "cdi/block_yaml.h"
#include "cdi/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto quick = cdi::parse_block_yaml(text)) {
    auto slow = parse_yaml(text, "t");
    if (!slow || slow->size() != 1 || to_canonical_text(slow->front().value) != to_canonical_text(*quick))
      std::abort();
  }
  auto spec = cdi::parse_spec(text, "t");
  if (!spec) return 0;
  auto json = cdi::parse_spec(cdi::to_json_text(*spec), "t");
  auto yaml = cdi::parse_spec(cdi::to_yaml_text(*spec), "t");
  if (!json || !yaml || *json != *yaml) std::abort();
  return 0;
}
