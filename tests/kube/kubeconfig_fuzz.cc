#include "kube/config.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = gpuop::kube::parse_kubeconfig(text, "/fuzz/config");
  if (config && config->server.empty()) __builtin_trap();
  if (!config && config.error().text().empty()) __builtin_trap();
  return 0;
}
