// Any JSON as a ClusterPolicy: no crash, and what is accepted is stored the same way twice.
#include <cstdlib>

#include "policy/cluster_policy.h"
#include "policy/crds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace gpuop;
  Result<Json> json = parse_json({reinterpret_cast<const char*>(bytes), size});
  if (!json) return 0;
  (void)policy::parse_cluster_policy(*json);
  if (const Json* spec = find(*json, {"spec"})) {
    for (std::string_view kind : {"ClusterPolicy", "NVIDIADriver"}) {
      Result<Json> once = policy::stored_spec(kind, *spec);
      if (once && to_text(*policy::stored_spec(kind, *once)) != to_text(*once)) std::abort();
    }
  }
  return 0;
}
