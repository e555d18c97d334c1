// Boards shared out to virtual machines: the types that a vGPU host offers (mig-vgpu-sandbox.md §4). Virtual
// GPUs themselves are made through sysfs; a host without machines has none that run.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

const VgpuType* find_type(const State& state, std::uint32_t id) {
  const VgpuType* end = state.vgpu_types + state.vgpu_type_count;
  const VgpuType* at = std::find_if(state.vgpu_types, end, [&](const VgpuType& t) { return t.id == id; });
  return at == end ? nullptr : at;
}

// Partitioned boards offer the types that lie in a GPU instance, whole boards the time-sliced ones.
bool offered(const Gpu& gpu, const VgpuType& t) {
  return (gpu.live.mig_current != 0) == (t.gi_profile != kNone);
}

// Whether another of the type could be made on the board now.
bool creatable(const Gpu& gpu, const VgpuType& t) {
  if (!offered(gpu, t)) return false;
  if (t.gi_profile == kNone) return true;
  return std::any_of(gpu.live.gis, gpu.live.gis + kMaxGis,
                     [&](const GpuInstance& gi) { return gi.used && gi.profile == t.gi_profile; });
}

template <class Filter>
int list_types(const State& state, unsigned* count, unsigned* out, Filter wanted) {
  NVML_NEED(count);
  if (!state.vgpu_host) return kNotSupported;
  unsigned have = 0, room = *count;
  for (std::uint32_t i = 0; i < state.vgpu_type_count; ++i) {
    if (!wanted(state.vgpu_types[i])) continue;
    if (out && have < room) out[have] = state.vgpu_types[i].id;
    ++have;
  }
  *count = have;
  return have > room ? kInsufficientSize : kSuccess;
}

// With `size` in and out, as the type calls have it.
int text_of_size(const char* text, char* out, unsigned* size) {
  NVML_NEED(size);
  unsigned need = static_cast<unsigned>(strlen(text)) + 1, room = *size;
  *size = need;
  return out && room >= need ? copy_text(out, room, text) : kInsufficientSize;
}

}  // namespace

// The first line of a function on a vGPU type: `type`.
#define VGPU_TYPE(symbol, id)                  \
  NVML_ENTER(symbol);                          \
  if (!state.vgpu_host) return kNotSupported;  \
  const VgpuType* type = find_type(state, id); \
  if (!type) return kInvalidArgument

NVML_EXPORT int nvmlDeviceGetHostVgpuMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetHostVgpuMode, device);
  NVML_NEED(out);
  if (!state.vgpu_host) return kNotSupported;
  *out = gpu.board.sriov_vfs != 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetSupportedVgpus(void* device, unsigned* count, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetSupportedVgpus, device);
  return list_types(state, count, out, [](const VgpuType&) { return true; });
}
NVML_EXPORT int nvmlDeviceGetCreatableVgpus(void* device, unsigned* count, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetCreatableVgpus, device);
  return list_types(state, count, out, [&](const VgpuType& t) { return creatable(gpu, t); });
}
NVML_EXPORT int nvmlDeviceGetActiveVgpus(void* device, unsigned* count, unsigned*) {
  NVML_BOARD(nvmlDeviceGetActiveVgpus, device);
  NVML_NEED(count);
  if (!state.vgpu_host) return kNotSupported;
  *count = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlVgpuTypeGetClass(unsigned id, char* out, unsigned* size) {
  VGPU_TYPE(nvmlVgpuTypeGetClass, id);
  return text_of_size(type->kind, out, size);
}
NVML_EXPORT int nvmlVgpuTypeGetName(unsigned id, char* out, unsigned* size) {
  VGPU_TYPE(nvmlVgpuTypeGetName, id);
  return text_of_size(type->name, out, size);
}
NVML_EXPORT int nvmlVgpuTypeGetGpuInstanceProfileId(unsigned id, unsigned* out) {
  VGPU_TYPE(nvmlVgpuTypeGetGpuInstanceProfileId, id);
  NVML_NEED(out);
  const GiProfile* row = state.gpu_count && type->gi_profile != kNone
                             ? find_gi_profile(state.gpus[0].board, type->gi_profile)
                             : nullptr;
  *out = row ? row->id : kNone;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetMaxInstancesPerGpuInstance(VgpuMaxInstance* out) {
  NVML_NEED(out);
  if (out->version != version_word(sizeof(VgpuMaxInstance), 1)) return kArgumentVersionMismatch;
  VGPU_TYPE(nvmlVgpuTypeGetMaxInstancesPerGpuInstance, out->type);
  if (type->gi_profile == kNone) return kNotSupported;
  out->per_gi = type->per_gi;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetDeviceID(unsigned id, unsigned long long* device,
                                        unsigned long long* subsystem) {
  VGPU_TYPE(nvmlVgpuTypeGetDeviceID, id);
  if (!device || !subsystem) return kInvalidArgument;
  *device = state.gpus[0].board.pci_id;
  *subsystem = type->id << 16 | 0x10DE;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetFramebufferSize(unsigned id, unsigned long long* out) {
  VGPU_TYPE(nvmlVgpuTypeGetFramebufferSize, id);
  NVML_NEED(out);
  *out = type->memory_mib << 20;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetFbReservation(unsigned id, unsigned long long* out) {
  VGPU_TYPE(nvmlVgpuTypeGetFbReservation, id);
  NVML_NEED(out);
  *out = (type->memory_mib << 20) / 16;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetGspHeapSize(unsigned id, unsigned long long* out) {
  VGPU_TYPE(nvmlVgpuTypeGetGspHeapSize, id);
  NVML_NEED(out);
  *out = std::uint64_t{124} << 20;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetNumDisplayHeads(unsigned id, unsigned* out) {
  VGPU_TYPE(nvmlVgpuTypeGetNumDisplayHeads, id);
  NVML_NEED(out);
  *out = type->heads;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetResolution(unsigned id, unsigned display, unsigned* x, unsigned* y) {
  VGPU_TYPE(nvmlVgpuTypeGetResolution, id);
  if (!x || !y || display >= type->heads) return kInvalidArgument;
  *x = type->max_x;
  *y = type->max_y;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetLicense(unsigned id, char* out, unsigned size) {
  VGPU_TYPE(nvmlVgpuTypeGetLicense, id);
  bool compute = strcmp(type->kind, "Compute") == 0;
  return copy_text(out, size,
                   compute ? "NVIDIA-AI-Enterprise,1.0;NVIDIA Virtual Compute Server,9.0"
                           : "NVIDIA RTX Virtual Workstation,5.0;Quadro-Virtual-DWS,5.0");
}
NVML_EXPORT int nvmlVgpuTypeGetFrameRateLimit(unsigned id, unsigned* out) {
  VGPU_TYPE(nvmlVgpuTypeGetFrameRateLimit, id);
  NVML_NEED(out);
  *out = type->frame_limit;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetMaxInstances(void* device, unsigned id, unsigned* out) {
  VGPU_TYPE(nvmlVgpuTypeGetMaxInstances, id);
  const Entity* entity = device_of(state, device);
  if (!entity || entity->kind != Kind::kGpu || !out) return kInvalidArgument;
  *out = type->instances;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetMaxInstancesPerVm(unsigned id, unsigned* out) {
  VGPU_TYPE(nvmlVgpuTypeGetMaxInstancesPerVm, id);
  NVML_NEED(out);
  *out = 16;
  return kSuccess;
}
NVML_EXPORT int nvmlVgpuTypeGetBAR1Info(unsigned id, VgpuBar1* out) {
  NVML_NEED(out);
  if (out->version != version_word(sizeof(VgpuBar1), 1)) return kArgumentVersionMismatch;
  VGPU_TYPE(nvmlVgpuTypeGetBAR1Info, id);
  out->bytes = std::uint64_t{256} << 20;
  return kSuccess;
}
// 0 peer-to-peer over NVLink, 1 GPUDirect, 2 several in one machine, 3 one type only, 4 one size only.
NVML_EXPORT int nvmlVgpuTypeGetCapabilities(unsigned id, int capability, unsigned* out) {
  VGPU_TYPE(nvmlVgpuTypeGetCapabilities, id);
  if (!out || capability < 0 || capability > 4) return kInvalidArgument;
  *out = capability == 2 ? 0 : capability <= 1 ? state.gpus[0].board.nvlink_count != 0 : 1;
  return kSuccess;
}

NVML_EXPORT int nvmlGetVgpuDriverCapabilities(int capability, unsigned* out) {
  NVML_ENTER(nvmlGetVgpuDriverCapabilities);
  if (!out || capability < 0 || capability > 1) return kInvalidArgument;
  if (!state.vgpu_host) return kNotSupported;
  *out = capability == 0;  // types of different sizes side by side
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetVgpuCapabilities(void* device, int capability, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetVgpuCapabilities, device);
  if (!out || capability < 0 || capability > 11) return kInvalidArgument;
  if (!state.vgpu_host) return kNotSupported;
  // 0 several fractional ones in a machine, 1 types and 2 sizes mixed, 7 media engines in small instances.
  *out = capability <= 2 || (capability == 7 && gpu.board.mig_capable);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetVgpuHeterogeneousMode(void* device, VgpuHeterogeneous* out) {
  NVML_BOARD(nvmlDeviceGetVgpuHeterogeneousMode, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(VgpuHeterogeneous), 1)) return kArgumentVersionMismatch;
  if (!state.vgpu_host) return kNotSupported;
  out->mode = 0;
  return kSuccess;
}
NVML_EXPORT int nvmlGetVgpuVersion(VgpuVersion* supported, VgpuVersion* current) {
  NVML_ENTER(nvmlGetVgpuVersion);
  if (!supported || !current) return kInvalidArgument;
  if (!state.vgpu_host) return kNotSupported;
  *supported = *current = VgpuVersion{0x70001, 0x130001};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetVgpuSchedulerCapabilities(void* device, VgpuSchedulerCaps* out) {
  NVML_BOARD(nvmlDeviceGetVgpuSchedulerCapabilities, device);
  NVML_NEED(out);
  if (!state.vgpu_host) return kNotSupported;
  *out = VgpuSchedulerCaps{{1, 2, 3}, 30000000, 1000000, 1, 960, 63, 60, 1};
  return kSuccess;
}

NVML_EXPORT int nvmlGpuInstanceGetCreatableVgpus(void* instance, VgpuTypeIds* out) {
  NVML_INSTANCE(nvmlGpuInstanceGetCreatableVgpus, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(VgpuTypeIds), 1)) return kArgumentVersionMismatch;
  return list_types(state, &out->count, out->ids,
                    [&](const VgpuType& t) { return t.gi_profile == gi.profile; });
}
NVML_EXPORT int nvmlGpuInstanceGetActiveVgpus(void* instance, VgpuTypeIds* out) {
  NVML_INSTANCE(nvmlGpuInstanceGetActiveVgpus, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(VgpuTypeIds), 1)) return kArgumentVersionMismatch;
  if (!state.vgpu_host) return kNotSupported;
  out->count = 0;
  return kSuccess;
}

// Of running virtual GPUs: none is known by any number.
#define NO_VGPU_INSTANCE(symbol)                               \
  NVML_EXPORT int symbol(unsigned) {                           \
    NVML_ENTER(symbol);                                        \
    return state.vgpu_host ? kInvalidArgument : kNotSupported; \
  }
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetVmID)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetUUID)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetMdevUUID)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetVmDriverVersion)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetFbUsage)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetLicenseStatus)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetLicenseInfo)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetLicenseInfo_v2)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetType)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetFrameRateLimit)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetEccMode)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetEncoderCapacity)
NO_VGPU_INSTANCE(nvmlVgpuInstanceSetEncoderCapacity)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetEncoderStats)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetEncoderSessions)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetFBCStats)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetFBCSessions)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetGpuInstanceId)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetGpuPciId)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetMetadata)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetPlacementId)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetRuntimeStateSize)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetAccountingMode)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetAccountingPids)
NO_VGPU_INSTANCE(nvmlVgpuInstanceGetAccountingStats)
NO_VGPU_INSTANCE(nvmlVgpuInstanceClearAccountingPids)

// Scheduling and migration of virtual GPUs need ones that run.
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetVgpuHeterogeneousMode)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetVgpuCapabilities)
NVML_ABSENT_ON_DEVICE(nvmlDeviceVgpuForceGspUnload)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetVirtualizationMode)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuTypeSupportedPlacements)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuTypeCreatablePlacements)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuMetadata)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetPgpuMetadataString)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuSchedulerLog)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuSchedulerLog_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuSchedulerState)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuSchedulerState_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetVgpuSchedulerState)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetVgpuSchedulerState_v2)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuUtilization)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuProcessUtilization)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuInstancesUtilizationInfo)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetVgpuProcessesUtilizationInfo)
NVML_ABSENT(nvmlGpuInstanceSetVgpuSchedulerState)
NVML_ABSENT(nvmlGpuInstanceGetVgpuSchedulerState)
NVML_ABSENT(nvmlGpuInstanceGetVgpuSchedulerLog)
NVML_ABSENT(nvmlGpuInstanceGetVgpuSchedulerState_v2)
NVML_ABSENT(nvmlGpuInstanceSetVgpuSchedulerState_v2)
NVML_ABSENT(nvmlGpuInstanceGetVgpuSchedulerLog_v2)
NVML_ABSENT(nvmlGpuInstanceGetVgpuTypeCreatablePlacements)
NVML_ABSENT(nvmlGpuInstanceGetVgpuHeterogeneousMode)
NVML_ABSENT(nvmlGpuInstanceSetVgpuHeterogeneousMode)
NVML_ABSENT(nvmlGetVgpuCompatibility)
NVML_ABSENT(nvmlSetVgpuVersion)
