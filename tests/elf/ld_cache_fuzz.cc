// The loader's cache of an untrusted root.
#include <cstdlib>

#include "elf/ld_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  auto entries = elf::parse_ld_cache(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!entries) return 0;
  auto again = elf::parse_ld_cache(elf::format_ld_cache(*entries));
  if (!again || again->size() != entries->size()) std::abort();
  return 0;
}
