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
  kInsufficientResources = 23,
  kArgumentVersionMismatch = 25,
  kUnknown = 999,
};

struct PciInfo {
  char bus_id_legacy[16];
  std::uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
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
  GpmMetric metrics[333];
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
static_assert(sizeof(CiInfo) == 32 && sizeof(FabricInfo) == 28 && sizeof(FabricInfoV2) == 36);
static_assert(sizeof(FabricInfoV3) == 40 && sizeof(AddressingMode) == 8 && sizeof(FieldValue) == 40);
static_assert(offsetof(FieldValue, value) == 32 && sizeof(ProcessInfo) == 24);

}  // namespace gpuop::sim::nvml
