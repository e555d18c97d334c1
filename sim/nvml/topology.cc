// How boards are connected: PCIe tree and NVLink.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

NVML_EXPORT int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* out);  // inventory.cc

namespace {

// Boards come in pairs beneath a switch, and half of a node's boards on each CPU's bridges.
int common_ancestor(const Board& a, const Board& b) {
  if (a.numa_node != b.numa_node) return 50;          // system
  if (a.domain != b.domain) return 40;                // one CPU's host bridges
  if (a.bus >> 4 == b.bus >> 4) return 10;            // one switch
  return a.nvlink_count || b.nvlink_count ? 40 : 30;  // node, or one host bridge
}

// Without switches a bridge joins boards 0 and 1, 2 and 3, …
std::uint32_t bridged_peer(std::uint32_t gpu) {
  return gpu ^ 1;
}

bool link_up(const State& state, std::uint32_t index, std::uint32_t link) {
  const Gpu& gpu = state.gpus[index];
  if (gpu.live.nvlink_down_mask >> link & 1) return false;
  return gpu.board.nvlink_switched || bridged_peer(index) < state.gpu_count;
}

bool linked(const State& state, std::uint32_t a, std::uint32_t b) {
  if (!state.gpus[a].board.nvlink_count || !state.gpus[b].board.nvlink_count) return false;
  return state.gpus[a].board.nvlink_switched || bridged_peer(a) == b;
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* out) {
  NVML_BOARD(nvmlDeviceGetTopologyCommonAncestor, a);
  NVML_NEED(out);
  const Entity* other = device_of(state, b);
  if (!other || other->kind != Kind::kGpu) return kInvalidArgument;
  *out = other->gpu == index ? 0 : common_ancestor(gpu.board, state.gpus[other->gpu].board);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTopologyNearestGpus(void* device, int level, unsigned* count, void** out) {
  NVML_BOARD(nvmlDeviceGetTopologyNearestGpus, device);
  NVML_NEED(count);
  unsigned have = 0, room = *count;
  for (std::uint32_t g : library().visible) {
    if (g == index || common_ancestor(gpu.board, state.gpus[g].board) != level) continue;
    if (out && have < room) out[have] = gpu_handle(g);
    ++have;
  }
  *count = out ? std::min(have, room) : have;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetP2PStatus(void* a, void* b, int caps, int* out) {
  NVML_BOARD(nvmlDeviceGetP2PStatus, a);
  if (!out || caps < 0 || caps > 4) return kInvalidArgument;
  const Entity* other = device_of(state, b);
  if (!other || other->kind != Kind::kGpu) return kInvalidArgument;
  *out = caps == 2 && !linked(state, index, other->gpu) ? 5 : 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* out) {
  NVML_BOARD(nvmlDeviceGetNvLinkState, device);
  NVML_NEED(out);
  if (gpu.board.nvlink_count == 0) return kNotSupported;
  if (link >= gpu.board.nvlink_count) return kInvalidArgument;
  *out = link_up(state, index, link) ? 1 : 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetNvLinkVersion, device);
  NVML_NEED(out);
  if (gpu.board.nvlink_count == 0) return kNotSupported;
  if (link >= gpu.board.nvlink_count) return kInvalidArgument;
  *out = gpu.board.nvlink_version;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkCapability(void* device, unsigned link, int capability, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetNvLinkCapability, device);
  NVML_NEED(out);
  if (gpu.board.nvlink_count == 0) return kNotSupported;
  if (link >= gpu.board.nvlink_count || capability < 0 || capability > 5) return kInvalidArgument;
  *out = 1;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* out) {
  void* peer = nullptr;
  {
    NVML_BOARD(nvmlDeviceGetNvLinkRemotePciInfo_v2, device);
    NVML_NEED(out);
    if (gpu.board.nvlink_count == 0) return kNotSupported;
    if (link >= gpu.board.nvlink_count) return kInvalidArgument;
    if (!link_up(state, index, link)) return kNotSupported;
    *out = PciInfo{};
    if (gpu.board.nvlink_switched) {
      // NVSwitches sit on a bus of their own, six on A100 boards, four later; a link n goes to switch n mod
      // that.
      std::uint32_t switches = gpu.board.cc_major >= 9 ? 4 : 6;
      out->bus = 0xC4 + link % switches;
      out->pci_device_id = (gpu.board.cc_major >= 10  ? 0x22A4u
                            : gpu.board.cc_major == 9 ? 0x22A3u
                                                      : 0x1AF1u)
                               << 16 |
                           0x10DE;
      snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus);
      snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
      return kSuccess;
    }
    peer = gpu_handle(bridged_peer(index));
  }
  return nvmlDeviceGetPciInfo_v3(peer, out);
}
NVML_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(void* device, unsigned link, PciInfoV2* out) {
  PciInfo full{};
  if (int code = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, out ? &full : nullptr)) return code;
  *out = PciInfoV2{{}, full.domain, full.bus, full.device, full.pci_device_id, full.pci_subsystem_id, {}};
  memcpy(out->bus_id, full.bus_id_legacy, sizeof out->bus_id);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* out) {
  NVML_BOARD(nvmlDeviceGetNvLinkRemoteDeviceType, device);
  NVML_NEED(out);
  if (gpu.board.nvlink_count == 0) return kNotSupported;
  if (link >= gpu.board.nvlink_count) return kInvalidArgument;
  *out = !link_up(state, index, link) ? 255 : gpu.board.nvlink_switched ? 2 : 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, int counter,
                                                unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetNvLinkErrorCounter, device);
  NVML_NEED(out);
  if (gpu.board.nvlink_count == 0) return kNotSupported;
  if (link >= gpu.board.nvlink_count) return kInvalidArgument;
  const Live& l = gpu.live;
  const std::uint32_t totals[] = {l.nvlink_replay, l.nvlink_recovery, l.nvlink_crc_flit, l.nvlink_crc_data};
  if (counter < 0 || counter > 3) return kInvalidArgument;
  // Injected errors are on link 0.
  *out = link == 0 ? totals[counter] : 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceResetNvLinkErrorCounters(void* device, unsigned link) {
  NVML_BOARD(nvmlDeviceResetNvLinkErrorCounters, device);
  if (gpu.board.nvlink_count == 0) return kNotSupported;
  if (link >= gpu.board.nvlink_count) return kInvalidArgument;
  if (link != 0) return kSuccess;
  return change([&](State& s) {
    Live& l = s.gpus[index].live;
    l.nvlink_replay = l.nvlink_recovery = l.nvlink_crc_flit = l.nvlink_crc_data = 0;
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetNvLinkInfo(void* device, void* out) {
  NVML_BOARD(nvmlDeviceGetNvLinkInfo, device);
  NVML_NEED(out);
  std::uint32_t version = version_of(out);
  bool v2 = version == version_word(sizeof(NvLinkInfoV2), 2);
  if (!v2 && version != version_word(sizeof(NvLinkInfo), 1)) return kArgumentVersionMismatch;
  if (gpu.board.nvlink_version < 5) return kNotSupported;
  NvLinkInfoV2 info{};
  info.version = version;
  memcpy(out, &info, v2 ? sizeof info : sizeof(NvLinkInfo));
  return kSuccess;
}

// What of its links a board may use: 0 all; only boards with the newer links can be told less.
NVML_EXPORT int nvmlDeviceGetNvlinkSupportedBwModes(void* device, BwModes* out) {
  NVML_BOARD(nvmlDeviceGetNvlinkSupportedBwModes, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(BwModes), 1)) return kArgumentVersionMismatch;
  if (gpu.board.nvlink_version < 5) return kNotSupported;
  *out = BwModes{out->version, {}, 1};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetNvlinkBwMode(void* device, BwMode* out) {
  NVML_BOARD(nvmlDeviceGetNvlinkBwMode, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(BwMode), 1)) return kArgumentVersionMismatch;
  if (gpu.board.nvlink_version < 5) return kNotSupported;
  *out = BwMode{out->version, 1, 0};
  return kSuccess;
}

NVML_EXPORT int nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, void** out) {
  NVML_ENTER(nvmlSystemGetTopologyGpuSet);
  NVML_NEED(count);
  unsigned have = 0, room = *count;
  for (std::uint32_t g : library().visible) {
    if (state.gpus[g].board.numa_node > 0 && cpu == 0) continue;
    if (out && have < room) out[have] = gpu_handle(g);
    ++have;
  }
  *count = out ? std::min(have, room) : have;
  return kSuccess;
}
