// Profiles of any content: read or refused with a sentence.
#include <cstdint>
#include <string_view>

#include "sim/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto profile = gpuop::sim::parse_profile({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!profile && profile.error().text().empty()) __builtin_trap();
  if (profile && profile->board.gi_profile_count > gpuop::sim::kMaxGiProfiles) __builtin_trap();
  return 0;
}
