// Where a board sits and how it is held: module, affinity, buses, limits, modes that do not change.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** out);    // inventory.cc
NVML_EXPORT int nvmlDeviceSetPowerManagementLimit(void* device, unsigned);  // sensors.cc

namespace {

// "0-31,64-95" into words of bits. False when the file cannot be read.
bool read_cpus(int node, unsigned words, unsigned long* set) {
  char path[256], text[1024] = {};
  const char* root = getenv("GPUOP_KERNEL_ROOT");
  snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", root ? root : "", node);
  FILE* f = fopen(path, "re");
  if (!f) return false;
  std::size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  for (char *at = text, *end = text; at < text + n && *at >= '0' && *at <= '9'; at = *end ? end + 1 : end) {
    unsigned long low = strtoul(at, &end, 10), high = low;
    if (*end == '-') high = strtoul(end + 1, &end, 10);
    for (unsigned long cpu = low; cpu <= high && cpu < std::uint64_t{words} * kBits; ++cpu)
      set[cpu / kBits] |= 1UL << (cpu % kBits);
  }
  return true;
}

}  // namespace

// The CPUs of the board's NUMA node; all of them when the node is not known.
NVML_EXPORT int nvmlDeviceGetCpuAffinityWithinScope(void* device, unsigned words, unsigned long* set,
                                                    unsigned scope) {
  NVML_BOARD(nvmlDeviceGetCpuAffinityWithinScope, device);
  if (!set || words == 0 || scope > 1) return kInvalidArgument;
  memset(set, 0, words * sizeof(unsigned long));
  if (!read_cpus(std::max(gpu.board.numa_node, 0), words, set)) std::fill_n(set, words, ~0UL);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetCpuAffinity(void* device, unsigned words, unsigned long* set) {
  return nvmlDeviceGetCpuAffinityWithinScope(device, words, set, 0);
}
NVML_EXPORT int nvmlDeviceGetMemoryAffinity(void* device, unsigned words, unsigned long* set,
                                            unsigned scope) {
  NVML_BOARD(nvmlDeviceGetMemoryAffinity, device);
  if (!set || words == 0 || scope > 1) return kInvalidArgument;
  memset(set, 0, words * sizeof(unsigned long));
  set[0] = 1UL << (gpu.board.numa_node > 0 && gpu.board.numa_node < 64 ? gpu.board.numa_node : 0);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceSetCpuAffinity(void* device) {
  NVML_BOARD(nvmlDeviceSetCpuAffinity, device);
  return kSuccess;  // the scheduler is the machine's, not this node's
}
NVML_EXPORT int nvmlDeviceClearCpuAffinity(void* device) {
  NVML_BOARD(nvmlDeviceClearCpuAffinity, device);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetHandleByUUIDV(const UuidV* uuid, void** out) {
  if (!uuid || !out) return kInvalidArgument;
  if (uuid->version != version_word(sizeof(UuidV), 1)) return kArgumentVersionMismatch;
  char text[sizeof uuid->value.text + 1] = {};
  if (uuid->type == 1) {
    memcpy(text, uuid->value.text, sizeof uuid->value.text);
    return nvmlDeviceGetHandleByUUID(text, out);
  }
  if (uuid->type != 2) return kInvalidArgument;
  const auto* b = uuid->value.bytes;
  char hex[33];
  for (std::size_t i = 0; i < 16; ++i) snprintf(hex + 2 * i, 3, "%02x", b[i]);
  for (const char* prefix : {"GPU", "MIG"}) {
    snprintf(text, sizeof text, "%s-%.8s-%.4s-%.4s-%.4s-%.12s", prefix, hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
    int code = nvmlDeviceGetHandleByUUID(text, out);
    if (code != kNotFound) return code;
  }
  return kNotFound;
}

NVML_EXPORT int nvmlDeviceGetModuleId(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetModuleId, device);
  NVML_NEED(out);
  *out = gpu.board.module_id;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetC2cModeInfoV(void* device, std::uint32_t* out) {
  NVML_BOARD(nvmlDeviceGetC2cModeInfoV, device);
  NVML_NEED(out);
  if (gpu.board.architecture < 9) return kNotSupported;
  *out = gpu.board.c2c_links != 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceOnSameBoard(void* a, void* b, int* out) {
  NVML_BOARD(nvmlDeviceOnSameBoard, a);
  NVML_NEED(out);
  const Entity* other = device_of(state, b);
  if (!other || other->kind != Kind::kGpu) return kInvalidArgument;
  *out = other->gpu == index;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetIrqNum(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetIrqNum, device);
  NVML_NEED(out);
  *out = 100 + gpu.board.bus;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetBusType(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetBusType, device);
  NVML_NEED(out);
  *out = 2;  // PCI Express
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPowerSource(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPowerSource, device);
  NVML_NEED(out);
  *out = 0;  // mains
  return kSuccess;
}
// 1 for 2.5 GT/s and so on: the generation's own number.
NVML_EXPORT int nvmlDeviceGetPcieLinkMaxSpeed(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPcieLinkMaxSpeed, device);
  NVML_NEED(out);
  *out = gpu.board.pcie_gen;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPcieSpeed(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPcieSpeed, device);
  NVML_NEED(out);
  constexpr unsigned kMegabits[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
  *out = gpu.board.pcie_gen < std::size(kMegabits) ? kMegabits[gpu.board.pcie_gen] : 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetInforomConfigurationChecksum(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetInforomConfigurationChecksum, device);
  NVML_NEED(out);
  *out = gpu.board.pci_id ^ gpu.board.subsystem_id;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceValidateInforom(void* device) {
  NVML_BOARD(nvmlDeviceValidateInforom, device);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetAPIRestriction(void* device, int api, int* out) {
  NVML_BOARD(nvmlDeviceGetAPIRestriction, device);
  if (!out || api < 0 || api > 1) return kInvalidArgument;
  if (api == 1) return kNotSupported;  // boost is not the user's
  *out = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetThermalSettings(void* device, unsigned sensor, ThermalSettings* out) {
  NVML_BOARD(nvmlDeviceGetThermalSettings, device);
  if (!out || (sensor > 0 && sensor != 15)) return kInvalidArgument;  // 15: all
  Sensors s = sensors_of(state, index);
  *out = ThermalSettings{1, {}};
  out->sensors[0] = ThermalSensor{1, 0, static_cast<std::int32_t>(gpu.board.temp_max_op),
                                  static_cast<std::int32_t>(s.temperature), 1};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceSetPowerManagementLimit_v2(void* device, PowerValue* value) {
  {
    NVML_BOARD(nvmlDeviceSetPowerManagementLimit_v2, device);
    NVML_NEED(value);
  }
  if (value->version != version_word(sizeof(PowerValue), 2)) return kArgumentVersionMismatch;
  if (value->scope != 0) return value->scope == 1 ? kNotSupported : kInvalidArgument;  // 1: the module
  return nvmlDeviceSetPowerManagementLimit(device, value->milliwatts);
}

NVML_EXPORT int nvmlDeviceGetCapabilities(void* device, Capabilities* out) {
  NVML_BOARD(nvmlDeviceGetCapabilities, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(Capabilities), 1)) return kArgumentVersionMismatch;
  out->mask = gpu.board.c2c_links ? 1 : 0;  // EGM
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPlatformInfo(void* device, void* out) {
  NVML_BOARD(nvmlDeviceGetPlatformInfo, device);
  NVML_NEED(out);
  // Both layouts have the same places; the second names them otherwise.
  std::uint32_t version = version_of(out);
  if (version != version_word(sizeof(PlatformInfoV2), 2) &&
      version != version_word(sizeof(PlatformInfoV1), 1))
    return kArgumentVersionMismatch;
  if (gpu.board.architecture < 10) return kNotSupported;
  PlatformInfoV2 info{};
  info.version = version;
  snprintf(reinterpret_cast<char*>(info.chassis_serial), sizeof info.chassis_serial, "SIM%08X",
           static_cast<unsigned>(state.seed & 0xFFFFFFFF));
  info.slot = info.tray = 1;
  info.host_id = 1;
  info.peer_type = gpu.board.nvlink_switched ? 2 : 1;  // over switches, or straight
  info.module_id = static_cast<std::uint8_t>(gpu.board.module_id);
  memcpy(out, &info, sizeof info);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPdi(void* device, Pdi* out) {
  NVML_BOARD(nvmlDeviceGetPdi, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(Pdi), 1)) return kArgumentVersionMismatch;
  if (gpu.board.architecture < 7) return kNotSupported;
  out->value = strtoull(gpu.board.serial, nullptr, 10) << 16 | gpu.board.pci_id >> 16;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetDramEncryptionMode(void* device, DramEncryption* current,
                                                DramEncryption* pending) {
  NVML_BOARD(nvmlDeviceGetDramEncryptionMode, device);
  if (!current || !pending) return kInvalidArgument;
  std::uint32_t version = version_word(sizeof(DramEncryption), 1);
  if (current->version != version || pending->version != version) return kArgumentVersionMismatch;
  return kNotSupported;
}

NVML_EXPORT int nvmlSystemGetDriverBranch(DriverBranch* out, unsigned length) {
  NVML_ENTER(nvmlSystemGetDriverBranch);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(DriverBranch), 1)) return kArgumentVersionMismatch;
  char text[80];
  unsigned major = static_cast<unsigned>(strtoul(state.kernel_driver, nullptr, 10));
  snprintf(text, sizeof text, "r%u_00", major);
  return copy_text(out->branch, std::min<unsigned>(length, sizeof out->branch), text);
}
NVML_EXPORT int nvmlSystemGetHicVersion(unsigned* count, void*) {
  NVML_ENTER(nvmlSystemGetHicVersion);
  NVML_NEED(count);
  *count = 0;
  return kSuccess;
}
NVML_EXPORT int nvmlGetExcludedDeviceCount(unsigned* out) {
  NVML_NEED(out);
  *out = 0;
  return kSuccess;
}
NVML_EXPORT int nvmlGetExcludedDeviceInfoByIndex(unsigned, void* out) {
  NVML_NEED(out);
  return kInvalidArgument;  // there are none
}

// Confidential computing: the boards of Hopper and later could, and do not.
NVML_EXPORT int nvmlSystemGetConfComputeCapabilities(ConfComputeCaps* out) {
  NVML_ENTER(nvmlSystemGetConfComputeCapabilities);
  NVML_NEED(out);
  bool capable = state.gpu_count > 0 && state.gpus[0].board.architecture >= 9;
  *out = ConfComputeCaps{0, capable ? 1u : 0u};
  return kSuccess;
}
NVML_EXPORT int nvmlSystemGetConfComputeState(ConfComputeState* out) {
  NVML_ENTER(nvmlSystemGetConfComputeState);
  NVML_NEED(out);
  *out = ConfComputeState{};
  return kSuccess;
}
NVML_EXPORT int nvmlSystemGetConfComputeSettings(ConfComputeSettings* out) {
  NVML_ENTER(nvmlSystemGetConfComputeSettings);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(ConfComputeSettings), 1)) return kArgumentVersionMismatch;
  *out = ConfComputeSettings{out->version, 0, 0, 0, 0};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetConfComputeMemSizeInfo(void* device, ConfComputeMemory* out) {
  NVML_BOARD(nvmlDeviceGetConfComputeMemSizeInfo, device);
  NVML_NEED(out);
  if (gpu.board.architecture < 9) return kNotSupported;
  *out = ConfComputeMemory{0, gpu.board.memory_bytes >> 10};
  return kSuccess;
}
