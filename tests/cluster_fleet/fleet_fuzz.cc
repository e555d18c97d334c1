#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cluster/fleet/fleet.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)gpuop::cluster::parse_fleet(std::string_view(reinterpret_cast<const char*>(data), size), "f",
                                    {"A100", "L4"});
  return 0;
}
