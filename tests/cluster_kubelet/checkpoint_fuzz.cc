// A device checkpoint that was read is written again as the same grants, whatever the file held.
#include <cstdlib>

#include "cluster/kubelet/devices.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::cluster;
  const auto read = read_checkpoint(std::string(reinterpret_cast<const char*>(data), size));
  if (!read) return 0;
  const auto again = read_checkpoint(write_checkpoint(*read));
  if (!again || again->grants.size() != read->grants.size() || again->registered != read->registered)
    std::abort();
  return 0;
}
