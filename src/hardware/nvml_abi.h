// The binary interface of libnvidia-ml.so.1, declared from its documented facts: layouts, sizes and
// enumerations (device-plugin-gfd-mps.md §7.3, §7.4; telemetry.md §3.2). Plain structures, the same on x86-64
// and aarch64.
#pragma once

#include <cstdint>

namespace gpuop::hardware::abi {

// Opaque handles. A MIG device's handle is a Device too.
using Device = struct DeviceHandle*;
using GpuInstance = struct GpuInstanceHandle*;
using ComputeInstance = struct ComputeInstanceHandle*;
using EventSet = struct EventSetHandle*;
using GpmSample = struct GpmSampleHandle*;

// Return codes (§7.1); those that callers tell apart.
inline constexpr int kSuccess = 0;
inline constexpr int kUninitialized = 1;
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotSupported = 3;
inline constexpr int kNoPermission = 4;
inline constexpr int kNotFound = 6;
inline constexpr int kInsufficientSize = 7;
inline constexpr int kDriverNotLoaded = 9;
inline constexpr int kTimeout = 10;
inline constexpr int kLibraryNotFound = 12;
inline constexpr int kFunctionNotFound = 13;
inline constexpr int kGpuIsLost = 15;
inline constexpr int kResetRequired = 16;
inline constexpr int kVersionMismatch = 18;
inline constexpr int kInUse = 19;
inline constexpr int kNoData = 21;
inline constexpr int kInsufficientResources = 23;
inline constexpr int kArgumentVersionMismatch = 25;
inline constexpr int kUnknown = 999;

// The version word of versioned structures.
constexpr std::uint32_t version_word(std::size_t size, unsigned version) {
  return static_cast<std::uint32_t>(size) | (version << 24);
}

struct PciInfo {
  char bus_id_legacy[16];
  std::uint32_t domain;
  std::uint32_t bus;
  std::uint32_t device;
  std::uint32_t pci_device_id;  // device << 16 | vendor
  std::uint32_t pci_subsystem_id;
  char bus_id[32];  // "00000000:3B:00.0"
};
static_assert(sizeof(PciInfo) == 68);

struct Memory {
  std::uint64_t total;  // bytes
  std::uint64_t free;
  std::uint64_t used;
};
static_assert(sizeof(Memory) == 24);

struct MemoryV2 {
  std::uint32_t version;
  std::uint64_t total;  // bytes
  std::uint64_t reserved;
  std::uint64_t free;
  std::uint64_t used;
};
static_assert(sizeof(MemoryV2) == 40);

struct Bar1Memory {
  std::uint64_t total;  // bytes
  std::uint64_t free;
  std::uint64_t used;
};

struct Utilization {
  std::uint32_t gpu;     // percent
  std::uint32_t memory;  // percent
};

struct DeviceAttributes {
  std::uint32_t multiprocessor_count;
  std::uint32_t shared_copy_engine_count;
  std::uint32_t shared_decoder_count;
  std::uint32_t shared_encoder_count;
  std::uint32_t shared_jpeg_count;
  std::uint32_t shared_ofa_count;
  std::uint32_t gpu_instance_slice_count;
  std::uint32_t compute_instance_slice_count;
  std::uint64_t memory_size_mib;
};
static_assert(sizeof(DeviceAttributes) == 40);

struct EventData {
  Device device;
  std::uint64_t event_type;
  std::uint64_t event_data;  // the XID
  std::uint32_t gpu_instance_id;
  std::uint32_t compute_instance_id;
};
static_assert(sizeof(EventData) == 32);

struct Placement {
  std::uint32_t start;
  std::uint32_t size;
};
static_assert(sizeof(Placement) == 8);

struct GpuInstanceProfileInfo {
  std::uint32_t id;
  std::uint32_t is_p2p_supported;
  std::uint32_t slice_count;
  std::uint32_t instance_count;
  std::uint32_t multiprocessor_count;
  std::uint32_t copy_engine_count;
  std::uint32_t decoder_count;
  std::uint32_t encoder_count;
  std::uint32_t jpeg_count;
  std::uint32_t ofa_count;
  std::uint64_t memory_size_mib;
};
static_assert(sizeof(GpuInstanceProfileInfo) == 48);

struct GpuInstanceInfo {
  Device device;
  std::uint32_t id;
  std::uint32_t profile_id;
  Placement placement;
};
static_assert(sizeof(GpuInstanceInfo) == 24);

struct ComputeInstanceProfileInfo {
  std::uint32_t id;
  std::uint32_t slice_count;
  std::uint32_t instance_count;
  std::uint32_t multiprocessor_count;
  std::uint32_t shared_copy_engine_count;
  std::uint32_t shared_decoder_count;
  std::uint32_t shared_encoder_count;
  std::uint32_t shared_jpeg_count;
  std::uint32_t shared_ofa_count;
};
static_assert(sizeof(ComputeInstanceProfileInfo) == 36);

struct ComputeInstanceInfo {
  Device device;
  GpuInstance gpu_instance;
  std::uint32_t id;
  std::uint32_t profile_id;
  Placement placement;
};
static_assert(sizeof(ComputeInstanceInfo) == 32);

struct FabricInfo {
  std::uint8_t cluster_uuid[16];
  std::uint32_t status;
  std::uint32_t clique_id;
  std::uint8_t state;
};
static_assert(sizeof(FabricInfo) == 28);

struct FabricInfoV2 {
  std::uint32_t version;
  std::uint8_t cluster_uuid[16];
  std::uint32_t status;
  std::uint32_t clique_id;
  std::uint8_t state;
  std::uint32_t health_mask;
};
static_assert(sizeof(FabricInfoV2) == 36);

struct FabricInfoV3 {
  std::uint32_t version;
  std::uint8_t cluster_uuid[16];
  std::uint32_t status;
  std::uint32_t clique_id;
  std::uint8_t state;
  std::uint32_t health_mask;
  std::uint8_t health_summary;
};
static_assert(sizeof(FabricInfoV3) == 40);

struct AddressingMode {
  std::uint32_t version;
  std::uint32_t value;
};

union FieldUnion {
  double d;
  std::int32_t i;
  std::uint32_t u;
  std::uint64_t u64;
  std::int64_t i64;
};

// FieldValue.value_type.
inline constexpr std::uint32_t kTypeDouble = 0;
inline constexpr std::uint32_t kTypeUnsigned = 1;
inline constexpr std::uint32_t kTypeUnsignedLong = 2;
inline constexpr std::uint32_t kTypeUnsigned64 = 3;
inline constexpr std::uint32_t kTypeSigned64 = 4;
inline constexpr std::uint32_t kTypeSigned = 5;

struct FieldValue {
  std::uint32_t field_id;
  std::uint32_t scope_id;
  std::int64_t timestamp;  // microseconds since the epoch
  std::int64_t latency_usec;
  std::uint32_t value_type;
  std::uint32_t nvml_return;
  FieldUnion value;
};
static_assert(sizeof(FieldValue) == 40);

struct ProcessInfo {
  std::uint32_t pid;
  std::uint64_t used_gpu_memory;  // bytes
  std::uint32_t gpu_instance_id;
  std::uint32_t compute_instance_id;
};
static_assert(sizeof(ProcessInfo) == 24);

struct MarginTemperature {
  std::uint32_t version;
  std::int32_t margin;  // °C
};

struct RowRemapperHistogram {  // banks by how many spare rows they have left
  std::uint32_t max;
  std::uint32_t high;
  std::uint32_t partial;
  std::uint32_t low;
  std::uint32_t none;
};

struct GridFeature {
  std::uint32_t code;
  std::uint32_t state;
  char license_info[128];
  char product_name[128];
  std::uint32_t enabled;
  struct {
    std::uint32_t year;
    std::uint16_t month;
    std::uint16_t day;
    std::uint16_t hour;
    std::uint16_t min;
    std::uint16_t sec;
    std::uint8_t status;
  } expiry;
};

struct GridFeatures {
  std::int32_t is_supported;
  std::uint32_t count;
  GridFeature features[3];
};
inline constexpr std::uint32_t kGridFeatureVgpu = 1;

struct ProcessUtilization {
  std::uint32_t pid;
  std::uint64_t timestamp;  // microseconds since the epoch
  std::uint32_t sm;         // percent
  std::uint32_t memory;
  std::uint32_t encoder;
  std::uint32_t decoder;
};
static_assert(sizeof(ProcessUtilization) == 32);

struct GpmSupport {
  std::uint32_t version;
  std::uint32_t is_supported_device;
};

struct GpmMetricInfo {
  const char* short_name;
  const char* long_name;
  const char* unit;
};

struct GpmMetric {
  std::uint32_t metric_id;
  std::uint32_t nvml_return;
  double value;
  GpmMetricInfo info;
};

inline constexpr unsigned kGpmMaxMetrics = 333;

struct GpmMetrics {
  std::uint32_t version;  // 1
  std::uint32_t num_metrics;
  GpmSample sample1;  // older
  GpmSample sample2;  // newer
  GpmMetric metrics[kGpmMaxMetrics];
};

// Event bits (§7.4).
inline constexpr std::uint64_t kEventSingleBitEcc = 0x1;
inline constexpr std::uint64_t kEventDoubleBitEcc = 0x2;
inline constexpr std::uint64_t kEventXid = 0x8;
inline constexpr std::uint64_t kEventMigConfigChange = 0x100;
inline constexpr std::uint64_t kEventGpuUnavailable = 0x4000;
inline constexpr std::uint64_t kEventRecoveryAction = 0x8000;

inline constexpr unsigned kNoInstance = 0xFFFFFFFF;
inline constexpr unsigned kGpuInstanceProfiles = 0x12;
inline constexpr unsigned kComputeInstanceProfiles = 9;
inline constexpr unsigned kNvlinkMaxLinks = 36;

}  // namespace gpuop::hardware::abi
