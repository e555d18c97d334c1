// cuInit, devices and errors.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cuda/driver.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::cuda;  // NOLINT

#define CUDA_DEVICE(ordinal)                                                                          \
  std::scoped_lock lock(driver().mutex);                                                              \
  if (!driver().initialized) return kNotInitialized;                                                  \
  const State* state = driver().file.read();                                                          \
  if (!state) return kUnknown;                                                                        \
  if ((ordinal) < 0 || (ordinal) >= static_cast<int>(driver().devices.size())) return kInvalidDevice; \
  [[maybe_unused]] const CudaDevice& device = driver().devices[static_cast<std::size_t>(ordinal)];    \
  [[maybe_unused]] const Gpu& gpu = state->gpus[device.gpu]

CUDA_EXPORT int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  Driver& d = driver();
  std::scoped_lock lock(d.mutex);
  if (d.init_code != kNotInitialized) return d.init_code;
  d.init_code = initialize();
  d.initialized = d.init_code == kSuccess;
  return d.init_code;
}

CUDA_EXPORT int cuDriverGetVersion(int* version) {
  if (!version) return kInvalidValue;
  std::scoped_lock lock(driver().mutex);
  if (const State* state = driver().file.read()) {
    *version = state->cuda_version;
    return kSuccess;
  }
  // Works before cuInit too.
  StateFile file;
  std::string library_version,
      path = state_beside_library(reinterpret_cast<const void*>(&cuInit), &library_version);
  if (path.empty() || file.open(path) != StateFault::kNone) return kNoDevice;
  *version = file.read()->cuda_version;
  return kSuccess;
}

CUDA_EXPORT int cuDeviceGetCount(int* count) {
  if (!count) return kInvalidValue;
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  *count = static_cast<int>(driver().devices.size());
  return kSuccess;
}

CUDA_EXPORT int cuDeviceGet(int* out, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  *out = ordinal;
  return kSuccess;
}

CUDA_EXPORT int cuDeviceGetName(char* name, int length, int ordinal) {
  if (!name || length <= 0) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  if (device.gi < 0) {
    snprintf(name, static_cast<std::size_t>(length), "%s", gpu.board.name);
  } else {
    const GiProfile* row = find_gi_profile(gpu.board, gpu.live.gis[device.gi].profile);
    snprintf(name, static_cast<std::size_t>(length), "%s MIG %s", gpu.board.name, row ? row->name : "?");
  }
  return kSuccess;
}

CUDA_EXPORT int cuDeviceGetUuid_v2(Uuid* out, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  const char* text = device_uuid(*state, device) + 4;  // behind "GPU-" or "MIG-"
  int at = 0;
  for (; *text && at < 32; ++text) {
    if (*text == '-') continue;
    int digit = *text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10;
    unsigned char& byte = out->bytes[at / 2];
    byte = static_cast<unsigned char>(at % 2 ? byte << 4 | digit : digit);
    ++at;
  }
  return kSuccess;
}
CUDA_EXPORT int cuDeviceGetUuid(Uuid* out, int ordinal) {
  return cuDeviceGetUuid_v2(out, ordinal);
}

CUDA_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int ordinal) {
  if (!bytes) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  *bytes = device_memory(*state, device);
  return kSuccess;
}
CUDA_EXPORT int cuDeviceTotalMem(unsigned* bytes, int ordinal) {
  if (!bytes) return kInvalidValue;
  std::size_t all = 0;
  int code = cuDeviceTotalMem_v2(&all, ordinal);
  *bytes = all > 0xFFFFFFFFu ? 0xFFFFFFFFu : static_cast<unsigned>(all);
  return code;
}

CUDA_EXPORT int cuDeviceComputeCapability(int* major, int* minor, int ordinal) {
  if (!major || !minor) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  *major = static_cast<int>(gpu.board.cc_major);
  *minor = static_cast<int>(gpu.board.cc_minor);
  return kSuccess;
}

CUDA_EXPORT int cuDeviceGetPCIBusId(char* out, int length, int ordinal) {
  if (!out || length <= 0) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  snprintf(out, static_cast<std::size_t>(length), "%04X:%02X:%02X.0", gpu.board.domain, gpu.board.bus,
           gpu.board.device);
  return kSuccess;
}

CUDA_EXPORT int cuDeviceGetByPCIBusId(int* out, const char* id) {
  if (!out || !id) return kInvalidValue;
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  const State* state = driver().file.read();
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) return kInvalidValue;
  for (std::size_t i = 0; state && i < driver().devices.size(); ++i) {
    const Board& b = state->gpus[driver().devices[i].gpu].board;
    if (b.domain == domain && b.bus == bus && b.device == device) {
      *out = static_cast<int>(i);
      return kSuccess;
    }
  }
  return kInvalidDevice;
}

CUDA_EXPORT int cuDeviceGetAttribute(int* out, int attribute, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  const Board& b = gpu.board;
  std::uint32_t multiprocessors = b.multiprocessors;
  if (device.gi >= 0) {
    const GpuInstance& gi = gpu.live.gis[device.gi];
    if (const GiProfile* row = find_gi_profile(b, gi.profile)) {
      multiprocessors = row->multiprocessors * gi.cis[device.ci].slices / row->slices;
    }
  }
  switch (attribute) {
    case kMaxThreadsPerBlock:
    case kMaxBlockX:
    case kMaxBlockY:
      *out = 1024;
      return kSuccess;
    case kMaxBlockZ:
      *out = 64;
      return kSuccess;
    case kMaxGridX:
      *out = 2147483647;
      return kSuccess;
    case kMaxGridY:
    case kMaxGridZ:
      *out = 65535;
      return kSuccess;
    case kMaxSharedPerBlock:
      *out = 49152;
      return kSuccess;
    case kTotalConstant:
      *out = 65536;
      return kSuccess;
    case kWarpSize:
      *out = 32;
      return kSuccess;
    case kMaxRegistersPerBlock:
      *out = 65536;
      return kSuccess;
    case kClockRate:
      *out = static_cast<int>(b.sm_clock_max * 1000);
      return kSuccess;
    case kMultiprocessors:
      *out = static_cast<int>(multiprocessors);
      return kSuccess;
    case kIntegrated:
      *out = 0;
      return kSuccess;
    case kCanMapHostMemory:
    case kConcurrentKernels:
    case kUnifiedAddressing:
    case kManagedMemory:
      *out = 1;
      return kSuccess;
    case kComputeMode:
      *out = static_cast<int>(gpu.live.compute_mode);
      return kSuccess;
    case kEccEnabled:
      *out = static_cast<int>(gpu.live.ecc_current);
      return kSuccess;
    case kPciBus:
      *out = static_cast<int>(b.bus);
      return kSuccess;
    case kPciDevice:
      *out = static_cast<int>(b.device);
      return kSuccess;
    case kPciDomain:
      *out = static_cast<int>(b.domain);
      return kSuccess;
    case kMemoryClockRate:
      *out = static_cast<int>(b.mem_clock_max * 1000);
      return kSuccess;
    case kL2CacheSize:
      *out = 40 << 20;
      return kSuccess;
    case kMaxThreadsPerMultiprocessor:
      *out = b.cc_major == 8 && b.cc_minor ? 1536 : 2048;
      return kSuccess;
    case kAsyncEngines:
      *out = static_cast<int>(b.copy_engines);
      return kSuccess;
    case kCcMajor:
      *out = static_cast<int>(b.cc_major);
      return kSuccess;
    case kCcMinor:
      *out = static_cast<int>(b.cc_minor);
      return kSuccess;
    default:
      // Features that these boards' model does not have.
      if (attribute < 1 || attribute > 160) return kInvalidValue;
      *out = 0;
      return kSuccess;
  }
}

namespace {

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};
const ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {kInvalidSource, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {kFileNotFound, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {kPrimaryContextActive, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "cannot set while device is active in this process"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {kMpsConnectionFailed, "CUDA_ERROR_MPS_CONNECTION_FAILED",
     "MPS client failed to connect to the MPS control daemon or the MPS server"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* error_text(int code) {
  for (const ErrorText& e : kErrors) {
    if (e.code == code) return &e;
  }
  return nullptr;
}

}  // namespace

CUDA_EXPORT int cuGetErrorName(int code, const char** out) {
  if (!out) return kInvalidValue;
  const ErrorText* e = error_text(code);
  *out = e ? e->name : nullptr;
  return e ? kSuccess : kInvalidValue;
}

CUDA_EXPORT int cuGetErrorString(int code, const char** out) {
  if (!out) return kInvalidValue;
  const ErrorText* e = error_text(code);
  *out = e ? e->text : nullptr;
  return e ? kSuccess : kInvalidValue;
}
