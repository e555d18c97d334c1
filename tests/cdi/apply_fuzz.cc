// The OCI spec editor: any JSON that parses can be edited, and the rest of it stays.
#include <cstdlib>

#include "cdi/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  auto oci = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!oci) return 0;
  cdi::Edits edits;
  edits.env = {"A=1"};
  edits.device_nodes.push_back({"/dev/gpuop-none", "", "c", 195, 0, {}, "rw", {}, {}});
  edits.mounts.push_back({"/x", "/y", {"rbind"}, ""});
  edits.hooks.push_back({"createContainer", "/h", {"h"}, {"A=b"}, {}});
  edits.additional_gids = {44};
  edits.net_devices.push_back({"eth0", "eth1"});
  if (!cdi::apply(*oci, edits)) return 0;
  std::string once = to_text(*oci);
  if (!parse_json(once, 128)) std::abort();
  return 0;
}
