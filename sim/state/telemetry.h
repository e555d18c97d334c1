// What a board's sensors would read: functions of its constants, its load and the time, and of nothing else,
// so that every process of a node reads the same and a replay reads the same again.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/state/contexts.h"
#include "sim/state/state.h"

namespace gpuop::sim {

// Reasons for lower clocks (telemetry.md §2.3).
constexpr std::uint64_t kIdle = 0x1, kAppClocks = 0x2, kSoftwarePower = 0x4, kHardwareSlowdown = 0x8,
                        kSoftwareHeat = 0x20, kHardwareHeat = 0x40, kPowerBrake = 0x80;

struct Sensors {
  double load = 0;  // 0..1, what the rest follows from
  std::uint32_t gpu_util = 0, memory_util = 0, encoder_util = 0, decoder_util = 0;  // percent
  std::uint32_t temperature = 0, memory_temperature = 0;                            // °C
  std::uint32_t power_mw = 0;
  std::uint32_t sm_clock = 0, memory_clock = 0, video_clock = 0;  // MHz
  std::uint32_t pstate = 0;
  std::uint64_t clock_reasons = 0;                     // telemetry.md §2.3
  std::uint64_t energy_mj = 0;                         // since driver load, never falling
  std::uint64_t used_bytes = 0;                        // by processes
  double pcie_tx_mib = 0, pcie_rx_mib = 0;             // MiB/s
  std::uint64_t nvlink_tx_kib = 0, nvlink_rx_kib = 0;  // totals over all links
  std::uint64_t power_violation_ns = 0, thermal_violation_ns = 0, brake_violation_ns = 0, idle_ns = 0;
  double sm_active = 0, sm_occupancy = 0, tensor = 0, dram = 0, fp64 = 0, fp32 = 0, fp16 = 0;  // 0..1
};

// `contexts`: those of this board.
Sensors sense(const State& state, std::uint32_t gpu, const std::vector<Context>& contexts,
              std::uint64_t at_us);

// Folds the load so far into the counters, before the load changes.
void settle_load(Gpu& gpu, std::uint64_t at_us);

}  // namespace gpuop::sim
