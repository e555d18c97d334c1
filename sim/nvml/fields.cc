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

// Injected errors are on link 0.
Answer link_errors(const Board& b, std::uint32_t link, std::uint64_t count) {
  if (link >= b.nvlink_count) return none();
  return ull_value(link == 0 ? count : 0);
}
Answer all_link_errors(const Board& b, std::uint64_t count) {
  return b.nvlink_count ? ull_value(count) : none();
}

Answer ecc_field(const Gpu& gpu, std::uint32_t id) {
  const Board& b = gpu.board;
  const Live& l = gpu.live;
  if (!b.ecc_supported) return none();
  if (id == 1) return uint_value(l.ecc_current);
  if (id == 2) return uint_value(l.ecc_pending);
  if (!l.ecc_current) return none();
  switch (id) {
    case 3:
    case 11:  // in the memory, where the injected errors are
      return ull_value(l.ecc_sbe_volatile);
    case 4:
    case 12:
      return ull_value(l.ecc_dbe_volatile);
    case 5:
    case 22:
      return ull_value(l.ecc_sbe_aggregate);
    case 6:
    case 23:
      return ull_value(l.ecc_dbe_aggregate);
    default:
      // By place in the chip: counted so until Volta only.
      return none();
  }
}

// Counters of six links each and their sum, which is at `first` + 6; links 6 to 11 have numbers of their own.
Answer old_link_field(const Gpu& gpu, std::uint32_t id) {
  struct Range {
    std::uint32_t first, more;
    std::uint64_t count;
  };
  const Live& l = gpu.live;
  const Range ranges[] = {{32, 96, l.nvlink_crc_flit},
                          {39, 102, l.nvlink_crc_data},
                          {46, 108, l.nvlink_replay},
                          {53, 114, l.nvlink_recovery}};
  for (const Range& r : ranges) {
    if (id >= r.first && id < r.first + 6) return link_errors(gpu.board, id - r.first, r.count);
    if (id == r.first + 6) return all_link_errors(gpu.board, r.count);
    if (id >= r.more && id < r.more + 6) return link_errors(gpu.board, 6 + id - r.more, r.count);
  }
  return none();
}

Answer nvlink_field(const Gpu& gpu, const Sensors& s, std::uint32_t id, std::uint32_t scope) {
  const Board& b = gpu.board;
  const Live& l = gpu.live;
  if (b.nvlink_count == 0) return none();
  bool one = scope < b.nvlink_count;
  switch (id) {
    case 90:
      return uint_value(b.nvlink_mbps);
    case 91:
      return uint_value(b.nvlink_count);
    case 138:
      return link_total(b, scope, s.nvlink_tx_kib);
    case 139:
      return link_total(b, scope, s.nvlink_rx_kib);
    case 140:  // with headers
      return link_total(b, scope, s.nvlink_tx_kib + s.nvlink_tx_kib / 8);
    case 141:
      return link_total(b, scope, s.nvlink_rx_kib + s.nvlink_rx_kib / 8);
    case 146:
      return one ? uint_value(scope) : none(kInvalidArgument);
    case 147:
      return b.nvlink_switched ? uint_value(b.nvlink_count) : none();
    case 160:
      return ull_value(0);
    case 161:
      return one ? link_errors(b, scope, l.nvlink_replay) : none(kInvalidArgument);
    case 162:
      return one ? link_errors(b, scope, l.nvlink_recovery) : none(kInvalidArgument);
    case 163:
      return one ? link_errors(b, scope, l.nvlink_crc_flit) : none(kInvalidArgument);
    case 164:
      return one ? uint_value(l.nvlink_down_mask >> scope & 1 ? 0 : b.nvlink_mbps) : none(kInvalidArgument);
    case 165:
      return one ? uint_value(l.nvlink_down_mask >> scope & 1 ? 0 : 1) : none(kInvalidArgument);
    case 166:
      return one ? uint_value(b.nvlink_version) : none(kInvalidArgument);
    case 167:
      return one ? uint_value(0) : none(kInvalidArgument);  // full speed
    case 201:
      return link_total(b, scope, s.nvlink_tx_kib / 4);
    case 202:
      return link_total(b, scope, s.nvlink_tx_kib * 1024);
    case 203:
      return link_total(b, scope, s.nvlink_rx_kib / 4);
    case 204:
      return link_total(b, scope, s.nvlink_rx_kib * 1024);
    default:
      break;
  }
  if (id >= 84 && id <= 89) return id - 84 < b.nvlink_count ? uint_value(b.nvlink_mbps) : none();
  if (id >= 132 && id <= 137) return id - 126 < b.nvlink_count ? uint_value(b.nvlink_mbps) : none();
  // Error counters of the fifth generation: clean links, but for recoveries.
  if (id >= 205 && id <= 215 && b.nvlink_version >= 5)
    return link_total(b, scope, id == 213 || id == 215 ? l.nvlink_recovery : 0);
  return old_link_field(gpu, id);
}

Answer remap_field(const Gpu& gpu, std::uint32_t id) {
  if (!gpu.board.row_remap_supported) return none();
  const Live& l = gpu.live;
  const std::uint32_t values[] = {l.remapped_correctable, l.remapped_uncorrectable, l.remap_pending,
                                  l.remap_failed};
  return uint_value(values[id - 142]);
}

Answer retired_field(const Gpu& gpu, std::uint32_t id) {
  if (!gpu.board.retired_pages_supported) return none();
  const Live& l = gpu.live;
  return ull_value(id == 29 ? l.retired_sbe : id == 30 ? l.retired_dbe : l.retired_pending);
}

Answer power_field(const Gpu& gpu, const Sensors& s, std::uint32_t id) {
  const Board& b = gpu.board;
  switch (id) {
    case 185:
    case 186:
      return uint_value(s.power_mw);
    case 187:
      return uint_value(b.power_min_mw);
    case 188:
      return uint_value(b.power_max_mw);
    case 189:
      return uint_value(b.power_default_mw);
    case 191:
      return ull_value(s.energy_mj);
    default:
      return uint_value(gpu.live.power_limit_mw ? gpu.live.power_limit_mw : b.power_default_mw);
  }
}

// Degrees below the point where the board acts, of Hopper and later.
Answer margin_field(const Board& b, std::uint32_t id) {
  if (!b.gpm_supported) return none();
  auto below = [&](std::uint32_t limit) {
    Answer a;
    a.type = kInt;
    a.value.i = static_cast<std::int32_t>(b.temp_slowdown) - static_cast<std::int32_t>(limit);
    return a;
  };
  switch (id) {
    case 193:
      return below(b.temp_shutdown);
    case 194:
      return below(b.temp_slowdown);
    case 195:
      return b.mem_temp_max ? below(b.mem_temp_max) : none();
    default:
      return below(b.temp_max_op);
  }
}

Answer field(const Gpu& gpu, const Sensors& s, std::uint32_t id, std::uint32_t scope) {
  const Board& b = gpu.board;
  const Live& l = gpu.live;
  if (id >= 1 && id <= 28) return ecc_field(gpu, id);
  if (id >= 29 && id <= 31) return retired_field(gpu, id);
  if (id >= 142 && id <= 145) return remap_field(gpu, id);
  if ((id >= 185 && id <= 192)) return power_field(gpu, s, id);
  if (id >= 193 && id <= 196) return margin_field(b, id);
  switch (id) {
    case 74:
      return ull_value(s.power_violation_ns);
    case 75:
      return ull_value(s.thermal_violation_ns);
    case 76:
    case 77:
    case 79:
      return ull_value(0);
    case 78:
      return ull_value(s.idle_ns);
    case 80:
    case 81:
      return ull_value(s.power_violation_ns + s.thermal_violation_ns);
    case 82:
      return b.has_memory_temp ? uint_value(s.memory_temperature) : none();
    case 83:
      return ull_value(s.energy_mj);
    case 92:
    case 93:
      return b.retired_pages_supported ? uint_value(id == 93 ? l.retired_pending : 0) : none();
    case 94:
      return uint_value(l.pcie_replays);
    case 95:
    case 169:
      return uint_value(0);
    case 170:
      return b.c2c_links ? uint_value(b.c2c_links) : none();
    case 171:
      return scope < b.c2c_links ? uint_value(1) : none();
    case 172:
      return scope < b.c2c_links ? uint_value(45000) : none();  // MB/s
    case 173:
      return uint_value(l.pcie_correctable);
    case 184:
      return b.mig_capable ? uint_value(b.mig_immediate) : none();
    case 226:
      return uint_value(l.lost == 2);
    case 227:
      return uint_value(l.recovery_action == 4);
    case 230:
      return uint_value(l.recovery_action);
    // Held back by heat and by the power brake; the numbers are those of drivers before 13 and of 13.
    case 251:
    case 252:
    case 269:
    case 270:
      return ull_value(s.thermal_violation_ns);
    case 253:
    case 271:
      return ull_value(s.brake_violation_ns);
    default:
      break;
  }
  if (id >= 174 && id <= 183) return b.pcie_gen >= 4 ? uint_value(0) : none();  // other PCIe errors
  if (id >= 197 && id <= 198) {
    std::uint64_t kib = static_cast<std::uint64_t>((id == 197 ? s.pcie_tx_mib : s.pcie_rx_mib) * 1024);
    return b.gpm_supported ? ull_value(kib * 1024) : none();
  }
  return nvlink_field(gpu, s, id, scope);
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
  // None of the fields that we know can be cleared.
  for (int i = 0; i < count; ++i) values[i].result = kNotSupported;
  return kSuccess;
}
