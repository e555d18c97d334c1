#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cluster/launcher/mounts.h"
#include "cluster/launcher/oci_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto config = gpuop::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!config) return 0;
  auto spec = gpuop::cluster::parse_oci_spec(*config);
  if (!spec) return 0;
  for (const auto& mount : spec->mounts) (void)gpuop::cluster::parse_mount_options(mount.options);
  return 0;
}
