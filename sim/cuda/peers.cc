// Devices among themselves: peer access, and what a device says of another.
#include <set>

#include "sim/cuda/context.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::cuda;  // NOLINT
using CudaContext = gpuop::sim::cuda::Context;

namespace {

std::set<std::pair<CudaContext*, CudaContext*>>& enabled() {
  static auto* all = new std::set<std::pair<CudaContext*, CudaContext*>>;
  return *all;
}

const CudaDevice* device_at(int ordinal) {
  bool known = ordinal >= 0 && ordinal < static_cast<int>(driver().devices.size());
  return known ? &driver().devices[static_cast<std::size_t>(ordinal)] : nullptr;
}

// Whole boards of one model reach each other; an instance reaches nothing outside of itself.
bool reaches(const CudaDevice& a, const CudaDevice& b) {
  return a.gpu != b.gpu && a.gi < 0 && b.gi < 0;
}

bool linked(const State& state, const CudaDevice& a, const CudaDevice& b) {
  const Board &x = state.gpus[a.gpu].board, &y = state.gpus[b.gpu].board;
  if (!x.nvlink_count || !y.nvlink_count) return false;
  return x.nvlink_switched || (a.gpu ^ 1) == b.gpu;
}

}  // namespace

CUDA_EXPORT int cuDeviceCanAccessPeer(int* out, int a, int b) {
  if (!out) return kInvalidValue;
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  const CudaDevice *x = device_at(a), *y = device_at(b);
  if (!x || !y) return kInvalidDevice;
  *out = reaches(*x, *y);
  return kSuccess;
}

// 1 performance rank, 2 access, 3 native atomics, 4 arrays.
CUDA_EXPORT int cuDeviceGetP2PAttribute(int* out, int attribute, int a, int b) {
  if (!out || attribute < 1 || attribute > 4) return kInvalidValue;
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  const CudaDevice *x = device_at(a), *y = device_at(b);
  if (!x || !y || a == b) return kInvalidDevice;
  const State* state = driver().file.read();
  if (!state) return kUnknown;
  bool fast = reaches(*x, *y) && linked(*state, *x, *y);
  *out = attribute == 1 ? !fast : attribute == 3 ? fast : reaches(*x, *y);
  return kSuccess;
}

CUDA_EXPORT int cuCtxEnablePeerAccess(CudaContext* peer, unsigned flags) {
  if (flags != 0) return kInvalidValue;
  CUDA_CONTEXT();
  if (!contexts().all.contains(peer)) return kInvalidContext;
  if (!reaches(*device_at(context->ordinal), *device_at(peer->ordinal))) return kPeerAccessUnsupported;
  return enabled().insert({context, peer}).second ? kSuccess : kPeerAccessAlreadyEnabled;
}
CUDA_EXPORT int cuCtxDisablePeerAccess(CudaContext* peer) {
  CUDA_CONTEXT();
  return enabled().erase({context, peer}) ? kSuccess : kPeerAccessNotEnabled;
}

CUDA_EXPORT int cuMemcpyPeer(DevicePtr to, CudaContext* there, DevicePtr from, CudaContext* here,
                             std::size_t size) {
  CUDA_CONTEXT();
  if (!contexts().all.contains(there) || !contexts().all.contains(here)) return kInvalidContext;
  unsigned char *p = there->memory.at(to, size), *q = here->memory.at(from, size);
  if (!p || !q) return kInvalidValue;
  std::copy(q, q + size, p);
  return kSuccess;
}
CUDA_EXPORT int cuMemcpyPeerAsync(DevicePtr to, CudaContext* there, DevicePtr from, CudaContext* here,
                                  std::size_t size, void*) {
  return cuMemcpyPeer(to, there, from, here, size);
}
