// nvmlDeviceGetFieldValues: the field ids of telemetry.md §3.1 and the recovery action.
#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

struct Answer {
  int result = kSuccess;
  std::uint32_t type = kUint;
  Value value{};
};

Answer uint_value(std::uint32_t v) {
  Answer a;
  a.value.u = v;
  return a;
}
Answer ull_value(std::uint64_t v) {
  Answer a;
  a.type = kUlonglong;
  a.value.ull = v;
  return a;
}
Answer none(int result = kNotSupported) {
  Answer a;
  a.result = result;
  return a;
}

// A counter of one link or, with scope 0xFFFFFFFF, of all.
Answer link_total(const Board& b, std::uint32_t scope, std::uint64_t total) {
  if (b.nvlink_count == 0) return none();
  if (scope == kNone) return ull_value(total);
  return scope < b.nvlink_count ? ull_value(total / b.nvlink_count) : none(kInvalidArgument);
}

Answer link_errors(const Board& b, std::uint64_t count) {
  return b.nvlink_count ? ull_value(count) : none();
}

Answer field(const Gpu& gpu, const Sensors& s, std::uint32_t id, std::uint32_t scope) {
  const Board& b = gpu.board;
  const Live& l = gpu.live;
  bool ecc = b.ecc_supported && l.ecc_current;
  switch (id) {
    case 1:
      return b.ecc_supported ? uint_value(l.ecc_current) : none();
    case 2:
      return b.ecc_supported ? uint_value(l.ecc_pending) : none();
    case 3:
      return ecc ? ull_value(l.ecc_sbe_volatile) : none();
    case 4:
      return ecc ? ull_value(l.ecc_dbe_volatile) : none();
    case 5:
      return ecc ? ull_value(l.ecc_sbe_aggregate) : none();
    case 6:
      return ecc ? ull_value(l.ecc_dbe_aggregate) : none();
    case 29:
      return b.retired_pages_supported ? ull_value(l.retired_sbe) : none();
    case 30:
      return b.retired_pages_supported ? ull_value(l.retired_dbe) : none();
    case 31:
      return b.retired_pages_supported ? ull_value(l.retired_pending) : none();
    case 38:
      return link_errors(b, l.nvlink_crc_flit);
    case 45:
      return link_errors(b, l.nvlink_crc_data);
    case 52:
      return link_errors(b, l.nvlink_replay);
    case 59:
      return link_errors(b, l.nvlink_recovery);
    case 74:
      return ull_value(s.power_violation_ns);
    case 75:
      return ull_value(s.thermal_violation_ns);
    case 76:
    case 77:
      return ull_value(0);
    case 78:
      return ull_value(s.idle_ns);
    case 79:
      return ull_value(0);
    case 82:
      return b.has_memory_temp ? uint_value(s.memory_temperature) : none();
    case 83:
      return ull_value(s.energy_mj);
    case 91:
      return b.nvlink_count ? uint_value(b.nvlink_count) : none();
    case 138:
      return link_total(b, scope, s.nvlink_tx_kib);
    case 139:
      return link_total(b, scope, s.nvlink_rx_kib);
    case 142:
      return b.row_remap_supported ? uint_value(l.remapped_correctable) : none();
    case 143:
      return b.row_remap_supported ? uint_value(l.remapped_uncorrectable) : none();
    case 144:
      return b.row_remap_supported ? uint_value(l.remap_pending) : none();
    case 145:
      return b.row_remap_supported ? uint_value(l.remap_failed) : none();
    case 173:
      return uint_value(l.pcie_correctable);
    case 185:
    case 186:
      return uint_value(s.power_mw);
    case 187:
      return uint_value(b.power_min_mw);
    case 188:
      return uint_value(b.power_max_mw);
    case 189:
      return uint_value(b.power_default_mw);
    case 190:
    case 191:
      return uint_value(l.power_limit_mw ? l.power_limit_mw : b.power_default_mw);
    case 201:
      return link_total(b, scope, s.nvlink_tx_kib / 4);
    case 202:
      return link_total(b, scope, s.nvlink_tx_kib * 1024);
    case 203:
      return link_total(b, scope, s.nvlink_rx_kib / 4);
    case 204:
      return link_total(b, scope, s.nvlink_rx_kib * 1024);
    case 230:
      return uint_value(l.recovery_action);
    case 251:
    case 252:
      return ull_value(s.thermal_violation_ns);
    case 253:
      return ull_value(0);
    default:
      return none();
  }
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  NVML_BOARD(nvmlDeviceGetFieldValues, device);
  if (!values || count <= 0) return kInvalidArgument;
  std::uint64_t at = now_us();
  Sensors s = sense(state, index, contexts_of(index), at);
  for (int i = 0; i < count; ++i) {
    Answer a = field(gpu, s, values[i].field, values[i].scope);
    values[i].timestamp_us = static_cast<std::int64_t>(at);
    values[i].latency_us = 10;
    values[i].type = a.type;
    values[i].result = a.result;
    values[i].value = a.value;
  }
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceClearFieldValues(void* device, int count, FieldValue* values) {
  NVML_BOARD(nvmlDeviceClearFieldValues, device);
  if (!values || count <= 0) return kInvalidArgument;
  return kNotSupported;
}
