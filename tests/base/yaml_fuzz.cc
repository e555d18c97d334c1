#include <cstdint>
#include <cstdlib>

#include "base/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto documents = gpuop::parse_yaml(text, "fuzz.yaml")) {
    for (const auto& document : *documents) {
      // What we write we must read back.
      if (!gpuop::parse_yaml(gpuop::to_yaml(document.value), "again.yaml")) std::abort();
    }
  }
  (void)gpuop::parse_json(text);
  return 0;
}
