// NVLink fabrics: which boards share memory over switches, and whether the fabric manager let them in.
#include <string.h>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

// Two bits a matter: 0 not reported, 1 true, 2 false; the configuration has four at bit 8: 1 correct.
// Boards of compute capability 9 report degraded bandwidth only.
std::uint32_t health_mask(const Gpu& gpu) {
  if (!gpu.board.fabric_supported) return 0;
  if (gpu.live.fabric_health_mask) return gpu.live.fabric_health_mask;
  constexpr std::uint32_t kFalse = 2, kConfigured = 1;
  std::uint32_t mask = kFalse;
  if (gpu.board.cc_major >= 10) mask |= kFalse << 2 | kFalse << 4 | kFalse << 6 | kConfigured << 8;
  return mask;
}

std::uint8_t health_summary(const Gpu& gpu) {
  if (!gpu.board.fabric_supported) return 0;
  if (gpu.board.fabric_state != 3 || gpu.board.fabric_status != 0) return 2;  // unhealthy
  if (gpu.live.fabric_health_mask) return 2;
  return gpu.live.nvlink_down_mask ? 3 : 1;  // of limited capacity, or healthy
}

// Boards of before Hopper know of no fabric manager that they register with.
bool knows_fabric(const Board& b) {
  constexpr std::uint32_t kHopper = 9;
  return b.architecture >= kHopper;
}

FabricInfoV3 fabric_info(const Gpu& gpu, std::uint32_t version) {
  const Board& b = gpu.board;
  FabricInfoV3 out{version,
                   {},
                   b.fabric_status,
                   b.fabric_clique,
                   static_cast<std::uint8_t>(b.fabric_state),
                   health_mask(gpu),
                   health_summary(gpu)};
  memcpy(out.cluster, b.fabric_cluster, sizeof out.cluster);
  return out;
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetGpuFabricInfo(void* device, FabricInfo* out) {
  NVML_BOARD(nvmlDeviceGetGpuFabricInfo, device);
  NVML_NEED(out);
  if (!knows_fabric(gpu.board)) return kNotSupported;
  const Board& b = gpu.board;
  *out = FabricInfo{{}, b.fabric_status, b.fabric_clique, static_cast<std::uint8_t>(b.fabric_state)};
  memcpy(out->cluster, b.fabric_cluster, sizeof out->cluster);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuFabricInfoV(void* device, void* out) {
  NVML_BOARD(nvmlDeviceGetGpuFabricInfoV, device);
  NVML_NEED(out);
  std::uint32_t version = version_of(out);
  bool v3 = version == version_word(sizeof(FabricInfoV3), 3);
  if (!v3 && version != version_word(sizeof(FabricInfoV2), 2)) return kArgumentVersionMismatch;
  if (!knows_fabric(gpu.board)) return kNotSupported;
  FabricInfoV3 full = fabric_info(gpu, version);
  memcpy(out, &full, v3 ? sizeof(FabricInfoV3) : sizeof(FabricInfoV2));
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuFabricInfo_v4(void* device, FabricInfoV4* out) {
  NVML_BOARD(nvmlDeviceGetGpuFabricInfo_v4, device);
  NVML_NEED(out);
  if (!knows_fabric(gpu.board)) return kNotSupported;
  FabricInfoV3 from = fabric_info(gpu, 0);
  *out = FabricInfoV4{};
  memcpy(out->cluster, from.cluster, sizeof out->cluster);
  out->status = from.status;
  out->state = from.state;
  out->health_mask = from.health_mask;
  out->health_summary = from.health_summary;
  if (from.state == 3) {
    out->clique_count = 1;
    out->cliques[0].id = from.clique;
  }
  return kSuccess;
}
