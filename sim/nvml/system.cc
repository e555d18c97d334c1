// Life cycle, versions, error texts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

int init(const char* symbol) {
  {
    Call call(symbol, false);
    if (call.fault) return call.fault;
  }
  Library& lib = library();
  std::scoped_lock lock(lib.mutex);
  if (lib.references == 0) {
    if (int code = attach()) return code;
    // From here on the module is in use: it cannot be unloaded.
    claim_client(lib.file.fd());
  }
  ++lib.references;
  return kSuccess;
}

}  // namespace

NVML_EXPORT int nvmlInit_v2() {
  return init("nvmlInit_v2");
}
NVML_EXPORT int nvmlInit() {
  return init("nvmlInit");
}
NVML_EXPORT int nvmlInitWithFlags(unsigned) {
  return init("nvmlInitWithFlags");
}

NVML_EXPORT int nvmlShutdown() {
  Call call("nvmlShutdown");
  if (call.fault) return call.fault == kGpuIsLost ? kSuccess : call.fault;
  if (--library().references == 0) release_client(library().file.fd());
  return kSuccess;
}

NVML_EXPORT const char* nvmlErrorString(int code) {
  switch (code) {
    case 0:
      return "Success";
    case 1:
      return "Uninitialized";
    case 2:
      return "Invalid Argument";
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 5:
      return "Already Initialized";
    case 6:
      return "Not Found";
    case 7:
      return "Insufficient Size";
    case 8:
      return "Insufficient External Power";
    case 9:
      return "Driver Not Loaded";
    case 10:
      return "Timeout";
    case 11:
      return "Interrupt Request Issue";
    case 12:
      return "NVML Shared Library Not Found";
    case 13:
      return "Function Not Found";
    case 14:
      return "Corrupted infoROM";
    case 15:
      return "GPU is lost";
    case 16:
      return "GPU requires reset";
    case 17:
      return "The operating system has blocked the request.";
    case 18:
      return "Driver/library version mismatch";
    case 19:
      return "In use by another client";
    case 20:
      return "Insufficient Memory";
    case 21:
      return "No data";
    case 22:
      return "The requested vgpu operation is not available on target device, because ECC is enabled.";
    case 23:
      return "Insufficient Resources";
    case 24:
      return "Requested clock frequency is not supported";
    case 25:
      return "The provided version is invalid/unsupported";
    case 26:
      return "The requested functionality has been deprecated";
    case 27:
      return "The system is not ready for the request";
    case 28:
      return "No GPUs were found";
    case 29:
      return "Resource not in correct state to perform requested operation";
    case 30:
      return "Reset type not supported";
    default:
      return "Unknown Error";
  }
}

NVML_EXPORT int nvmlSystemGetDriverVersion(char* out, unsigned length) {
  NVML_ENTER(nvmlSystemGetDriverVersion);
  return copy_text(out, length, state.kernel_driver);
}

NVML_EXPORT int nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  Call call("nvmlSystemGetNVMLVersion", false);
  if (call.fault) return call.fault;
  if (!call.state) return kUninitialized;
  char text[96];
  snprintf(text, sizeof text, "%d.%s", call.state->cuda_version / 1000, library().version);
  return copy_text(out, length, text);
}

NVML_EXPORT int nvmlSystemGetCudaDriverVersion(int* out) {
  Call call("nvmlSystemGetCudaDriverVersion", false);
  if (call.fault) return call.fault;
  NVML_NEED(out);
  if (!call.state) return kLibraryNotFound;
  *out = call.state->cuda_version;
  return kSuccess;
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* out) {
  return nvmlSystemGetCudaDriverVersion(out);
}

NVML_EXPORT int nvmlSystemGetProcessName(unsigned pid, char* out, unsigned length) {
  NVML_ENTER(nvmlSystemGetProcessName);
  if (!out || length == 0) return kInvalidArgument;
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE* f = fopen(path, "re");
  if (!f) return kNotFound;
  std::size_t n = fread(out, 1, length - 1, f);
  fclose(f);
  out[n] = '\0';  // the first argument ends with its own zero
  return n ? kSuccess : kNotFound;
}

NVML_EXPORT int nvmlUnitGetCount(unsigned* out) {
  NVML_ENTER(nvmlUnitGetCount);
  NVML_NEED(out);
  *out = 0;
  return kSuccess;
}
