// config.toml: errors or a configuration, never a crash; what is understood is written and read back the
// same.
#include <cstdlib>

#include "shim/config.h"
#include "shim/toml.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto config = shim::parse_config(text, "t");
  auto tree = parse_toml(text, "t");
  if (config && !tree) std::abort();
  return 0;
}
