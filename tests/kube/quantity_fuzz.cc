#include "kube/object.h"

// The canonical text is canonical, and of the same amount.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  const Json text(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto canonical = kube::canonical_quantity(text);
  const auto milli = kube::parse_quantity_milli(text);
  if (canonical.has_value() != milli.has_value()) __builtin_trap();
  if (!canonical) return 0;
  const auto again = kube::canonical_quantity(Json(*canonical));
  if (!again || *again != *canonical) __builtin_trap();
  if (*kube::parse_quantity_milli(Json(*canonical)) != *milli) __builtin_trap();
  return 0;
}
