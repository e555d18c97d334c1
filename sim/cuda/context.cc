#include "sim/cuda/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

using namespace gpuop::sim;        // NOLINT
using namespace gpuop::sim::cuda;  // NOLINT

namespace gpuop::sim::cuda {

namespace {
// What a context takes of the board by itself.
constexpr std::uint64_t kContextMib = 418;
}  // namespace

DeviceMemory::~DeviceMemory() {
  for (auto& [address, a] : allocations_) munmap(a.host, a.size);
}

DevicePtr DeviceMemory::allocate(std::size_t size, bool managed) {
  std::size_t rounded = (size + 511) & ~std::size_t{511};
  // Not reserved: a program may allocate a whole board and touch little of it.
  void* host =
      mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return 0;
  DevicePtr address = managed ? reinterpret_cast<DevicePtr>(host) : next_;
  if (!managed) next_ += (rounded + (2u << 20) - 1) & ~std::uint64_t{(2u << 20) - 1};
  allocations_[address] = Allocation{static_cast<unsigned char*>(host), rounded};
  // Bounds are those that were asked for: one byte behind them is a fault, as memory checkers would say.
  allocations_[address].size = size;
  used_ += rounded;
  return address;
}

bool DeviceMemory::free(DevicePtr address) {
  auto it = allocations_.find(address);
  if (it == allocations_.end()) return false;
  std::size_t rounded = (it->second.size + 511) & ~std::size_t{511};
  munmap(it->second.host, rounded);
  used_ -= rounded;
  allocations_.erase(it);
  return true;
}

unsigned char* DeviceMemory::at(std::uint64_t address, std::uint64_t size) {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return nullptr;
  --it;
  std::uint64_t offset = address - it->first;
  if (offset > it->second.size || size > it->second.size - offset) return nullptr;
  return it->second.host + offset;
}

bool DeviceMemory::find(DevicePtr address, DevicePtr* base, std::size_t* size) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return false;
  --it;
  if (address - it->first >= it->second.size) return false;
  *base = it->first;
  *size = it->second.size;
  return true;
}

Contexts& contexts() {
  static Contexts* all = new Contexts;
  return *all;
}

std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

int current_context(Context** out) {
  if (!driver().initialized) return kNotInitialized;
  auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return kInvalidContext;
  if (!contexts().all.contains(stack.back())) return kContextIsDestroyed;
  *out = stack.back();
  if ((*out)->sticky) return (*out)->sticky;
  const State* state = driver().file.read();
  if (!state) return kUnknown;
  // The board fell off the bus beneath us.
  if (state->gpus[driver().devices[static_cast<std::size_t>((*out)->ordinal)].gpu].live.lost) {
    (*out)->sticky = kUnknown;
    return kUnknown;
  }
  return kSuccess;
}

namespace {
gpuop::sim::Context usage(const cuda::Context& context, bool busy) {
  const CudaDevice& device = driver().devices[static_cast<std::size_t>(context.ordinal)];
  gpuop::sim::Context use;
  use.gpu = device.gpu;
  if (device.gi >= 0) {
    if (const State* state = driver().file.read()) {
      const GpuInstance& gi = state->gpus[device.gpu].live.gis[device.gi];
      use.gi = gi.id;
      use.ci = gi.cis[device.ci].id;
    }
  }
  use.busy = busy;
  use.memory_mib = kContextMib + (context.memory.used() >> 20);
  return use;
}
}  // namespace

void publish(cuda::Context& context, bool busy) {
  if (context.slot >= 0) publish_context(driver().file.fd(), context.slot, usage(context, busy));
}

int make_context(int ordinal, unsigned flags, bool primary, cuda::Context** out) {
  const State* state = driver().file.read();
  if (!state) return kUnknown;
  const CudaDevice& device = driver().devices[static_cast<std::size_t>(ordinal)];
  const Gpu& gpu = state->gpus[device.gpu];
  if (gpu.live.lost) return kInvalidDevice;
  if (gpu.live.compute_mode == 2) return kDeviceUnavailable;
  if (gpu.live.compute_mode == 3 && !getenv("CUDA_MPS_PIPE_DIRECTORY")) {
    auto others = list_contexts(driver().file.fd());
    if (std::any_of(others.begin(), others.end(), [&](const auto& c) { return c.gpu == device.gpu; })) {
      return kDeviceUnavailable;
    }
  }
  auto context = std::make_unique<cuda::Context>();
  context->ordinal = ordinal;
  context->flags = flags;
  context->primary = primary;
  context->slot = claim_context(driver().file.fd(), usage(*context, false));
  if (context->slot < 0 && errno == EAGAIN) return kOutOfMemory;
  *out = context.get();
  contexts().all[*out] = std::move(context);
  return kSuccess;
}

void end_context(cuda::Context* context) {
  auto it = contexts().all.find(context);
  if (it == contexts().all.end()) return;
  for (auto& [pointer, size] : context->host_memory) ::free(pointer);
  if (context->slot >= 0) release_context(driver().file.fd(), context->slot);
  contexts().all.erase(it);
  std::erase(context_stack(), context);
}

}  // namespace gpuop::sim::cuda

#define CUDA_READY(ordinal)                          \
  std::scoped_lock lock(driver().mutex);             \
  if (!driver().initialized) return kNotInitialized; \
  if ((ordinal) < 0 || (ordinal) >= static_cast<int>(driver().devices.size())) return kInvalidDevice

using CudaContext = gpuop::sim::cuda::Context;

CUDA_EXPORT int cuCtxCreate_v2(CudaContext** out, unsigned flags, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_READY(ordinal);
  if (int code = make_context(ordinal, flags, false, out)) return code;
  context_stack().push_back(*out);
  return kSuccess;
}
CUDA_EXPORT int cuCtxCreate_v3(CudaContext** out, void*, int, unsigned flags, int ordinal) {
  return cuCtxCreate_v2(out, flags, ordinal);
}
CUDA_EXPORT int cuCtxCreate_v4(CudaContext** out, void*, unsigned flags, int ordinal) {
  return cuCtxCreate_v2(out, flags, ordinal);
}
CUDA_EXPORT int cuCtxCreate(CudaContext** out, unsigned flags, int ordinal) {
  return cuCtxCreate_v2(out, flags, ordinal);
}

CUDA_EXPORT int cuCtxDestroy_v2(CudaContext* context) {
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  if (!contexts().all.contains(context)) return kInvalidContext;
  if (context->primary) return kInvalidContext;
  end_context(context);
  return kSuccess;
}
CUDA_EXPORT int cuCtxDestroy(CudaContext* context) {
  return cuCtxDestroy_v2(context);
}

CUDA_EXPORT int cuCtxPushCurrent_v2(CudaContext* context) {
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  if (!contexts().all.contains(context)) return kInvalidContext;
  context_stack().push_back(context);
  return kSuccess;
}

CUDA_EXPORT int cuCtxPopCurrent_v2(CudaContext** out) {
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  if (context_stack().empty()) return kInvalidContext;
  if (out) *out = context_stack().back();
  context_stack().pop_back();
  return kSuccess;
}

CUDA_EXPORT int cuCtxSetCurrent(CudaContext* context) {
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  if (context && !contexts().all.contains(context)) return kInvalidContext;
  if (!context_stack().empty()) context_stack().pop_back();
  if (context) context_stack().push_back(context);
  return kSuccess;
}

CUDA_EXPORT int cuCtxGetCurrent(CudaContext** out) {
  if (!out) return kInvalidValue;
  std::scoped_lock lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  *out = context_stack().empty() ? nullptr : context_stack().back();
  return kSuccess;
}

CUDA_EXPORT int cuCtxGetDevice(int* out) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  *out = context->ordinal;
  return kSuccess;
}

CUDA_EXPORT int cuCtxSynchronize() {
  CUDA_CONTEXT();
  return kSuccess;  // kernels end before their launch returns
}

CUDA_EXPORT int cuCtxGetApiVersion(CudaContext*, unsigned* out) {
  if (!out) return kInvalidValue;
  *out = 3020;
  return kSuccess;
}

CUDA_EXPORT int cuCtxGetFlags(unsigned* out) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  *out = context->flags;
  return kSuccess;
}

CUDA_EXPORT int cuCtxSetLimit(int, std::size_t) {
  CUDA_CONTEXT();
  return kSuccess;
}

CUDA_EXPORT int cuCtxGetLimit(std::size_t* out, int limit) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  *out = limit == 0 ? 1024 : 8u << 20;  // stack; heap and printf buffer
  return kSuccess;
}

CUDA_EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CUDA_CONTEXT();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}

CUDA_EXPORT int cuDevicePrimaryCtxRetain(CudaContext** out, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_READY(ordinal);
  auto& [context, references] = contexts().primaries[ordinal];
  if (references == 0) {
    if (int code = make_context(ordinal, 0, true, &context)) return code;
  }
  ++references;
  *out = context;
  return kSuccess;
}

CUDA_EXPORT int cuDevicePrimaryCtxRelease_v2(int ordinal) {
  CUDA_READY(ordinal);
  auto& [context, references] = contexts().primaries[ordinal];
  if (references == 0) return kInvalidContext;
  if (--references == 0) end_context(context);
  return kSuccess;
}
CUDA_EXPORT int cuDevicePrimaryCtxRelease(int ordinal) {
  return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUDA_EXPORT int cuDevicePrimaryCtxReset_v2(int ordinal) {
  CUDA_READY(ordinal);
  auto& [context, references] = contexts().primaries[ordinal];
  if (references != 0) end_context(context);
  references = 0;
  return kSuccess;
}

CUDA_EXPORT int cuDevicePrimaryCtxGetState(int ordinal, unsigned* flags, int* active) {
  if (!flags || !active) return kInvalidValue;
  CUDA_READY(ordinal);
  *flags = 0;
  *active = contexts().primaries[ordinal].second > 0;
  return kSuccess;
}

CUDA_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int ordinal, unsigned) {
  CUDA_READY(ordinal);
  return kSuccess;
}
