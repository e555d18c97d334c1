#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cluster/runtime/containerd_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto document =
      gpuop::cluster::parse_toml(std::string_view(reinterpret_cast<const char*>(data), size), "f");
  if (document) (void)gpuop::cluster::decide_containerd_config({{"f", *document}});
  return 0;
}
