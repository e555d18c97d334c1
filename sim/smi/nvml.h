// libnvidia-ml as nvidia-smi loads it.
#pragma once

#include <dlfcn.h>

#include <string>

#include "sim/nvml/nvml_abi.h"

namespace gpuop::sim::smi {

using Device = void*;

class Nvml {
 public:
  // By SONAME, as the real one; false when the library cannot be found.
  bool load() {
    handle_ = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_GLOBAL);
    return handle_ != nullptr;
  }
  template <class... Args>
  int call(const char* symbol, Args... args) {
    auto function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, symbol));
    return function ? function(args...) : nvml::kFunctionNotFound;
  }
  const char* error(int code) {
    auto function = reinterpret_cast<const char* (*)(int)>(dlsym(handle_, "nvmlErrorString"));
    return function ? function(code) : "Unknown Error";
  }
  template <std::size_t N = 96>
  std::string text(const char* symbol, Device device) {
    char out[N] = {};
    return call(symbol, device, static_cast<char*>(out), static_cast<unsigned>(N)) == 0 ? out : "[N/A]";
  }

 private:
  void* handle_ = nullptr;
};

// One field of --query-gpu. `nounits` leaves the unit out.
bool query_field(Nvml& nvml, const std::string& name, Device device, bool nounits, std::string* out);
// Its column title, with the unit.
bool query_title(const std::string& name, bool nounits, std::string* out);
void print_query_help();

void print_table(Nvml& nvml, const std::string& driver, int cuda, const std::string& version, unsigned count);
void print_details(Nvml& nvml, Device device, unsigned index);

}  // namespace gpuop::sim::smi
