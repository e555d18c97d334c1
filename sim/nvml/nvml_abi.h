// NVML's C ABI as far as this library serves it (device-plugin-gfd-mps.md §7; telemetry.md §3): names,
// numbers and layouts only. Sizes are checked below; `version` words are size | version << 24.
#pragma once

#include <cstddef>
#include <cstdint>

#define NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpuop::sim::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kAlreadyInitialized = 5,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kVgpuEccNotSupported = 22,
  kInsufficientResources = 23,
  kFreqNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kGpuNotFound = 28,
  kInvalidState = 29,
  kResetTypeNotSupported = 30,
  kUnknown = 999,
};

struct PciInfo {
  char bus_id_legacy[16];
  std::uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct PciInfoV2 {  // of the calls before _v3
  char bus_id[16];
  std::uint32_t domain, bus, device, pci_device_id, pci_subsystem_id, reserved[4];
};
struct PciInfoExt {  // nvmlDeviceGetPciInfoExt
  std::uint32_t version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
  char bus_id[32];
};
struct Memory {
  std::uint64_t total, free, used;
};
struct MemoryV2 {
  std::uint32_t version;
  std::uint64_t total, reserved, free, used;
};
struct Bar1Memory {
  std::uint64_t total, free, used;
};
struct DeviceAttributes {
  std::uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
  std::uint64_t memory_mib;
};
struct DeviceAttributesV1 {  // of nvmlDeviceGetAttributes
  std::uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};
struct EventDataV1 {
  void* device;
  std::uint64_t type, data;
};
struct EventData {
  void* device;
  std::uint64_t type, data;
  std::uint32_t gi, ci;
};
struct Placement {
  std::uint32_t start, size;
};
struct GiProfileInfo {
  std::uint32_t id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
  std::uint64_t memory_mib;
};
struct GiProfileInfoV2 {
  std::uint32_t version, id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  std::uint64_t memory_mib;
  char name[96];
};
struct GiProfileInfoV3 {
  std::uint32_t version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
      ofas;
  std::uint64_t memory_mib;
  char name[96];
  std::uint32_t capabilities;
};
struct GiInfo {
  void* device;
  std::uint32_t id, profile_id;
  Placement placement;
};
struct CiProfileInfo {
  std::uint32_t id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};
struct CiProfileInfoV2 {
  std::uint32_t version;
  CiProfileInfo info;
  char name[96];
};
struct CiProfileInfoV3 {
  std::uint32_t version;
  CiProfileInfo info;
  char name[96];
  std::uint32_t capabilities;
};
struct CiInfo {
  void* device;
  void* gpu_instance;
  std::uint32_t id, profile_id;
  Placement placement;
};
struct CiInfoV1 {  // of nvmlComputeInstanceGetInfo
  void* device;
  void* gpu_instance;
  std::uint32_t id, profile_id;
};
struct FabricInfo {
  std::uint8_t cluster[16];
  std::uint32_t status, clique;
  std::uint8_t state;
};
struct FabricInfoV2 {
  std::uint32_t version;
  std::uint8_t cluster[16];
  std::uint32_t status, clique;
  std::uint8_t state;
  std::uint32_t health_mask;
};
struct FabricInfoV3 {
  std::uint32_t version;
  std::uint8_t cluster[16];
  std::uint32_t status, clique;
  std::uint8_t state;
  std::uint32_t health_mask;
  std::uint8_t health_summary;
};
struct FabricClique {
  std::uint8_t type;
  std::uint32_t id;
};
struct FabricInfoV4 {  // nvmlDeviceGetGpuFabricInfo_v4; no version word
  std::uint8_t cluster[16];
  std::uint32_t status;
  FabricClique cliques[64];
  std::uint32_t clique_count;
  std::uint8_t state;
  std::uint32_t health_mask;
  std::uint8_t health_summary;
};
struct AddressingMode {
  std::uint32_t version, value;
};
union Value {
  double d;
  std::uint32_t u;
  std::uint64_t ull;
  std::int64_t ll;
  std::int32_t i;
  std::uint16_t us;
};
enum ValueType : std::uint32_t {
  kDouble = 0,
  kUint = 1,
  kUlong = 2,
  kUlonglong = 3,
  kLonglong = 4,
  kInt = 5
};
struct FieldValue {
  std::uint32_t field, scope;
  std::int64_t timestamp_us, latency_us;
  std::uint32_t type;
  std::int32_t result;
  Value value;
};
struct ProcessInfo {
  std::uint32_t pid;
  std::uint64_t memory;
  std::uint32_t gi, ci;
};
struct ProcessInfoV1 {  // of the calls before _v2
  std::uint32_t pid;
  std::uint64_t memory;
};
struct ProcessDetail {
  std::uint32_t pid;
  std::uint64_t memory;
  std::uint32_t gi, ci;
  std::uint64_t protected_memory;
};
struct ProcessDetailList {
  std::uint32_t version, mode, count;  // mode: 0 compute, 1 graphics, 2 MPS, 3 all
  ProcessDetail* list;
};
struct ProcessUtilization {
  std::uint32_t pid;
  std::uint64_t timestamp_us;
  std::uint32_t sm, memory, encoder, decoder;  // percent
};
struct ProcessUtilizationInfo {
  std::uint64_t timestamp_us;
  std::uint32_t pid, sm, memory, encoder, decoder, jpeg, ofa;
};
struct ProcessesUtilizationInfo {
  std::uint32_t version, count;
  std::uint64_t last_seen_us;
  ProcessUtilizationInfo* list;
};
struct AccountingStats {
  std::uint32_t gpu, memory;
  std::uint64_t max_memory, time_ms, start_us;
  std::uint32_t running, reserved[5];
};
struct UtilSample {  // nvmlSample_t
  std::uint64_t timestamp_us;
  Value value;
};
struct ViolationTime {
  std::uint64_t reference_us, violation_ns;
};
struct EncoderSession {
  std::uint32_t id, pid, vgpu, codec, width, height, fps, latency;
};
struct FbcStats {
  std::uint32_t sessions, fps, latency;
};
struct Utilization {
  std::uint32_t gpu, memory;
};
struct EccCounts {  // nvmlEccErrorCounts_t
  std::uint64_t l1, l2, device_memory, register_file;
};
struct RowRemapperHistogram {
  std::uint32_t max, high, partial, low, none;
};
struct TemperatureV1 {  // nvmlDeviceGetTemperatureV
  std::uint32_t version, sensor;
  std::int32_t temperature;
};
struct MarginTemperature {
  std::uint32_t version;
  std::int32_t margin;
};
struct RowRemapsV2 {  // nvmlDeviceGetRemappedRows_v2
  std::uint32_t corrected, corrected_inactive, uncorrected, uncorrected_inactive, pending, failed;
};
struct RepairStatus {
  std::uint32_t version, channel_pending, tpc_pending;
};
struct SramEccStatus {
  std::uint32_t version;
  std::uint64_t aggregate_parity, aggregate_sec_ded, aggregate_corrected;
  std::uint64_t volatile_parity, volatile_sec_ded, volatile_corrected;
  std::uint64_t bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
  std::uint32_t threshold_exceeded;
};
struct SramUniqueErrors {
  std::uint32_t version, count;
  void* entries;
};
struct ThermalSensor {
  std::int32_t controller, low, high, temperature, target;
};
struct ThermalSettings {
  std::uint32_t count;
  ThermalSensor sensors[3];
};
struct DynamicPstates {
  std::uint32_t flags;
  struct {
    std::uint32_t present, percent, raise, lower;
  } domains[8];
};
struct ClockOffset {
  std::uint32_t version;
  std::int32_t type, pstate, offset, low, high;
};
struct TextBuffer {  // of performance modes and clock frequencies
  std::uint32_t version;
  char text[2048];
};
struct ClockMonitor {
  std::uint32_t global, count;
  struct {
    std::uint32_t domain, faults;
  } list[32];
};
struct PowerValue {
  std::uint32_t version;
  std::uint8_t scope;
  std::uint32_t milliwatts;
};
struct UuidV {                  // nvmlUUID_v1_t
  std::uint32_t version, type;  // 1 text, 2 binary
  union {
    char text[41];
    std::uint8_t bytes[16];
  } value;
};
struct PlatformInfoV1 {
  std::uint32_t version;
  std::uint8_t ib_guid[16], rack_guid[16], chassis_slot, compute_slot, node, peer_type, module_id;
};
struct PlatformInfoV2 {
  std::uint32_t version;
  std::uint8_t ib_guid[16], chassis_serial[16], slot, tray, host_id, peer_type, module_id;
};
struct Pdi {
  std::uint32_t version;
  std::uint64_t value;
};
struct DriverBranch {
  std::uint32_t version;
  char branch[80];
};
struct Capabilities {
  std::uint32_t version, mask;
};
struct NvLinkInfo {
  std::uint32_t version, encrypted;
};
struct NvLinkInfoV2 {
  std::uint32_t version, encrypted;
  std::uint8_t firmware[1600];  // versions of up to 100 parts, and
  std::uint32_t firmware_count;
};
struct BwModes {
  std::uint32_t version;
  std::uint8_t modes[23], count;
};
struct BwMode {
  std::uint32_t version, best;
  std::uint8_t mode;
};
struct DramEncryption {
  std::uint32_t version, state;
};
struct ConfComputeSettings {
  std::uint32_t version, environment, feature, devtools, multi_gpu;
};
struct ConfComputeCaps {
  std::uint32_t cpu, gpus;
};
struct ConfComputeState {
  std::uint32_t environment, feature, devtools;
};
struct ConfComputeMemory {
  std::uint64_t protected_kib, unprotected_kib;
};
struct VgpuMaxInstance {
  std::uint32_t version, type, per_gi;
};
struct VgpuTypeIds {
  std::uint32_t version, count;
  std::uint32_t* ids;
};
struct VgpuBar1 {
  std::uint32_t version;
  std::uint64_t bytes;
};
struct VgpuHeterogeneous {
  std::uint32_t version, mode;
};
struct VgpuPlacements {
  std::uint32_t version, size, count;
  std::uint32_t* ids;
  std::uint32_t mode;
};
struct VgpuVersion {
  std::uint32_t low, high;
};
struct VgpuSchedulerCaps {
  std::uint32_t policies[3], max_slice_ns, min_slice_ns, arr, max_frequency, min_frequency, max_factor,
      min_factor;
};
struct GridFeature {
  std::uint32_t code, state;
  char license_info[128];
  char product_name[128];
  std::uint32_t enabled;
  struct {
    std::uint32_t year;
    std::uint16_t month, day, hour, min, sec;
    std::uint8_t status;
  } expiry;
};
struct GridFeatures {
  std::int32_t supported;
  std::uint32_t count;
  GridFeature features[3];
};
struct GpmSupport {
  std::uint32_t version, supported;
};
struct GpmMetric {
  std::uint32_t id;
  std::int32_t result;
  double value;
  struct {
    char* short_name;
    char* long_name;
    char* unit;
  } info;
};
struct GpmMetricsGet {
  std::uint32_t version, count;
  void* sample1;
  void* sample2;
  GpmMetric metrics[477];  // callers built against an older library have fewer, and no higher count
};

constexpr std::uint32_t version_word(std::size_t size, std::uint32_t version) {
  return static_cast<std::uint32_t>(size) | version << 24;
}

static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);
static_assert(sizeof(MemoryV2) == 40 && version_word(sizeof(MemoryV2), 2) == 0x02000028);
static_assert(sizeof(DeviceAttributes) == 40 && sizeof(EventData) == 32 && sizeof(Placement) == 8);
static_assert(sizeof(GiProfileInfo) == 48 && sizeof(GiProfileInfoV2) == 152 &&
              sizeof(GiProfileInfoV3) == 152);
static_assert(offsetof(GiProfileInfoV2, memory_mib) == 48 && offsetof(GiProfileInfoV3, memory_mib) == 40);
static_assert(offsetof(GiProfileInfoV3, capabilities) == 144 && sizeof(GiInfo) == 24);
static_assert(sizeof(CiProfileInfo) == 36 && sizeof(CiProfileInfoV2) == 136 &&
              sizeof(CiProfileInfoV3) == 140);
static_assert(sizeof(PciInfoV2) == 52 && sizeof(DeviceAttributesV1) == 24 && sizeof(CiInfoV1) == 24);
static_assert(sizeof(FabricInfoV4) == 16 + 4 + 64 * 8 + 16 && offsetof(FabricInfoV4, health_mask) == 540);
static_assert(sizeof(ProcessInfoV1) == 16 && sizeof(ProcessDetail) == 32 && sizeof(ProcessDetailList) == 24);
static_assert(sizeof(ProcessUtilization) == 32 && sizeof(ProcessUtilizationInfo) == 40);
static_assert(sizeof(AccountingStats) == 56 && sizeof(UtilSample) == 16 && sizeof(SramEccStatus) == 104);
static_assert(sizeof(ThermalSettings) == 64 && sizeof(DynamicPstates) == 132 && sizeof(UuidV) == 52);
static_assert(sizeof(PlatformInfoV1) == 44 && sizeof(PlatformInfoV2) == 44 && sizeof(DriverBranch) == 84);
static_assert(sizeof(PowerValue) == 12 && offsetof(PowerValue, milliwatts) == 8 && sizeof(BwModes) == 28);
static_assert(sizeof(VgpuPlacements) == 32 && sizeof(VgpuTypeIds) == 16 && sizeof(VgpuSchedulerCaps) == 40);
static_assert(sizeof(NvLinkInfo) == 8 && sizeof(NvLinkInfoV2) == 1612);
static_assert(sizeof(GridFeature) == 284 && sizeof(GridFeatures) == 860);
static_assert(sizeof(CiInfo) == 32 && sizeof(FabricInfo) == 28 && sizeof(FabricInfoV2) == 36);
static_assert(sizeof(FabricInfoV3) == 40 && sizeof(AddressingMode) == 8 && sizeof(FieldValue) == 40);
static_assert(offsetof(FieldValue, value) == 32 && sizeof(ProcessInfo) == 24);

}  // namespace gpuop::sim::nvml
