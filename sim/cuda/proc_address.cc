// cuGetProcAddress: the newest form of a function, by its base name.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <string>

#include "sim/cuda/driver.h"

using namespace gpuop::sim::cuda;  // NOLINT: the file defines C symbols only

CUDA_EXPORT int cuGetProcAddress(const char* symbol, void** out, int cuda_version, std::uint64_t) {
  if (!symbol || !out) return kInvalidValue;
  // Our own symbols only: by the handle of this library, not the process's.
  Dl_info self{};
  static void* handle = dladdr(reinterpret_cast<void*>(&cuGetProcAddress), &self)
                            ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                            : nullptr;
  if (!handle) return kUnknown;
  (void)cuda_version;
  // Context creation takes other arguments since CUDA 11.4: callers by this name mean the old form.
  int newest = strcmp(symbol, "cuCtxCreate") == 0 ? 2 : 3;
  for (int v = newest; v >= 2; --v) {
    std::string versioned = std::string(symbol) + "_v" + std::to_string(v);
    if (void* f = dlsym(handle, versioned.c_str())) {
      *out = f;
      return kSuccess;
    }
  }
  *out = dlsym(handle, symbol);
  return *out ? kSuccess : kNotFound;
}

CUDA_EXPORT int cuGetProcAddress_v2(const char* symbol, void** out, int cuda_version, std::uint64_t flags,
                                    int* status) {
  int code = cuGetProcAddress(symbol, out, cuda_version, flags);
  if (status) *status = code == kSuccess ? 0 : 1;  // found, symbol not found
  return code;
}

CUDA_EXPORT int cuGetExportTable(const void** out, const void*) {
  if (!out) return kInvalidValue;
  *out = nullptr;
  return kNotFound;
}
