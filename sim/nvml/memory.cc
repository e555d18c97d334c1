// Memory of boards and MIG devices.
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
