// PTX of any content: parsed or refused, and what is parsed runs within its limits.
#include <cstdint>
#include <string_view>

#include "sim/cuda/ptx.h"

namespace {

class Buffer : public gpuop::sim::ptx::Memory {
 public:
  unsigned char* at(std::uint64_t address, std::uint64_t size) override {
    if (address < 4096 || address - 4096 > sizeof bytes_ || size > sizeof bytes_ - (address - 4096))
      return nullptr;
    return bytes_ + (address - 4096);
  }

 private:
  alignas(16) unsigned char bytes_[4096] = {};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::sim::ptx;  // NOLINT
  Module module;
  std::string log;
  if (!parse({reinterpret_cast<const char*>(data), size}, &module, &log)) {
    if (log.empty()) __builtin_trap();
    return 0;
  }
  Buffer buffer;
  for (auto& v : module.variables) v.address = 4096;
  bind_variables(module);
  for (const Kernel& k : module.kernels) {
    std::string parameters(k.parameter_bytes, '\x10');
    run(k, {1, 1, 1}, {2, 1, 1}, parameters, 0, buffer, 5000);
  }
  return 0;
}
