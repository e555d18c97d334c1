#include "telemetry/fields.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace gpuop::telemetry {
namespace {

using enum Call;
using enum Level;
constexpr auto kI = Type::kInt;
constexpr auto kD = Type::kDouble;
constexpr auto kS = Type::kText;

constexpr std::int64_t kBlank64 = 0x7ffffffffffffff0;
constexpr std::int64_t kBlank32 = 0x7ffffff0;
constexpr double kBlankDouble = 140737488355328.0;

// NVML enumerators: clocks, temperature thresholds, InfoROM objects.
enum Clock : unsigned { kSm = 1, kMem = 2, kVideo = 3 };
enum Threshold : unsigned { kShutdown = 0, kSlowdown = 1, kMemMax = 2, kGpuMax = 3 };
enum Inforom : unsigned { kOem = 0, kEcc = 1, kPower = 2 };

Field field_value(std::string name, int id, unsigned nvml_id, unsigned scope = 0) {
  return {std::move(name), id, kI, kGpu, kFieldValue, nullptr, nvml_id, scope};
}
Field share(std::string name, int id, unsigned metric, Level level = kCompute) {
  return {std::move(name), id, kD, level, kGpm, nullptr, metric, 0, Scale::kPercent};
}
Field rate(std::string name, int id, unsigned metric, Level level = kGpu) {
  return {std::move(name), id, kI, level, kGpm, nullptr, metric, 0, Scale::kMebi};
}

std::vector<Field> single_fields() {
  return {
      {"DCGM_FI_DRIVER_VERSION", 1, kS, kNode, kSystem, nullptr, 0},
      {"DCGM_FI_NVML_VERSION", 2, kS, kNode, kSystem, nullptr, 1},
      {"DCGM_FI_CUDA_DRIVER_VERSION", 5, kI, kNode, kSystem, nullptr, 2},
      {"DCGM_FI_DEV_NAME", 50, kS, kGpu, kIdentity, nullptr, kIdName},
      {"DCGM_FI_DEV_BRAND", 51, kS, kGpu, kBrand},
      {"DCGM_FI_DEV_SERIAL", 53, kS, kGpu, kText, "nvmlDeviceGetSerial"},
      {"DCGM_FI_DEV_UUID", 54, kS, kGpu, kIdentity, nullptr, kIdUuid},
      {"DCGM_FI_DEV_MINOR_NUMBER", 55, kI, kGpu, kIdentity, nullptr, kIdMinor},
      {"DCGM_FI_DEV_OEM_INFOROM_VER", 56, kS, kGpu, kTextArg, "nvmlDeviceGetInforomVersion", kOem},
      {"DCGM_FI_DEV_PCI_BUSID", 57, kS, kGpu, kIdentity, nullptr, kIdBusId},
      {"DCGM_FI_DEV_MIG_MODE", 67, kI, kGpu, kPair, "nvmlDeviceGetMigMode", 0},
      {"DCGM_FI_DEV_ECC_INFOROM_VER", 80, kS, kGpu, kTextArg, "nvmlDeviceGetInforomVersion", kEcc},
      {"DCGM_FI_DEV_POWER_INFOROM_VER", 81, kS, kGpu, kTextArg, "nvmlDeviceGetInforomVersion", kPower},
      {"DCGM_FI_DEV_INFOROM_IMAGE_VER", 82, kS, kGpu, kText, "nvmlDeviceGetInforomImageVersion"},
      {"DCGM_FI_DEV_VBIOS_VERSION", 85, kS, kGpu, kText, "nvmlDeviceGetVbiosVersion"},
      {"DCGM_FI_DEV_BAR1_TOTAL", 90, kI, kGpu, kBar1, nullptr, 0},
      {"DCGM_FI_DEV_BAR1_USED", 92, kI, kGpu, kBar1, nullptr, 1},
      {"DCGM_FI_DEV_BAR1_FREE", 93, kI, kGpu, kBar1, nullptr, 2},
      {"DCGM_FI_DEV_SM_CLOCK", 100, kI, kGpu, kU32Arg, "nvmlDeviceGetClockInfo", kSm},
      {"DCGM_FI_DEV_MEM_CLOCK", 101, kI, kGpu, kU32Arg, "nvmlDeviceGetClockInfo", kMem},
      {"DCGM_FI_DEV_VIDEO_CLOCK", 102, kI, kGpu, kU32Arg, "nvmlDeviceGetClockInfo", kVideo},
      {"DCGM_FI_DEV_APP_SM_CLOCK", 110, kI, kGpu, kU32Arg, "nvmlDeviceGetApplicationsClock", 0},
      {"DCGM_FI_DEV_APP_MEM_CLOCK", 111, kI, kGpu, kU32Arg, "nvmlDeviceGetApplicationsClock", kMem},
      {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 112, kI, kGpu, kU64, "nvmlDeviceGetCurrentClocksEventReasons"},
      {"DCGM_FI_DEV_MAX_SM_CLOCK", 113, kI, kGpu, kU32Arg, "nvmlDeviceGetMaxClockInfo", kSm},
      {"DCGM_FI_DEV_MAX_MEM_CLOCK", 114, kI, kGpu, kU32Arg, "nvmlDeviceGetMaxClockInfo", kMem},
      {"DCGM_FI_DEV_MAX_VIDEO_CLOCK", 115, kI, kGpu, kU32Arg, "nvmlDeviceGetMaxClockInfo", kVideo},
      {"DCGM_FI_DEV_MEMORY_TEMP", 140, kI, kGpu, kFieldValue, nullptr, 82, 0, Scale::kTemperature},
      {"DCGM_FI_DEV_GPU_TEMP", 150, kI, kGpu, kU32Arg, "nvmlDeviceGetTemperature", 0, 0, Scale::kTemperature},
      {"DCGM_FI_DEV_MEM_MAX_OP_TEMP", 151, kI, kGpu, kU32Arg, "nvmlDeviceGetTemperatureThreshold", kMemMax},
      {"DCGM_FI_DEV_GPU_MAX_OP_TEMP", 152, kI, kGpu, kU32Arg, "nvmlDeviceGetTemperatureThreshold", kGpuMax},
      {"DCGM_FI_DEV_GPU_TEMP_LIMIT", 153, kI, kGpu, kMargin},
      {"DCGM_FI_DEV_POWER_USAGE", 155, kD, kGpu, kU32, "nvmlDeviceGetPowerUsage", 0, 0, Scale::kMilli},
      {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 156, kI, kGpu, kU64, "nvmlDeviceGetTotalEnergyConsumption"},
      {"DCGM_FI_DEV_POWER_USAGE_INSTANT", 157, kD, kGpu, kFieldValue, nullptr, 186, 0, Scale::kMilli},
      {"DCGM_FI_DEV_SLOWDOWN_TEMP", 158, kI, kGpu, kU32Arg, "nvmlDeviceGetTemperatureThreshold", kSlowdown},
      {"DCGM_FI_DEV_SHUTDOWN_TEMP", 159, kI, kGpu, kU32Arg, "nvmlDeviceGetTemperatureThreshold", kShutdown},
      {"DCGM_FI_DEV_POWER_MGMT_LIMIT", 160, kD, kGpu, kU32, "nvmlDeviceGetPowerManagementLimit", 0, 0,
       Scale::kMilliWhole},
      {"DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", 161, kD, kGpu, kPair,
       "nvmlDeviceGetPowerManagementLimitConstraints", 0, 0, Scale::kMilliWhole},
      {"DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", 162, kD, kGpu, kPair,
       "nvmlDeviceGetPowerManagementLimitConstraints", 1, 0, Scale::kMilliWhole},
      {"DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", 163, kD, kGpu, kU32, "nvmlDeviceGetPowerManagementDefaultLimit", 0,
       0, Scale::kMilliWhole},
      {"DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 164, kD, kGpu, kU32, "nvmlDeviceGetEnforcedPowerLimit", 0, 0,
       Scale::kMilliWhole},
      {"DCGM_FI_DEV_FABRIC_MANAGER_STATUS", 170, kI, kGpu, kFabric, nullptr, 0},
      {"DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE", 171, kI, kGpu, kFabric, nullptr, 1},
      {"DCGM_FI_DEV_FABRIC_CLUSTER_UUID", 172, kS, kGpu, kFabric, nullptr, 2},
      {"DCGM_FI_DEV_FABRIC_CLIQUE_ID", 173, kI, kGpu, kFabric, nullptr, 3},
      {"DCGM_FI_DEV_FABRIC_HEALTH_MASK", 174, kI, kGpu, kFabric, nullptr, 4},
      {"DCGM_FI_DEV_PSTATE", 190, kI, kGpu, kU32, "nvmlDeviceGetPerformanceState"},
      {"DCGM_FI_DEV_FAN_SPEED", 191, kI, kGpu, kU32, "nvmlDeviceGetFanSpeed"},
      // Not offered by any driver for years: known, never emitted.
      {"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 200, kI, kGpu, kNone},
      {"DCGM_FI_DEV_PCIE_RX_THROUGHPUT", 201, kI, kGpu, kNone},
      {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 202, kI, kGpu, kU32, "nvmlDeviceGetPcieReplayCounter"},
      {"DCGM_FI_DEV_GPU_UTIL", kGpuUtilField, kI, kGpu, kUtilization, nullptr, 0},
      {"DCGM_FI_DEV_MEM_COPY_UTIL", 204, kI, kGpu, kUtilization, nullptr, 1},
      {"DCGM_FI_DEV_ENC_UTIL", 206, kI, kGpu, kEngine, "nvmlDeviceGetEncoderUtilization"},
      {"DCGM_FI_DEV_DEC_UTIL", 207, kI, kGpu, kEngine, "nvmlDeviceGetDecoderUtilization"},
      {"DCGM_FI_DEV_XID_ERRORS", kXidField, kI, kCompute, kXid},
      {"DCGM_FI_DEV_PCIE_MAX_LINK_GEN", 235, kI, kGpu, kU32, "nvmlDeviceGetMaxPcieLinkGeneration"},
      {"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 236, kI, kGpu, kU32, "nvmlDeviceGetMaxPcieLinkWidth"},
      {"DCGM_FI_DEV_PCIE_LINK_GEN", 237, kI, kGpu, kU32, "nvmlDeviceGetCurrPcieLinkGeneration"},
      {"DCGM_FI_DEV_PCIE_LINK_WIDTH", 238, kI, kGpu, kU32, "nvmlDeviceGetCurrPcieLinkWidth"},
      field_value("DCGM_FI_DEV_POWER_VIOLATION", 240, 74),
      field_value("DCGM_FI_DEV_THERMAL_VIOLATION", 241, 75),
      field_value("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", 242, 76),
      field_value("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", 243, 77),
      field_value("DCGM_FI_DEV_LOW_UTIL_VIOLATION", 244, 78),
      field_value("DCGM_FI_DEV_RELIABILITY_VIOLATION", 245, 79),
      {"DCGM_FI_DEV_FB_TOTAL", 250, kI, kCompute, kFrameBuffer, nullptr, kFbTotal},
      {"DCGM_FI_DEV_FB_FREE", 251, kI, kCompute, kFrameBuffer, nullptr, kFbFree},
      {"DCGM_FI_DEV_FB_USED", kFbUsedField, kI, kCompute, kFrameBuffer, nullptr, kFbUsed},
      {"DCGM_FI_DEV_FB_RESERVED", 253, kI, kCompute, kFrameBuffer, nullptr, kFbReserved},
      {"DCGM_FI_DEV_FB_USED_PERCENT", 254, kD, kCompute, kFrameBuffer, nullptr, kFbUsedShare},
      {"DCGM_FI_DEV_ECC_CURRENT", 300, kI, kGpu, kPair, "nvmlDeviceGetEccMode", 0},
      {"DCGM_FI_DEV_ECC_PENDING", 301, kI, kGpu, kPair, "nvmlDeviceGetEccMode", 1},
      field_value("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 310, 3),
      field_value("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 311, 4),
      field_value("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 312, 5),
      field_value("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 313, 6),
      {"DCGM_FI_DEV_RETIRED_SBE", 390, kI, kGpu, kRetired, nullptr, 0},
      field_value("DCGM_FI_DEV_RETIRED_DBE", 391, 30),
      field_value("DCGM_FI_DEV_RETIRED_PENDING", 392, 31),
      field_value("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 393, 143),
      field_value("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 394, 142),
      field_value("DCGM_FI_DEV_ROW_REMAP_FAILURE", 395, 145),
      field_value("DCGM_FI_DEV_ROW_REMAP_PENDING", 396, 144),
      field_value("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 409, 38),
      field_value("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 419, 45),
      field_value("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 429, 52),
      field_value("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 439, 59),
      {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 449, kI, kGpu, kLinkRate, nullptr, 0, kAllLinks},
      {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", 526, kI, kGpu, kLicence},
      {"DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL", 843, kI, kGpu, kLinkRate, nullptr, 138, kAllLinks},
      {"DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_TOTAL", 897, kI, kGpu, kLinkRate, nullptr, 139, kAllLinks},
      share("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1001, 1),
      share("DCGM_FI_PROF_SM_ACTIVE", 1002, 2),
      share("DCGM_FI_PROF_SM_OCCUPANCY", 1003, 3),
      share("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1004, 5),
      share("DCGM_FI_PROF_DRAM_ACTIVE", 1005, 10, kInstance),
      share("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 1006, 11),
      share("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1007, 12),
      share("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1008, 13),
      rate("DCGM_FI_PROF_PCIE_TX_BYTES", 1009, 20),
      rate("DCGM_FI_PROF_PCIE_RX_BYTES", 1010, 21),
      rate("DCGM_FI_PROF_NVLINK_TX_BYTES", 1011, 61),
      rate("DCGM_FI_PROF_NVLINK_RX_BYTES", 1012, 60),
      share("DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", 1013, 9),
      share("DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", 1014, 7),
      share("DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", 1015, 6),
      share("DCGM_FI_PROF_PIPE_INT_ACTIVE", 1016, 4),
      rate("DCGM_FI_PROF_C2C_TX_ALL_BYTES", 1076, 100),
      rate("DCGM_FI_PROF_C2C_TX_DATA_BYTES", 1077, 102),
      rate("DCGM_FI_PROF_C2C_RX_ALL_BYTES", 1078, 101),
      rate("DCGM_FI_PROF_C2C_RX_DATA_BYTES", 1079, 103),
      {"DCGM_FI_PROF_HOSTMEM_CACHE_HIT", 1080, kI, kGpu, kGpm, nullptr, 160},
      {"DCGM_FI_PROF_HOSTMEM_CACHE_MISS", 1081, kI, kGpu, kGpm, nullptr, 161},
      {"DCGM_FI_PROF_PEERMEM_CACHE_HIT", 1082, kI, kGpu, kGpm, nullptr, 162},
      {"DCGM_FI_PROF_PEERMEM_CACHE_MISS", 1083, kI, kGpu, kGpm, nullptr, 163},
      field_value("DCGM_FI_DEV_NVLINK_COUNT_TX_PACKETS", 1200, 201, kAllLinks),
      field_value("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", 1201, 202, kAllLinks),
      field_value("DCGM_FI_DEV_NVLINK_COUNT_RX_PACKETS", 1202, 203, kAllLinks),
      field_value("DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES", 1203, 204, kAllLinks),
      field_value("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", 1420, 74),
      field_value("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS", 1421, 76),
      field_value("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 1422, 251),
      field_value("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 1423, 252),
      field_value("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1424, 253),
      field_value("DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", 1501, 173),
      field_value("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 1523, 230),
  };
}

// Counters per kind of memory: volatile, then aggregate; single bit, then double bit.
void add_ecc_locations(std::vector<Field>& all) {
  struct Group {
    int first;
    std::vector<std::pair<const char*, unsigned>> locations;  // NVML's numbers
  };
  const Group groups[] = {{314, {{"L1", 0}, {"L2", 1}, {"DEV", 2}, {"REG", 3}, {"TEX", 4}}},
                          {334, {{"SHM", 5}, {"CBU", 6}}},
                          {342, {{"SRM", 7}}}};
  for (const Group& group : groups) {
    int id = group.first;
    for (unsigned counter = 0; counter < 2; ++counter) {
      for (const auto& [location, number] : group.locations) {
        for (unsigned error = 0; error < 2; ++error) {
          std::string name = std::string("DCGM_FI_DEV_ECC_") + (error == 0 ? "SBE" : "DBE") +
                             (counter == 0 ? "_VOL_" : "_AGG_") + location;
          all.push_back(
              {std::move(name), id++, kI, kGpu, kEccCounter, nullptr, error << 8 | counter, number});
        }
      }
    }
  }
}

void add_links(std::vector<Field>& all) {
  for (unsigned link = 0; link < 18; ++link) {
    int n = static_cast<int>(link);
    std::string number = std::to_string(link);
    int both = n < 6 ? 440 + n : n < 12 ? 469 + n : n < 15 ? 434 + n : 479 + n;
    all.push_back({"DCGM_FI_DEV_NVLINK_BANDWIDTH_L" + number, both, kI, kGpu, kLinkRate, nullptr, 0, link});
    all.push_back(
        {"DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L" + number, 825 + n, kI, kGpu, kLinkRate, nullptr, 138, link});
    all.push_back(
        {"DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_L" + number, 879 + n, kI, kGpu, kLinkRate, nullptr, 139, link});
    all.push_back(rate("DCGM_FI_PROF_NVLINK_L" + number + "_TX_BYTES", 1040 + 2 * n, 63 + 2 * link));
    all.push_back(rate("DCGM_FI_PROF_NVLINK_L" + number + "_RX_BYTES", 1041 + 2 * n, 62 + 2 * link));
  }
}

void add_numbered(std::vector<Field>& all) {
  const char* banks[] = {"MAX", "HIGH", "PARTIAL", "LOW", "NONE"};
  for (int i = 0; i < 5; ++i)
    all.push_back({std::string("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_") + banks[i], 385 + i, kI, kGpu,
                   kRemapBanks, nullptr, static_cast<unsigned>(i)});
  for (unsigned i = 0; i < 8; ++i) {
    int n = static_cast<int>(i);
    all.push_back(share("DCGM_FI_PROF_NVDEC" + std::to_string(i) + "_ACTIVE", 1017 + n, 30 + i, kInstance));
    all.push_back(share("DCGM_FI_PROF_NVJPG" + std::to_string(i) + "_ACTIVE", 1025 + n, 40 + i, kInstance));
    if (i < 2)
      all.push_back(share("DCGM_FI_PROF_NVOFA" + std::to_string(i) + "_ACTIVE", 1033 + n, 50 + i, kInstance));
  }
  // CPU figures come from the DCGM library's own module; NVML has none.
  const std::pair<const char*, int> cpu[] = {
      {"UTIL_TOTAL", 1100},    {"UTIL_USER", 1101},          {"UTIL_NICE", 1102},    {"UTIL_SYS", 1103},
      {"UTIL_IRQ", 1104},      {"TEMP_CURRENT", 1110},       {"TEMP_WARNING", 1111}, {"TEMP_CRITICAL", 1112},
      {"CLOCK_CURRENT", 1120}, {"POWER_UTIL_CURRENT", 1130}, {"POWER_LIMIT", 1131}};
  for (const auto& [name, id] : cpu)
    all.push_back({std::string("DCGM_FI_DEV_CPU_") + name, id, kD, kNode, kNone});
}

std::vector<Field> all_fields() {
  std::vector<Field> all = single_fields();
  add_ecc_locations(all);
  add_links(all);
  add_numbered(all);
  std::ranges::sort(all, {}, &Field::id);
  return all;
}

using Names = std::map<std::string, int, std::less<>>;

const Names& legacy_names() {
  static const Names names = {{"dcgm_sm_clock", 100},
                              {"dcgm_memory_clock", 101},
                              {"dcgm_memory_temp", 140},
                              {"dcgm_gpu_temp", 150},
                              {"dcgm_power_usage", 155},
                              {"dcgm_total_energy_consumption", 156},
                              {"dcgm_pcie_tx_throughput", 200},
                              {"dcgm_pcie_rx_throughput", 201},
                              {"dcgm_pcie_replay_counter", 202},
                              {"dcgm_gpu_utilization", 203},
                              {"dcgm_mem_copy_utilization", 204},
                              {"dcgm_enc_utilization", 206},
                              {"dcgm_dec_utilization", 207},
                              {"dcgm_xid_errors", 230},
                              {"dcgm_power_violation", 240},
                              {"dcgm_thermal_violation", 241},
                              {"dcgm_sync_boost_violation", 242},
                              {"dcgm_board_limit_violation", 243},
                              {"dcgm_low_util_violation", 244},
                              {"dcgm_reliability_violation", 245},
                              {"dcgm_fb_free", 251},
                              {"dcgm_fb_used", 252},
                              {"dcgm_ecc_sbe_volatile_total", 310},
                              {"dcgm_ecc_dbe_volatile_total", 311},
                              {"dcgm_ecc_sbe_aggregate_total", 312},
                              {"dcgm_ecc_dbe_aggregate_total", 313},
                              {"dcgm_retired_pages_sbe", 390},
                              {"dcgm_retired_pages_dbe", 391},
                              {"dcgm_retired_pages_pending", 392},
                              {"dcgm_nvlink_flit_crc_error_count_total", 409},
                              {"dcgm_nvlink_data_crc_error_count_total", 419},
                              {"dcgm_nvlink_replay_error_count_total", 429},
                              {"dcgm_nvlink_recovery_error_count_total", 439},
                              {"dcgm_nvlink_bandwidth_total", 449},
                              {"dcgm_fi_prof_gr_engine_active", 1001},
                              {"dcgm_fi_prof_sm_active", 1002},
                              {"dcgm_fi_prof_sm_occupancy", 1003},
                              {"dcgm_fi_prof_pipe_tensor_active", 1004},
                              {"dcgm_fi_prof_dram_active", 1005},
                              {"dcgm_fi_prof_pcie_tx_bytes", 1009},
                              {"dcgm_fi_prof_pcie_rx_bytes", 1010}};
  return names;
}

const Names& aliases() {
  static const Names names = {{"DCGM_FI_SYSTEM_DRIVER_VERSION", 1},
                              {"DCGM_FI_SYSTEM_NVML_VERSION", 2},
                              {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 112},
                              {"DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", 140},
                              {"DCGM_FI_DEV_GPU_TEMP_CELSIUS", 150},
                              {"DCGM_FI_DEV_BOARD_POWER_WATTS", 155},
                              {"DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", 157},
                              {"DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", 160},
                              {"DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", 164},
                              {"DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 202},
                              {"DCGM_FI_DEV_GPU_UTIL_RATIO", 203},
                              {"DCGM_FI_DEV_XID_ERROR", 230},
                              {"DCGM_FI_DEV_FB_USED_RATIO", 254},
                              {"DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", 390},
                              {"DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", 391},
                              {"DCGM_FI_DEV_PAGE_RETIRED_PENDING", 392},
                              {"DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 393},
                              {"DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", 394},
                              {"DCGM_FI_DEV_ROW_REMAP_FAILED", 395},
                              {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", 409},
                              {"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", 419},
                              {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", 429},
                              {"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", 439},
                              {"DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", 449},
                              {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1001},
                              {"DCGM_FI_PROF_SM_UTIL_RATIO", 1002},
                              {"DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 1003},
                              {"DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1004},
                              {"DCGM_FI_PROF_DRAM_UTIL_RATIO", 1005},
                              {"DCGM_FI_PROF_FP64_UTIL_RATIO", 1006},
                              {"DCGM_FI_PROF_FP32_UTIL_RATIO", 1007},
                              {"DCGM_FI_PROF_FP16_UTIL_RATIO", 1008}};
  return names;
}

const Names& own_names() {
  static const Names names = {
      {"DCGM_EXP_XID_ERRORS_COUNT", kXidCount},      {"DCGM_EXP_CLOCK_EVENTS_COUNT", kClockEventsCount},
      {"DCGM_EXP_GPU_HEALTH_STATUS", kHealthStatus}, {"DCGM_EXP_P2P_STATUS", kP2pStatus},
      {"DCGM_EXP_XID_ERRORS_TOTAL", kXidTotal},      {"DCGM_EXP_CLOCK_EVENTS_TOTAL", kClockEventsTotal}};
  return names;
}

const Names& current_names() {
  static const Names names = [] {
    Names all;
    for (const Field& field : fields()) all[field.name] = field.id;
    return all;
  }();
  return names;
}

}  // namespace

bool is_blank(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value))
    return *number >= kBlank64 || (*number >= kBlank32 && *number <= kBlank32 + 3);
  if (const auto* number = std::get_if<double>(&value))
    return !std::isfinite(*number) || *number >= kBlankDouble;
  if (const auto* text = std::get_if<std::string>(&value))
    return text->empty() || (text->starts_with("<<<") && text->find(">>>") != std::string::npos);
  return true;
}

std::span<const Field> fields() {
  static const std::vector<Field> all = all_fields();
  return all;
}

const Field* field_by_id(int id) {
  auto all = fields();
  auto found = std::ranges::lower_bound(all, id, {}, &Field::id);
  return found != all.end() && found->id == id ? &*found : nullptr;
}

std::optional<int> field_id(std::string_view name) {
  for (const Names* names : {&current_names(), &legacy_names(), &aliases(), &own_names()}) {
    if (auto found = names->find(name); found != names->end()) return found->second;
  }
  return std::nullopt;
}

std::vector<std::string> candidates_for(std::string_view name) {
  // The one name that people know and that is none (§3.4).
  if (name == "DCGM_FI_DEV_ECC_ERRORS")
    return {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
            "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"};
  std::vector<std::string> pool;
  for (const Names* names : {&current_names(), &legacy_names(), &aliases(), &own_names()})
    for (const auto& [known, id] : *names) pool.push_back(known);
  std::vector<std::string> near;
  while (near.size() < 3) {
    auto next = nearest(name, pool);
    if (!next) break;
    std::erase(pool, *next);
    near.push_back(std::move(*next));
  }
  return near;
}

}  // namespace gpuop::telemetry
