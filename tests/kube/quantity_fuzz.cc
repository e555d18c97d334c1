#include "kube/object.h"

// The canonical text is of the same amount, and its own canonical text; but that of a binary amount without a
// binary suffix ("64000" of "62.5Ki") is read as a decimal one, whose text is another ("64k").
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  const Json text(std::string_view(reinterpret_cast<const char*>(data), size));
  const auto canonical = kube::canonical_quantity(text);
  const auto milli = kube::parse_quantity_milli(text);
  if (canonical.has_value() != milli.has_value()) __builtin_trap();
  if (!canonical) return 0;
  const auto again = kube::canonical_quantity(Json(*canonical));
  if (!again) __builtin_trap();
  const bool bare = canonical->find_first_not_of("-0123456789") == std::string::npos;
  if (*again != *canonical && !bare) __builtin_trap();
  const auto last = kube::canonical_quantity(Json(*again));
  if (!last || *last != *again) __builtin_trap();
  if (*kube::parse_quantity_milli(Json(*canonical)) != *milli) __builtin_trap();
  return 0;
}
