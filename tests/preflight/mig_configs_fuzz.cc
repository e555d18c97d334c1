// A file of MIG configurations.
#include <cstdint>
#include <cstdlib>
#include <set>

#include "preflight/config_texts.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto configs = gpuop::preflight::parse_mig_configs({reinterpret_cast<const char*>(data), size}, "f");
  if (!configs) {
    if (configs.error().text().empty()) std::abort();
    return 0;
  }
  const std::set<std::string> names(configs->names.begin(), configs->names.end());
  if (names.size() != configs->names.size()) std::abort();
  return 0;
}
