// Device and host memory. Copies end before the call returns, the asynchronous ones too.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "sim/cuda/context.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::cuda;  // NOLINT
using CudaContext = gpuop::sim::cuda::Context;

namespace {

// What is left on the board: its size less all processes' use and ours.
std::uint64_t free_bytes(const CudaContext& context) {
  const State* state = driver().file.read();
  const CudaDevice& device = driver().devices[static_cast<std::size_t>(context.ordinal)];
  std::uint64_t total = device_memory(*state, device),
                used = context.memory.used() + (std::uint64_t{418} << 20);
  for (const auto& c : list_contexts(driver().file.fd())) {
    if (c.gpu == device.gpu) used += c.memory_mib << 20;
  }
  for (const auto& [other, owned] : contexts().all) {
    if (other != &context && driver().devices[static_cast<std::size_t>(other->ordinal)].gpu == device.gpu) {
      used += other->memory.used() + (std::uint64_t{418} << 20);
    }
  }
  return used >= total ? 0 : total - used;
}

int allocate(CudaContext* context, DevicePtr* out, std::size_t size, bool managed) {
  if (size == 0) return kInvalidValue;
  if (size > free_bytes(*context)) return kOutOfMemory;
  *out = context->memory.allocate(size, managed);
  if (*out == 0) return kOutOfMemory;
  publish(*context, false);
  return kSuccess;
}

}  // namespace

CUDA_EXPORT int cuMemAlloc_v2(DevicePtr* out, std::size_t size) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  return allocate(context, out, size, false);
}
CUDA_EXPORT int cuMemAlloc(DevicePtr* out, std::size_t size) {
  return cuMemAlloc_v2(out, size);
}

CUDA_EXPORT int cuMemAllocManaged(DevicePtr* out, std::size_t size, unsigned) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  return allocate(context, out, size, true);
}

CUDA_EXPORT int cuMemAllocPitch_v2(DevicePtr* out, std::size_t* pitch, std::size_t width, std::size_t height,
                                   unsigned) {
  if (!out || !pitch || width == 0 || height == 0) return kInvalidValue;
  *pitch = (width + 511) & ~std::size_t{511};
  return cuMemAlloc_v2(out, *pitch * height);
}

CUDA_EXPORT int cuMemFree_v2(DevicePtr address) {
  CUDA_CONTEXT();
  if (address == 0) return kSuccess;
  if (!context->memory.free(address)) return kInvalidValue;
  publish(*context, false);
  return kSuccess;
}
CUDA_EXPORT int cuMemFree(DevicePtr address) {
  return cuMemFree_v2(address);
}

CUDA_EXPORT int cuMemGetInfo_v2(std::size_t* left, std::size_t* total) {
  if (!left || !total) return kInvalidValue;
  CUDA_CONTEXT();
  *total = device_memory(*driver().file.read(), driver().devices[static_cast<std::size_t>(context->ordinal)]);
  *left = free_bytes(*context);
  return kSuccess;
}

CUDA_EXPORT int cuMemGetAddressRange_v2(DevicePtr* base, std::size_t* size, DevicePtr address) {
  CUDA_CONTEXT();
  DevicePtr b = 0;
  std::size_t s = 0;
  if (!context->memory.find(address, &b, &s)) return kNotFound;
  if (base) *base = b;
  if (size) *size = s;
  return kSuccess;
}

CUDA_EXPORT int cuMemHostAlloc(void** out, std::size_t size, unsigned) {
  if (!out || size == 0) return kInvalidValue;
  CUDA_CONTEXT();
  *out = malloc(size);
  if (!*out) return kOutOfMemory;
  context->host_memory[*out] = size;
  return kSuccess;
}
CUDA_EXPORT int cuMemAllocHost_v2(void** out, std::size_t size) {
  return cuMemHostAlloc(out, size, 0);
}

CUDA_EXPORT int cuMemFreeHost(void* pointer) {
  CUDA_CONTEXT();
  if (context->host_memory.erase(pointer) == 0) return kInvalidValue;
  free(pointer);
  return kSuccess;
}

CUDA_EXPORT int cuMemcpyHtoD_v2(DevicePtr to, const void* from, std::size_t size) {
  CUDA_CONTEXT();
  if (size == 0) return kSuccess;
  unsigned char* p = context->memory.at(to, size);
  if (!p || !from) return kInvalidValue;
  memcpy(p, from, size);
  return kSuccess;
}
CUDA_EXPORT int cuMemcpyHtoD(DevicePtr to, const void* from, std::size_t size) {
  return cuMemcpyHtoD_v2(to, from, size);
}
CUDA_EXPORT int cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, std::size_t size, void*) {
  return cuMemcpyHtoD_v2(to, from, size);
}

CUDA_EXPORT int cuMemcpyDtoH_v2(void* to, DevicePtr from, std::size_t size) {
  CUDA_CONTEXT();
  if (size == 0) return kSuccess;
  unsigned char* p = context->memory.at(from, size);
  if (!p || !to) return kInvalidValue;
  memcpy(to, p, size);
  return kSuccess;
}
CUDA_EXPORT int cuMemcpyDtoH(void* to, DevicePtr from, std::size_t size) {
  return cuMemcpyDtoH_v2(to, from, size);
}
CUDA_EXPORT int cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, std::size_t size, void*) {
  return cuMemcpyDtoH_v2(to, from, size);
}

CUDA_EXPORT int cuMemcpyDtoD_v2(DevicePtr to, DevicePtr from, std::size_t size) {
  CUDA_CONTEXT();
  if (size == 0) return kSuccess;
  unsigned char *p = context->memory.at(to, size), *q = context->memory.at(from, size);
  if (!p || !q) return kInvalidValue;
  memmove(p, q, size);
  return kSuccess;
}
CUDA_EXPORT int cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, std::size_t size, void*) {
  return cuMemcpyDtoD_v2(to, from, size);
}

CUDA_EXPORT int cuMemcpy(DevicePtr to, DevicePtr from, std::size_t size) {
  CUDA_CONTEXT();
  if (size == 0) return kSuccess;
  // Unified addressing: what is not a device address is the host's.
  DevicePtr base = 0;
  std::size_t whole = 0;
  bool to_device = context->memory.find(to, &base, &whole),
       from_device = context->memory.find(from, &base, &whole);
  auto* p = to_device ? context->memory.at(to, size) : reinterpret_cast<unsigned char*>(to);
  auto* q = from_device ? context->memory.at(from, size) : reinterpret_cast<unsigned char*>(from);
  if (!p || !q) return kInvalidValue;
  memmove(p, q, size);
  return kSuccess;
}

namespace {
template <class T>
int fill(DevicePtr to, T value, std::size_t count) {
  CUDA_CONTEXT();
  if (count == 0) return kSuccess;
  if (to % sizeof(T) != 0 || count > ~std::size_t{0} / sizeof(T)) return kInvalidValue;
  unsigned char* p = context->memory.at(to, count * sizeof(T));
  if (!p) return kInvalidValue;
  std::fill_n(reinterpret_cast<T*>(p), count, value);
  return kSuccess;
}
}  // namespace

CUDA_EXPORT int cuMemsetD8_v2(DevicePtr to, unsigned char value, std::size_t count) {
  return fill(to, value, count);
}
CUDA_EXPORT int cuMemsetD16_v2(DevicePtr to, unsigned short value, std::size_t count) {
  return fill(to, value, count);
}
CUDA_EXPORT int cuMemsetD32_v2(DevicePtr to, unsigned value, std::size_t count) {
  return fill(to, value, count);
}
CUDA_EXPORT int cuMemsetD8Async(DevicePtr to, unsigned char value, std::size_t count, void*) {
  return fill(to, value, count);
}
CUDA_EXPORT int cuMemsetD32Async(DevicePtr to, unsigned value, std::size_t count, void*) {
  return fill(to, value, count);
}
