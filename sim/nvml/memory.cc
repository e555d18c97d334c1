// Memory and the processes that use it.
#include <string.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

struct Split {
  std::uint64_t total = 0, reserved = 0, used = 0;
};

// The board's memory, or the GPU instance's that a MIG device lies in.
Split memory_of(const State& state, const Entity& e) {
  const Gpu& gpu = state.gpus[e.gpu];
  Split s;
  if (e.kind == Kind::kGpu) {
    s.total = gpu.board.memory_bytes;
    s.reserved = gpu.board.reserved_bytes;
    s.used = sensors_of(state, e.gpu).used_bytes;
    return s;
  }
  const GpuInstance& gi = gpu.live.gis[e.gi];
  if (const GiProfile* row = find_gi_profile(gpu.board, gi.profile)) s.total = row->memory_mib << 20;
  s.reserved = gpu.board.memory_bytes
                   ? static_cast<std::uint64_t>(static_cast<double>(gpu.board.reserved_bytes) *
                                                static_cast<double>(s.total) /
                                                static_cast<double>(gpu.board.memory_bytes))
                   : 0;
  for (const Context& c : contexts_of(e.gpu, static_cast<int>(gi.id))) s.used += c.memory_mib << 20;
  s.used = std::min(s.used, s.total - s.reserved);
  return s;
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetMemoryInfo(void* device, Memory* out) {
  NVML_DEVICE(nvmlDeviceGetMemoryInfo, device);
  NVML_NEED(out);
  if (gpu.board.unified_memory) return kNotSupported;
  Split s = memory_of(state, *entity);
  *out = Memory{s.total, s.total - s.reserved - s.used,
                s.reserved + s.used};  // v1 counts what is reserved as used
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* out) {
  NVML_DEVICE(nvmlDeviceGetMemoryInfo_v2, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(MemoryV2), 2)) return kArgumentVersionMismatch;
  if (gpu.board.unified_memory) return kNotSupported;
  Split s = memory_of(state, *entity);
  *out = MemoryV2{out->version, s.total, s.reserved, s.total - s.reserved - s.used, s.used};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetBAR1MemoryInfo(void* device, Bar1Memory* out) {
  NVML_DEVICE(nvmlDeviceGetBAR1MemoryInfo, device);
  NVML_NEED(out);
  std::uint64_t used = (std::uint64_t{1} << 20) * (1 + contexts_of(index).size() * 2);
  *out = Bar1Memory{gpu.board.bar1_bytes, gpu.board.bar1_bytes - used, used};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* out) {
  NVML_DEVICE(nvmlDeviceGetComputeRunningProcesses_v3, device);
  NVML_NEED(count);
  std::vector<Context> contexts;
  if (entity->kind == Kind::kGpu) {
    contexts = contexts_of(index);
  } else {
    const GpuInstance& gi = gpu.live.gis[entity->gi];
    contexts = contexts_of(index, static_cast<int>(gi.id), static_cast<int>(gi.cis[entity->ci].id));
  }
  // One line a process: its contexts on this board together.
  std::vector<ProcessInfo> list;
  for (const Context& c : contexts) {
    std::uint32_t gi = c.gi == 15 ? kNone : c.gi, ci = c.ci == 15 ? kNone : c.ci;
    auto same = std::find_if(list.begin(), list.end(), [&](const ProcessInfo& p) {
      return c.pid && p.pid == static_cast<std::uint32_t>(c.pid) && p.gi == gi && p.ci == ci;
    });
    if (same != list.end())
      same->memory += c.memory_mib << 20;
    else
      list.push_back(ProcessInfo{static_cast<std::uint32_t>(c.pid), c.memory_mib << 20, gi, ci});
  }
  unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > room) return kInsufficientSize;
  if (!list.empty()) {
    NVML_NEED(out);
    std::copy(list.begin(), list.end(), out);
  }
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void* device, unsigned* count, ProcessInfo* out) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, ProcessInfo* out) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}

NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, ProcessInfo*) {
  NVML_DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v3, device);
  NVML_NEED(count);
  *count = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo*) {
  NVML_DEVICE(nvmlDeviceGetMPSComputeRunningProcesses_v3, device);
  NVML_NEED(count);
  *count = 0;
  return kSuccess;
}
