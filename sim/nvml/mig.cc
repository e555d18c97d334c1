// MIG: mode, profiles, instances (device-plugin-gfd-mps.md §7; behaviour mig-vgpu-sandbox.md §2.4).
#include <stdio.h>
#include <string.h>

#include "sim/nvml/library.h"
#include "sim/state/capabilities.h"
#include "sim/state/reset.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

bool any_instance(const Live& live) {
  for (const GpuInstance& gi : live.gis) {
    if (gi.used) return true;
  }
  return false;
}

GiProfileInfo gi_info(const GiProfile& p) {
  return GiProfileInfo{p.id,
                       p.capabilities & kMigPeerToPeer,
                       p.slices,
                       p.instances,
                       p.multiprocessors,
                       p.copy_engines,
                       p.decoders,
                       p.encoders,
                       p.jpegs,
                       p.ofas,
                       p.memory_mib};
}

CiProfileInfo ci_info(const GiProfile& gi, std::uint32_t profile) {
  std::uint32_t slices = ci_slices(profile);
  return CiProfileInfo{profile,
                       slices,
                       ci_instances(gi, profile),
                       gi.multiprocessors * slices / gi.slices,
                       gi.copy_engines,
                       gi.decoders,
                       gi.encoders,
                       gi.jpegs,
                       gi.ofas};
}

void profile_name(char (&out)[96], const GiProfile& gi, std::uint32_t ci_slices) {
  if (ci_slices == 0 || ci_slices == gi.slices)
    snprintf(out, sizeof out, "MIG %s", gi.name);
  else
    snprintf(out, sizeof out, "MIG %uc.%s", ci_slices, gi.name);
}

// A change of instances: the kernel's files follow it.
int change_instances(const std::function<int(State&)>& with) {
  int code = change(with);
  if (code != kSuccess) return code;
  // Another process may change instances meanwhile, and what is written here would undo its files.
  StateFile& file = library().file;
  for (std::uint32_t seen = 0; seen != file.generation();) {
    seen = file.generation();
    const State* now = file.read();
    if (!now) return code;
    publish_capabilities(*now);
  }
  return code;
}

// Fills an array that may be a size query: `out` nullptr or too small answers the number.
template <class Fill>
int fill(void** out, unsigned* count, unsigned have, Fill each) {
  if (!count) return kInvalidArgument;
  // NVML takes no size here: the caller must have room for the profile's maximum.
  *count = have;
  if (out) each();
  return kSuccess;
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  NVML_BOARD(nvmlDeviceGetMigMode, device);
  if (!current || !pending) return kInvalidArgument;
  if (!gpu.board.mig_capable) return kNotSupported;
  *current = gpu.live.mig_current;
  *pending = gpu.live.mig_pending;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceSetMigMode(void* device, unsigned mode, int* activation) {
  NVML_BOARD(nvmlDeviceSetMigMode, device);
  if (!activation || mode > 1) return kInvalidArgument;
  if (!gpu.board.mig_capable) return kNotSupported;
  *activation = kSuccess;
  if (gpu.live.mig_pending == mode && gpu.live.mig_current == mode) return kSuccess;
  if (any_instance(gpu.live) || !contexts_of(index).empty()) {
    *activation = kInUse;
    return kInUse;
  }
  return change([&](State& s) {
    Gpu& g = s.gpus[index];
    g.live.mig_pending = mode;
    if (g.board.mig_immediate) {
      g.live.mig_current = mode;
      push_event(s, index, 0x100, mode);
    }
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetMaxMigDeviceCount, device);
  NVML_NEED(out);
  *out = gpu.board.mig_capable && gpu.live.mig_current ? gpu.board.mig_slices : 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned wanted, void** out) {
  NVML_BOARD(nvmlDeviceGetMigDeviceHandleByIndex, device);
  NVML_NEED(out);
  if (!gpu.board.mig_capable) return kNotSupported;
  if (!gpu.live.mig_current) return kNotFound;  // a hole to enumerators, as on hardware
  if (wanted >= gpu.board.mig_slices) return kInvalidArgument;
  unsigned at = 0;
  for (int i = 0; i < kMaxGis; ++i) {
    for (int c = 0; c < kMaxCis; ++c) {
      if (!gpu.live.gis[i].used || !gpu.live.gis[i].cis[c].used || !mig_visible(state, index, i, c)) continue;
      if (at++ == wanted) {
        *out = mig_handle(index, i, c);
        return kSuccess;
      }
    }
  }
  return kNotFound;
}

NVML_EXPORT int nvmlDeviceIsMigDeviceHandle(void* device, unsigned* out) {
  NVML_DEVICE(nvmlDeviceIsMigDeviceHandle, device);
  NVML_NEED(out);
  *out = entity->kind == Kind::kMig;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* device, void** out) {
  NVML_DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device);
  NVML_NEED(out);
  if (entity->kind != Kind::kMig) return kInvalidArgument;
  *out = gpu_handle(index);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuInstanceId(void* device, unsigned* out) {
  NVML_DEVICE(nvmlDeviceGetGpuInstanceId, device);
  NVML_NEED(out);
  if (entity->kind != Kind::kMig) return kNotSupported;
  *out = gpu.live.gis[entity->gi].id;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetComputeInstanceId(void* device, unsigned* out) {
  NVML_DEVICE(nvmlDeviceGetComputeInstanceId, device);
  NVML_NEED(out);
  if (entity->kind != Kind::kMig) return kNotSupported;
  *out = gpu.live.gis[entity->gi].cis[entity->ci].id;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetAttributes_v2(void* device, DeviceAttributes* out) {
  NVML_DEVICE(nvmlDeviceGetAttributes_v2, device);
  NVML_NEED(out);
  if (entity->kind != Kind::kMig) return kNotSupported;
  const GpuInstance& gi = gpu.live.gis[entity->gi];
  const GiProfile* row = find_gi_profile(gpu.board, gi.profile);
  if (!row) return kUnknown;
  std::uint32_t slices = gi.cis[entity->ci].slices;
  *out = DeviceAttributes{row->multiprocessors * slices / row->slices,
                          row->copy_engines,
                          row->decoders,
                          row->encoders,
                          row->jpegs,
                          row->ofas,
                          row->slices,
                          slices,
                          row->memory_mib};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetAttributes(void* device, DeviceAttributesV1* out) {
  DeviceAttributes full{};
  if (int code = nvmlDeviceGetAttributes_v2(device, out ? &full : nullptr)) return code;
  memcpy(out, &full, sizeof *out);  // the first fields are the same
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuInstanceProfileInfo(void* device, unsigned profile, GiProfileInfo* out) {
  NVML_BOARD(nvmlDeviceGetGpuInstanceProfileInfo, device);
  NVML_NEED(out);
  if (profile >= 0x12) return kInvalidArgument;
  if (!gpu.board.mig_capable) return kNotSupported;
  const GiProfile* row = find_gi_profile(gpu.board, profile);
  if (!row) return kNotSupported;
  *out = gi_info(*row);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuInstanceProfileInfoV(void* device, unsigned profile, void* out) {
  NVML_BOARD(nvmlDeviceGetGpuInstanceProfileInfoV, device);
  NVML_NEED(out);
  if (profile >= 0x12) return kInvalidArgument;
  if (!gpu.board.mig_capable) return kNotSupported;
  const GiProfile* row = find_gi_profile(gpu.board, profile);
  if (!row) return kNotSupported;
  std::uint32_t version = version_of(out);
  if (version == version_word(sizeof(GiProfileInfoV2), 2)) {
    auto* v = static_cast<GiProfileInfoV2*>(out);
    *v = GiProfileInfoV2{version,
                         row->id,
                         row->capabilities & kMigPeerToPeer,
                         row->slices,
                         row->instances,
                         row->multiprocessors,
                         row->copy_engines,
                         row->decoders,
                         row->encoders,
                         row->jpegs,
                         row->ofas,
                         row->memory_mib,
                         {}};
    profile_name(v->name, *row, 0);
    return kSuccess;
  }
  if (version != version_word(sizeof(GiProfileInfoV3), 3)) return kArgumentVersionMismatch;
  auto* v = static_cast<GiProfileInfoV3*>(out);
  *v = GiProfileInfoV3{
      version,          row->id,       row->slices, row->instances, row->multiprocessors, row->copy_engines,
      row->decoders,    row->encoders, row->jpegs,  row->ofas,      row->memory_mib,      {},
      row->capabilities};
  profile_name(v->name, *row, 0);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuInstanceProfileInfoByIdV(void* device, unsigned id, void* out) {
  unsigned profile = kNone;
  {
    NVML_BOARD(nvmlDeviceGetGpuInstanceProfileInfoByIdV, device);
    const GiProfile* row = find_gi_profile_id(gpu.board, id);
    if (!row) return kNotSupported;
    profile = row->profile;
  }
  return nvmlDeviceGetGpuInstanceProfileInfoV(device, profile, out);
}

NVML_EXPORT int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void* device, unsigned id, Placement* out,
                                                              unsigned* count) {
  NVML_BOARD(nvmlDeviceGetGpuInstancePossiblePlacements_v2, device);
  NVML_NEED(count);
  if (!gpu.board.mig_capable || !gpu.live.mig_current) return kNotSupported;
  const GiProfile* row = find_gi_profile_id(gpu.board, id);
  if (!row) return kInvalidArgument;
  if (out) {
    if (*count < row->start_count) return kInsufficientSize;
    for (std::uint32_t i = 0; i < row->start_count; ++i) out[i] = Placement{row->starts[i], row->size};
  }
  *count = row->start_count;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuInstancePossiblePlacements(void* device, unsigned id, Placement* out,
                                                           unsigned* count) {
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, out, count);
}

NVML_EXPORT int nvmlDeviceGetGpuInstanceRemainingCapacity(void* device, unsigned id, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetGpuInstanceRemainingCapacity, device);
  NVML_NEED(out);
  if (!gpu.board.mig_capable || !gpu.live.mig_current) return kNotSupported;
  if (!find_gi_profile_id(gpu.board, id)) return kInvalidArgument;
  *out = remaining_gis(gpu, id);
  return kSuccess;
}

static int make_gi(void* device, unsigned id, std::uint32_t start, void** out, const State& state,
                   const Entity* entity) {
  (void)device;
  const std::uint32_t index = entity->gpu;
  NVML_NEED(out);
  if (!state.gpus[index].board.mig_capable || !state.gpus[index].live.mig_current) return kNotSupported;
  int made = -1;
  int code = change_instances([&](State& s) {
    if (int refused = create_gi(s.gpus[index], id, start, &made)) return refused;
    push_event(s, index, 0x100, 0, s.gpus[index].live.gis[made].id);
    return 0;
  });
  if (code == kSuccess) *out = gi_handle(index, made);
  return code;
}

NVML_EXPORT int nvmlDeviceCreateGpuInstance(void* device, unsigned id, void** out) {
  NVML_BOARD(nvmlDeviceCreateGpuInstance, device);
  return make_gi(device, id, kNone, out, state, entity);
}

NVML_EXPORT int nvmlDeviceCreateGpuInstanceWithPlacement(void* device, unsigned id,
                                                         const Placement* placement, void** out) {
  NVML_BOARD(nvmlDeviceCreateGpuInstanceWithPlacement, device);
  NVML_NEED(placement);
  return make_gi(device, id, placement->start, out, state, entity);
}

NVML_EXPORT int nvmlGpuInstanceDestroy(void* instance) {
  NVML_INSTANCE(nvmlGpuInstanceDestroy, instance, Kind::kGpuInstance);
  int slot = entity->gi;
  return change_instances([&](State& s) {
    std::uint32_t id = s.gpus[index].live.gis[slot].id;
    if (int refused = destroy_gi(s.gpus[index], slot)) return refused;
    push_event(s, index, 0x100, 0, id);
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetGpuInstances(void* device, unsigned id, void** out, unsigned* count) {
  NVML_BOARD(nvmlDeviceGetGpuInstances, device);
  if (!gpu.board.mig_capable || !gpu.live.mig_current) return kNotSupported;
  if (!find_gi_profile_id(gpu.board, id)) return kInvalidArgument;
  unsigned have = 0;
  for (const GpuInstance& gi : gpu.live.gis) have += gi.used && gi.profile_id == id;
  return fill(out, count, have, [&] {
    for (int i = 0; i < kMaxGis; ++i) {
      if (gpu.live.gis[i].used && gpu.live.gis[i].profile_id == id) *out++ = gi_handle(index, i);
    }
  });
}

NVML_EXPORT int nvmlDeviceGetGpuInstanceById(void* device, unsigned id, void** out) {
  NVML_BOARD(nvmlDeviceGetGpuInstanceById, device);
  NVML_NEED(out);
  if (!gpu.board.mig_capable || !gpu.live.mig_current) return kNotSupported;
  for (int i = 0; i < kMaxGis; ++i) {
    if (gpu.live.gis[i].used && gpu.live.gis[i].id == id) {
      *out = gi_handle(index, i);
      return kSuccess;
    }
  }
  return kNotFound;
}

NVML_EXPORT int nvmlGpuInstanceGetInfo(void* instance, GiInfo* out) {
  NVML_INSTANCE(nvmlGpuInstanceGetInfo, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  *out = GiInfo{gpu_handle(index), gi.id, gi.profile_id, {gi.start, gi.size}};
  return kSuccess;
}

NVML_EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfo(void* instance, unsigned profile,
                                                             unsigned engine, CiProfileInfo* out) {
  NVML_INSTANCE(nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  if (profile >= 9 || engine >= 1) return kInvalidArgument;
  if (ci_instances(*row, profile) == 0) return kNotSupported;
  *out = ci_info(*row, profile);
  return kSuccess;
}

NVML_EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfoV(void* instance, unsigned profile,
                                                              unsigned engine, void* out) {
  NVML_INSTANCE(nvmlGpuInstanceGetComputeInstanceProfileInfoV, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  if (profile >= 9 || engine >= 1) return kInvalidArgument;
  if (ci_instances(*row, profile) == 0) return kNotSupported;
  std::uint32_t version = version_of(out);
  if (version == version_word(sizeof(CiProfileInfoV2), 2)) {
    auto* v = static_cast<CiProfileInfoV2*>(out);
    *v = CiProfileInfoV2{version, ci_info(*row, profile), {}};
    profile_name(v->name, *row, ci_slices(profile));
    return kSuccess;
  }
  if (version != version_word(sizeof(CiProfileInfoV3), 3)) return kArgumentVersionMismatch;
  auto* v = static_cast<CiProfileInfoV3*>(out);
  *v = CiProfileInfoV3{version, ci_info(*row, profile), {}, row->capabilities};
  profile_name(v->name, *row, ci_slices(profile));
  return kSuccess;
}

NVML_EXPORT int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(void* instance, unsigned profile,
                                                                   unsigned* out) {
  NVML_INSTANCE(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  if (ci_instances(*row, profile) == 0) return kInvalidArgument;
  *out = remaining_cis(gpu, entity->gi, profile);
  return kSuccess;
}

static int make_ci(const Entity* entity, unsigned profile, std::uint32_t start, void** out) {
  NVML_NEED(out);
  const std::uint32_t index = entity->gpu;
  int slot = entity->gi, made = -1;
  int code = change_instances([&](State& s) {
    if (int refused = create_ci(s, index, slot, profile, start, &made)) return refused;
    const GpuInstance& gi = s.gpus[index].live.gis[slot];
    push_event(s, index, 0x100, 0, gi.id, gi.cis[made].id);
    return 0;
  });
  if (code == kSuccess) *out = ci_handle(index, slot, made);
  return code;
}

NVML_EXPORT int nvmlGpuInstanceCreateComputeInstance(void* instance, unsigned profile, void** out) {
  NVML_INSTANCE(nvmlGpuInstanceCreateComputeInstance, instance, Kind::kGpuInstance);
  return make_ci(entity, profile, kNone, out);
}

NVML_EXPORT int nvmlGpuInstanceCreateComputeInstanceWithPlacement(void* instance, unsigned profile,
                                                                  const Placement* placement, void** out) {
  NVML_INSTANCE(nvmlGpuInstanceCreateComputeInstanceWithPlacement, instance, Kind::kGpuInstance);
  NVML_NEED(placement);
  return make_ci(entity, profile, placement->start, out);
}

NVML_EXPORT int nvmlGpuInstanceGetComputeInstancePossiblePlacements(void* instance, unsigned profile,
                                                                    Placement* out, unsigned* count) {
  NVML_INSTANCE(nvmlGpuInstanceGetComputeInstancePossiblePlacements, instance, Kind::kGpuInstance);
  NVML_NEED(count);
  if (ci_instances(*row, profile) == 0) return kInvalidArgument;
  std::uint32_t size = ci_slices(profile), have = row->slices - size + 1;
  if (out) {
    if (*count < have) return kInsufficientSize;
    for (std::uint32_t i = 0; i < have; ++i) out[i] = Placement{i, size};
  }
  *count = have;
  return kSuccess;
}

NVML_EXPORT int nvmlComputeInstanceDestroy(void* instance) {
  NVML_INSTANCE(nvmlComputeInstanceDestroy, instance, Kind::kComputeInstance);
  int gi_slot = entity->gi, ci_slot = entity->ci;
  if (!contexts_of(index, static_cast<int>(gi.id), static_cast<int>(gi.cis[ci_slot].id)).empty())
    return kInUse;
  return change_instances([&](State& s) {
    const GpuInstance& old = s.gpus[index].live.gis[gi_slot];
    std::uint32_t gi_number = old.id, ci_number = old.cis[ci_slot].id;
    if (int refused = destroy_ci(s.gpus[index], gi_slot, ci_slot)) return refused;
    push_event(s, index, 0x100, 0, gi_number, ci_number);
    return 0;
  });
}

NVML_EXPORT int nvmlGpuInstanceGetComputeInstances(void* instance, unsigned profile, void** out,
                                                   unsigned* count) {
  NVML_INSTANCE(nvmlGpuInstanceGetComputeInstances, instance, Kind::kGpuInstance);
  if (ci_instances(*row, profile) == 0) return kInvalidArgument;
  unsigned have = 0;
  for (const ComputeInstance& ci : gi.cis) have += ci.used && ci.profile == profile;
  return fill(out, count, have, [&] {
    for (int c = 0; c < kMaxCis; ++c) {
      if (gi.cis[c].used && gi.cis[c].profile == profile) *out++ = ci_handle(index, entity->gi, c);
    }
  });
}

NVML_EXPORT int nvmlGpuInstanceGetComputeInstanceById(void* instance, unsigned id, void** out) {
  NVML_INSTANCE(nvmlGpuInstanceGetComputeInstanceById, instance, Kind::kGpuInstance);
  NVML_NEED(out);
  for (int c = 0; c < kMaxCis; ++c) {
    if (gi.cis[c].used && gi.cis[c].id == id) {
      *out = ci_handle(index, entity->gi, c);
      return kSuccess;
    }
  }
  return kNotFound;
}

NVML_EXPORT int nvmlComputeInstanceGetInfo_v2(void* instance, CiInfo* out) {
  NVML_INSTANCE(nvmlComputeInstanceGetInfo_v2, instance, Kind::kComputeInstance);
  NVML_NEED(out);
  const ComputeInstance& ci = gi.cis[entity->ci];
  *out = CiInfo{gpu_handle(index), gi_handle(index, entity->gi), ci.id, ci.profile, {ci.start, ci.size}};
  return kSuccess;
}
NVML_EXPORT int nvmlComputeInstanceGetInfo(void* instance, CiInfoV1* out) {
  CiInfo full{};
  if (int code = nvmlComputeInstanceGetInfo_v2(instance, out ? &full : nullptr)) return code;
  memcpy(out, &full, sizeof *out);  // the first fields are the same
  return kSuccess;
}

// Not NVML's: the real nvidia-smi resets a board through the library's private table, ours through this.
NVML_EXPORT int simDeviceReset(void* device) {
  NVML_BOARD(simDeviceReset, device);
  if (!contexts_of(index).empty()) return kInUse;
  return change_instances([&](State& s) {
    reset_board(s, index);
    return 0;
  });
}
