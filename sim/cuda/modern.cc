// What the runtime of CUDA 12 and its tools call besides: libraries, pools, occupancy, launches with a
// configuration, pointer queries.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "sim/cuda/context.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::cuda;  // NOLINT
using CudaContext = gpuop::sim::cuda::Context;

CUDA_EXPORT int cuMemAlloc_v2(DevicePtr*, std::size_t);  // memory.cc
CUDA_EXPORT int cuMemFree_v2(DevicePtr);
CUDA_EXPORT int cuMemcpy(DevicePtr, DevicePtr, std::size_t);
CUDA_EXPORT int cuMemsetD16_v2(DevicePtr, unsigned short, std::size_t);
CUDA_EXPORT int cuModuleLoadDataEx(LoadedModule**, const void*, unsigned, int*, void**);  // module.cc
CUDA_EXPORT int cuModuleUnload(LoadedModule*);
CUDA_EXPORT int cuModuleGetFunction(Function**, LoadedModule*, const char*);
CUDA_EXPORT int cuModuleGetGlobal_v2(DevicePtr*, std::size_t*, LoadedModule*, const char*);
CUDA_EXPORT int cuLaunchKernel(Function*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void*, void**, void**);
CUDA_EXPORT int cuStreamSynchronize(Stream*);
CUDA_EXPORT int cuDeviceGetAttribute(int*, int, int);  // attributes.cc

namespace {

Function* function_of(CudaContext* context, Function* f) {
  auto it = context->functions.find(f);
  return it == context->functions.end() ? nullptr : it->second.get();
}

// One pool a device: allocations in order of a stream are made at once.
int* pool_of(int ordinal) {
  static int pools[256];
  return ordinal >= 0 && ordinal < 256 ? &pools[ordinal] : nullptr;
}

}  // namespace

// Libraries: a module that belongs to no context until it is used; here it is loaded into the current one.
CUDA_EXPORT int cuLibraryLoadData(LoadedModule** out, const void* code, int* jit, void** values,
                                  unsigned count, int*, void**, unsigned) {
  return cuModuleLoadDataEx(out, code, count, jit, values);
}
CUDA_EXPORT int cuLibraryUnload(LoadedModule* library) {
  return cuModuleUnload(library);
}
CUDA_EXPORT int cuLibraryGetModule(LoadedModule** out, LoadedModule* library) {
  if (!out) return kInvalidValue;
  *out = library;
  return kSuccess;
}
CUDA_EXPORT int cuLibraryGetKernel(Function** out, LoadedModule* library, const char* name) {
  return cuModuleGetFunction(out, library, name);
}
CUDA_EXPORT int cuLibraryGetGlobal(DevicePtr* address, std::size_t* size, LoadedModule* library,
                                   const char* name) {
  return cuModuleGetGlobal_v2(address, size, library, name);
}
CUDA_EXPORT int cuKernelGetFunction(Function** out, Function* kernel) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  if (!function_of(context, kernel)) return kInvalidHandle;
  *out = kernel;
  return kSuccess;
}
CUDA_EXPORT int cuFuncGetModule(LoadedModule** out, Function* function) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  Function* f = function_of(context, function);
  if (!f) return kInvalidHandle;
  *out = f->module;
  return kSuccess;
}
CUDA_EXPORT int cuFuncGetName(const char** out, Function* function) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  Function* f = function_of(context, function);
  if (!f) return kInvalidHandle;
  *out = f->kernel->name.c_str();
  return kSuccess;
}
CUDA_EXPORT int cuFuncLoad(Function* function) {
  CUDA_CONTEXT();
  return function_of(context, function) ? kSuccess : kInvalidHandle;
}
CUDA_EXPORT int cuModuleGetLoadingMode(int* out) {
  if (!out) return kInvalidValue;
  *out = 1;  // eager
  return kSuccess;
}
CUDA_EXPORT int cuModuleGetFunctionCount(unsigned* out, LoadedModule* module) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  if (!context->modules.contains(module)) return kInvalidHandle;
  *out = static_cast<unsigned>(module->code.kernels.size());
  return kSuccess;
}

// CUlaunchConfig, as far as a kernel without clusters needs it.
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  const void* attributes;
  unsigned attribute_count;
};
CUDA_EXPORT int cuLaunchKernelEx(const LaunchConfig* c, Function* function, void** parameters, void** extra) {
  if (!c) return kInvalidValue;
  return cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
                        c->shared, c->stream, parameters, extra);
}
// Blocks run one after another: a kernel that waits for its whole grid would wait for ever.
CUDA_EXPORT int cuLaunchCooperativeKernel(Function* function, unsigned gx, unsigned gy, unsigned gz,
                                          unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                          void* stream, void** parameters) {
  if (std::uint64_t{gx} * gy * gz > 1) return kNotSupported;
  return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, nullptr);
}
CUDA_EXPORT int cuLaunchHostFunc(Stream* stream, void (*function)(void*), void* data) {
  if (!function) return kInvalidValue;
  if (int code = cuStreamSynchronize(stream)) return code;
  function(data);
  return kSuccess;
}

CUDA_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, Function* function, int block,
                                                            std::size_t shared) {
  if (!out || block < 1 || block > 1024) return kInvalidValue;
  CUDA_CONTEXT();
  Function* f = function_of(context, function);
  if (!f) return kInvalidHandle;
  auto limit = [&](int attribute) {
    int v = 0;
    cuDeviceGetAttribute(&v, attribute, context->ordinal);
    return static_cast<std::size_t>(v);
  };
  std::size_t blocks = std::min(limit(kMaxThreadsPerMultiprocessor) / static_cast<std::size_t>(block),
                                limit(kMaxBlocksPerMultiprocessor));
  if (std::size_t bytes = f->kernel->shared_bytes + shared)
    blocks = std::min(blocks, limit(kMaxSharedPerMultiprocessor) / bytes);
  *out = static_cast<int>(blocks);
  return kSuccess;
}
CUDA_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, Function* function, int block,
                                                                     std::size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(out, function, block, shared);
}

CUDA_EXPORT int cuDeviceGetDefaultMemPool(int** out, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  *out = pool_of(ordinal);
  return kSuccess;
}
CUDA_EXPORT int cuDeviceGetMemPool(int** out, int ordinal) {
  return cuDeviceGetDefaultMemPool(out, ordinal);
}
CUDA_EXPORT int cuDeviceSetMemPool(int ordinal, int* pool) {
  CUDA_DEVICE(ordinal);
  return pool == pool_of(ordinal) ? kSuccess : kInvalidValue;
}
CUDA_EXPORT int cuMemPoolSetAttribute(int* pool, int, void* value) {
  return pool && value ? kSuccess : kInvalidValue;
}
CUDA_EXPORT int cuMemPoolGetAttribute(int* pool, int, std::uint64_t* value) {
  if (!pool || !value) return kInvalidValue;
  *value = 0;
  return kSuccess;
}
CUDA_EXPORT int cuMemPoolTrimTo(int* pool, std::size_t) {
  return pool ? kSuccess : kInvalidValue;
}
CUDA_EXPORT int cuMemAllocAsync(DevicePtr* out, std::size_t size, void*) {
  return cuMemAlloc_v2(out, size);
}
CUDA_EXPORT int cuMemAllocFromPoolAsync(DevicePtr* out, std::size_t size, int* pool, void*) {
  return pool ? cuMemAlloc_v2(out, size) : kInvalidValue;
}
CUDA_EXPORT int cuMemFreeAsync(DevicePtr address, void*) {
  return cuMemFree_v2(address);
}
CUDA_EXPORT int cuMemcpyAsync(DevicePtr to, DevicePtr from, std::size_t size, void*) {
  return cuMemcpy(to, from, size);
}
CUDA_EXPORT int cuMemsetD16Async(DevicePtr to, unsigned short value, std::size_t count, void*) {
  return cuMemsetD16_v2(to, value, count);
}
CUDA_EXPORT int cuMemPrefetchAsync(DevicePtr, std::size_t, int, void*) {
  CUDA_CONTEXT();
  return kSuccess;
}
CUDA_EXPORT int cuMemAdvise(DevicePtr, std::size_t, int, int) {
  CUDA_CONTEXT();
  return kSuccess;
}

// Host memory is always reachable; registering it is a note.
CUDA_EXPORT int cuMemHostRegister_v2(void* pointer, std::size_t size, unsigned) {
  if (!pointer || size == 0) return kInvalidValue;
  CUDA_CONTEXT();
  return context->registered.emplace(pointer, size).second ? kSuccess : kHostMemoryAlreadyRegistered;
}
CUDA_EXPORT int cuMemHostUnregister(void* pointer) {
  CUDA_CONTEXT();
  return context->registered.erase(pointer) ? kSuccess : kHostMemoryNotRegistered;
}
CUDA_EXPORT int cuMemHostGetFlags(unsigned* out, void* pointer) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  if (!context->host_memory.contains(pointer)) return kInvalidValue;
  *out = 0;
  return kSuccess;
}

// 1 context, 2 kind of memory (1 host, 2 device), 3 device pointer, 4 host pointer, 8 managed, 9 ordinal,
// 11 start, 12 size.
CUDA_EXPORT int cuPointerGetAttribute(void* out, int attribute, DevicePtr address) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  DevicePtr base = 0;
  std::size_t size = 0;
  if (!context->memory.find(address, &base, &size)) return kInvalidValue;
  bool managed = reinterpret_cast<std::uintptr_t>(context->memory.at(base, 1)) == base;
  auto give = [&](auto value) {
    memcpy(out, &value, sizeof value);
    return kSuccess;
  };
  switch (attribute) {
    case 1:
      return give(reinterpret_cast<std::uintptr_t>(context));
    case 2:
      return give(2u);
    case 3:
      return give(address);
    case 4:
      return managed ? give(address) : kInvalidValue;
    case 8:
      return give(static_cast<unsigned>(managed));
    case 9:
      return give(context->ordinal);
    case 11:
      return give(base);
    case 12:
      return give(size);
    default:
      return attribute < 1 || attribute > 21 ? kInvalidValue : kNotSupported;
  }
}

namespace {

// Bytes that an attribute of a pointer takes: numbers and flags four, addresses, sizes and handles eight.
std::size_t attribute_size(int attribute) {
  constexpr int kLong[] = {1, 3, 4, 7, 11, 12, 17, 18, 19, 20};
  return std::find(std::begin(kLong), std::end(kLong), attribute) == std::end(kLong) ? 4 : 8;
}

}  // namespace

CUDA_EXPORT int cuPointerGetAttributes(unsigned count, const int* attributes, void** out, DevicePtr address) {
  if (!attributes || !out) return kInvalidValue;
  for (unsigned i = 0; i < count; ++i) {
    // What cannot be said of the pointer reads as zero.
    if (int code = cuPointerGetAttribute(out[i], attributes[i], address)) {
      if (code == kNotInitialized || code == kInvalidContext) return code;
      if (out[i]) memset(out[i], 0, attribute_size(attributes[i]));
    }
  }
  return kSuccess;
}

CUDA_EXPORT int cuStreamGetFlags(Stream* stream, unsigned* out) {
  if (!out) return kInvalidValue;
  *out = 0;
  return cuStreamSynchronize(stream);
}
CUDA_EXPORT int cuStreamGetPriority(Stream* stream, int* out) {
  if (!out) return kInvalidValue;
  *out = 0;
  return cuStreamSynchronize(stream);
}
CUDA_EXPORT int cuStreamGetCtx(Stream* stream, CudaContext** out) {
  if (!out) return kInvalidValue;
  if (int code = cuStreamSynchronize(stream)) return code;
  CUDA_CONTEXT();
  *out = context;
  return kSuccess;
}
CUDA_EXPORT int cuStreamIsCapturing(Stream* stream, int* out) {
  if (!out) return kInvalidValue;
  *out = 0;
  return cuStreamSynchronize(stream);
}
CUDA_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode) return kInvalidValue;
  *mode = 0;
  return kSuccess;
}
// Graphs are not kept: work is done when it is handed in.
CUDA_EXPORT int cuStreamBeginCapture_v2(Stream*, int) {
  CUDA_CONTEXT();
  return kNotSupported;
}
CUDA_EXPORT int cuGraphCreate(void**, unsigned) {
  CUDA_CONTEXT();
  return kNotSupported;
}

CUDA_EXPORT int cuCtxGetId(CudaContext* wanted, unsigned long long* out) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  *out = reinterpret_cast<std::uintptr_t>(wanted ? wanted : context);
  return kSuccess;
}
CUDA_EXPORT int cuCtxGetCacheConfig(int* out) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  *out = 0;
  return kSuccess;
}
CUDA_EXPORT int cuCtxSetCacheConfig(int) {
  CUDA_CONTEXT();
  return kSuccess;
}
CUDA_EXPORT int cuCtxResetPersistingL2Cache() {
  CUDA_CONTEXT();
  return kSuccess;
}
// Shares of a device's multiprocessors are MPS's.
CUDA_EXPORT int cuDeviceGetExecAffinitySupport(int* out, int, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  *out = getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  return kSuccess;
}
CUDA_EXPORT int cuDeviceGetLuid(char*, unsigned*, int ordinal) {
  CUDA_DEVICE(ordinal);
  return kNotSupported;  // of Windows
}
CUDA_EXPORT int cuProfilerStart() {
  CUDA_CONTEXT();
  return kSuccess;
}
CUDA_EXPORT int cuProfilerStop() {
  CUDA_CONTEXT();
  return kSuccess;
}
CUDA_EXPORT int cuFlushGPUDirectRDMAWrites(int, int) {
  CUDA_CONTEXT();
  return kSuccess;
}
