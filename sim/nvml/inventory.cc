// Which boards there are, and what does not change about them.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

void bus_id(const Board& b, char* out, std::size_t size, bool long_domain) {
  snprintf(out, size, long_domain ? "%08X:%02X:%02X.0" : "%04X:%02X:%02X.0", b.domain, b.bus, b.device);
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetCount_v2(unsigned* out) {
  NVML_ENTER(nvmlDeviceGetCount_v2);
  NVML_NEED(out);
  *out = static_cast<unsigned>(library().visible.size());
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetCount(unsigned* out) {
  return nvmlDeviceGetCount_v2(out);
}

NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  NVML_ENTER(nvmlDeviceGetHandleByIndex_v2);
  NVML_NEED(out);
  const auto& visible = library().visible;
  if (index >= visible.size()) return kInvalidArgument;
  if (state.gpus[visible[index]].live.lost) return unusable(state.gpus[visible[index]]);
  *out = gpu_handle(visible[index]);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void** out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}

NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  NVML_ENTER(nvmlDeviceGetHandleByUUID);
  if (!uuid || !out) return kInvalidArgument;
  for (std::uint32_t g : library().visible) {
    const Gpu& gpu = state.gpus[g];
    if (strcasecmp(gpu.board.uuid, uuid) == 0) {
      if (gpu.live.lost) return unusable(gpu);
      *out = gpu_handle(g);
      return kSuccess;
    }
    for (int i = 0; i < kMaxGis; ++i) {
      for (int c = 0; c < kMaxCis; ++c) {
        const ComputeInstance& ci = gpu.live.gis[i].cis[c];
        if (gpu.live.gis[i].used && ci.used && strcasecmp(ci.uuid, uuid) == 0) {
          *out = mig_handle(g, i, c);
          return kSuccess;
        }
      }
    }
  }
  return kNotFound;
}

NVML_EXPORT int nvmlDeviceGetHandleBySerial(const char* serial, void** out) {
  NVML_ENTER(nvmlDeviceGetHandleBySerial);
  if (!serial || !out) return kInvalidArgument;
  for (std::uint32_t g : library().visible) {
    if (strcmp(state.gpus[g].board.serial, serial) == 0) {
      *out = gpu_handle(g);
      return kSuccess;
    }
  }
  return kNotFound;
}

NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** out) {
  NVML_ENTER(nvmlDeviceGetHandleByPciBusId_v2);
  if (!id || !out) return kInvalidArgument;
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
    domain = 0;
    if (sscanf(id, "%x:%x.%x", &bus, &device, &function) != 3) return kInvalidArgument;
  }
  for (std::uint32_t g : library().visible) {
    const Board& b = state.gpus[g].board;
    if (b.domain == domain && b.bus == bus && b.device == device && function == 0) {
      if (state.gpus[g].live.lost) return unusable(state.gpus[g]);
      *out = gpu_handle(g);
      return kSuccess;
    }
  }
  return kNotFound;
}
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* id, void** out) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, out);
}

NVML_EXPORT int nvmlDeviceGetName(void* device, char* out, unsigned length) {
  NVML_KNOWN(nvmlDeviceGetName, device);
  if (entity->kind == Kind::kGpu) return copy_text(out, length, gpu.board.name);
  const GpuInstance& gi = gpu.live.gis[entity->gi];
  const GiProfile* row = find_gi_profile(gpu.board, gi.profile);
  char name[160];
  snprintf(name, sizeof name, "%s MIG %s", gpu.board.name, row ? row->name : "?");
  return copy_text(out, length, name);
}

NVML_EXPORT int nvmlDeviceGetUUID(void* device, char* out, unsigned length) {
  NVML_KNOWN(nvmlDeviceGetUUID, device);
  return copy_text(
      out, length,
      entity->kind == Kind::kGpu ? gpu.board.uuid : gpu.live.gis[entity->gi].cis[entity->ci].uuid);
}

NVML_EXPORT int nvmlDeviceGetIndex(void* device, unsigned* out) {
  NVML_KNOWN(nvmlDeviceGetIndex, device);
  NVML_NEED(out);
  if (entity->kind == Kind::kGpu) {
    *out = visible_index(index);
    return *out == kNone ? kNotFound : kSuccess;
  }
  unsigned at = 0;
  for (int i = 0; i < kMaxGis; ++i) {
    for (int c = 0; c < kMaxCis; ++c) {
      if (i == entity->gi && c == entity->ci) {
        *out = at;
        return kSuccess;
      }
      if (gpu.live.gis[i].used && gpu.live.gis[i].cis[c].used) ++at;
    }
  }
  return kNotFound;
}

NVML_EXPORT int nvmlDeviceGetMinorNumber(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetMinorNumber, device);
  NVML_NEED(out);
  *out = gpu.board.minor;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetSerial(void* device, char* out, unsigned length) {
  NVML_BOARD(nvmlDeviceGetSerial, device);
  return gpu.board.serial[0] ? copy_text(out, length, gpu.board.serial) : kNotSupported;
}

NVML_EXPORT int nvmlDeviceGetBoardPartNumber(void* device, char* out, unsigned length) {
  NVML_BOARD(nvmlDeviceGetBoardPartNumber, device);
  return gpu.board.board_part[0] ? copy_text(out, length, gpu.board.board_part) : kNotSupported;
}

NVML_EXPORT int nvmlDeviceGetBoardId(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetBoardId, device);
  NVML_NEED(out);
  *out = gpu.board.domain << 16 | gpu.board.bus << 8;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetVbiosVersion(void* device, char* out, unsigned length) {
  NVML_BOARD(nvmlDeviceGetVbiosVersion, device);
  return copy_text(out, length, gpu.board.vbios);
}

NVML_EXPORT int nvmlDeviceGetInforomImageVersion(void* device, char* out, unsigned length) {
  NVML_BOARD(nvmlDeviceGetInforomImageVersion, device);
  return gpu.board.inforom_image[0] ? copy_text(out, length, gpu.board.inforom_image) : kNotSupported;
}

NVML_EXPORT int nvmlDeviceGetInforomVersion(void* device, int object, char* out, unsigned length) {
  NVML_BOARD(nvmlDeviceGetInforomVersion, device);
  const char* texts[] = {gpu.board.inforom_oem, gpu.board.inforom_ecc, gpu.board.inforom_power};
  if (object < 0 || object > 2) return kInvalidArgument;
  return texts[object][0] ? copy_text(out, length, texts[object]) : kNotSupported;
}

NVML_EXPORT int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* out) {
  NVML_KNOWN(nvmlDeviceGetPciInfo_v3, device);
  NVML_NEED(out);
  const Board& b = gpu.board;
  *out = PciInfo{};
  bus_id(b, out->bus_id_legacy, sizeof out->bus_id_legacy, false);
  bus_id(b, out->bus_id, sizeof out->bus_id, true);
  out->domain = b.domain;
  out->bus = b.bus;
  out->device = b.device;
  out->pci_device_id = b.pci_id;
  out->pci_subsystem_id = b.subsystem_id;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPciInfo_v2(void* device, PciInfoV2* out) {
  PciInfo full{};
  if (int code = nvmlDeviceGetPciInfo_v3(device, out ? &full : nullptr)) return code;
  *out = PciInfoV2{{}, full.domain, full.bus, full.device, full.pci_device_id, full.pci_subsystem_id, {}};
  memcpy(out->bus_id, full.bus_id_legacy, sizeof out->bus_id);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPciInfo(void* device, PciInfoV2* out) {
  return nvmlDeviceGetPciInfo_v2(device, out);
}

NVML_EXPORT int nvmlDeviceGetPciInfoExt(void* device, PciInfoExt* out) {
  NVML_BOARD(nvmlDeviceGetPciInfoExt, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(PciInfoExt), 1)) return kArgumentVersionMismatch;
  const Board& b = gpu.board;
  *out = PciInfoExt{out->version,
                    b.domain,
                    b.bus,
                    b.device,
                    b.pci_id,
                    b.subsystem_id,
                    b.pci_class >> 16,
                    b.pci_class >> 8 & 0xFF,
                    {}};
  bus_id(b, out->bus_id, sizeof out->bus_id, true);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  NVML_DEVICE(nvmlDeviceGetCudaComputeCapability, device);
  if (!major || !minor) return kInvalidArgument;
  *major = static_cast<int>(gpu.board.cc_major);
  *minor = static_cast<int>(gpu.board.cc_minor);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetBrand(void* device, int* out) {
  NVML_DEVICE(nvmlDeviceGetBrand, device);
  NVML_NEED(out);
  *out = static_cast<int>(gpu.board.brand);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetArchitecture(void* device, unsigned* out) {
  NVML_DEVICE(nvmlDeviceGetArchitecture, device);
  NVML_NEED(out);
  *out = gpu.board.architecture;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNumGpuCores(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetNumGpuCores, device);
  NVML_NEED(out);
  *out = gpu.board.cores;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetAddressingMode(void* device, AddressingMode* out) {
  NVML_DEVICE(nvmlDeviceGetAddressingMode, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(AddressingMode), 1)) return kArgumentVersionMismatch;
  out->value = gpu.board.addressing_mode;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNumaNodeId(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetNumaNodeId, device);
  NVML_NEED(out);
  // A node of GPU memory; only boards with coherent memory have one.
  if (gpu.board.memory_numa_node < 0) return kNotSupported;
  *out = static_cast<unsigned>(gpu.board.memory_numa_node);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetComputeMode(void* device, int* out) {
  NVML_DEVICE(nvmlDeviceGetComputeMode, device);
  NVML_NEED(out);
  *out = static_cast<int>(gpu.live.compute_mode);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceSetComputeMode(void* device, int mode) {
  NVML_BOARD(nvmlDeviceSetComputeMode, device);
  if (mode < 0 || mode > 3) return kInvalidArgument;
  if (gpu.live.compute_mode == static_cast<unsigned>(mode)) return kSuccess;
  return change([&](State& s) {
    s.gpus[index].live.compute_mode = static_cast<unsigned>(mode);
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetPersistenceMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetPersistenceMode, device);
  NVML_NEED(out);
  *out = static_cast<int>(gpu.live.persistence);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceSetPersistenceMode(void* device, int mode) {
  NVML_BOARD(nvmlDeviceSetPersistenceMode, device);
  if (mode < 0 || mode > 1) return kInvalidArgument;
  if (gpu.live.persistence == static_cast<unsigned>(mode)) return kSuccess;
  return change([&](State& s) {
    s.gpus[index].live.persistence = static_cast<unsigned>(mode);
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetDisplayMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetDisplayMode, device);
  NVML_NEED(out);
  *out = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetDisplayActive(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetDisplayActive, device);
  NVML_NEED(out);
  *out = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetVirtualizationMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetVirtualizationMode, device);
  NVML_NEED(out);
  *out = state.vgpu_host ? 3 : 0;  // a vGPU host, or bare metal
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMultiGpuBoard(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetMultiGpuBoard, device);
  NVML_NEED(out);
  *out = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMemoryBusWidth(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetMemoryBusWidth, device);
  NVML_NEED(out);
  *out = gpu.board.memory_bus_bits;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGspFirmwareVersion(void* device, char* out) {
  NVML_BOARD(nvmlDeviceGetGspFirmwareVersion, device);
  return copy_text(out, 64, state.kernel_driver);
}

NVML_EXPORT int nvmlDeviceGetGspFirmwareMode(void* device, unsigned* enabled, unsigned* by_default) {
  NVML_BOARD(nvmlDeviceGetGspFirmwareMode, device);
  if (!enabled || !by_default) return kInvalidArgument;
  *enabled = *by_default = 1;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGridLicensableFeatures_v4(void* device, GridFeatures* out) {
  NVML_BOARD(nvmlDeviceGetGridLicensableFeatures_v4, device);
  NVML_NEED(out);
  *out = GridFeatures{};
  return kSuccess;
}
// Before _v4 a feature had fewer words; the two in front of the features are the same in all.
#define NVML_OLDER_GRID_FEATURES(symbol)                                              \
  NVML_EXPORT int symbol(void* device, GridFeatures* out) {                           \
    GridFeatures full{};                                                              \
    int code = nvmlDeviceGetGridLicensableFeatures_v4(device, out ? &full : nullptr); \
    if (code == kSuccess) memcpy(out, &full, offsetof(GridFeatures, features));       \
    return code;                                                                      \
  }
NVML_OLDER_GRID_FEATURES(nvmlDeviceGetGridLicensableFeatures)
NVML_OLDER_GRID_FEATURES(nvmlDeviceGetGridLicensableFeatures_v2)
NVML_OLDER_GRID_FEATURES(nvmlDeviceGetGridLicensableFeatures_v3)
