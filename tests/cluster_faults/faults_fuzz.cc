// Any text: an error, or a plan that its own text reads back to.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/faults/faults.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::cluster;
  const auto plan = parse_faults({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!plan) return 0;
  const std::string text = faults_text(*plan);
  const auto again = parse_faults(text, "again.yaml");
  if (!again || faults_text(*again) != text) std::abort();
  return 0;
}
