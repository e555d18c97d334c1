#include "sim/state/telemetry.h"

#include <algorithm>
#include <cmath>

namespace gpuop::sim {

namespace {

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double unit(std::uint64_t seed) {
  return static_cast<double>(scramble(seed) >> 11) / 9007199254740992.0;
}

// Smooth noise in -1..1: random values at whole multiples of `period_us`, cosine in between.
double wobble(std::uint64_t seed, std::uint64_t channel, std::uint64_t at_us, std::uint64_t period_us) {
  std::uint64_t step = at_us / period_us;
  double part = static_cast<double>(at_us % period_us) / static_cast<double>(period_us);
  std::uint64_t base = scramble(seed ^ scramble(channel));
  double a = unit(base + step) * 2 - 1, b = unit(base + step + 1) * 2 - 1;
  double w = (1 - std::cos(part * M_PI)) / 2;
  return a + (b - a) * w;
}

double watts_over_idle(const Gpu& g, double load) {  // in mW
  double top = static_cast<double>(
      std::min(g.live.power_limit_mw ? g.live.power_limit_mw : g.board.power_max_mw, g.board.power_max_mw));
  double full = static_cast<double>(g.board.power_default_mw) * 0.94;
  double idle = g.board.power_idle_mw;
  return std::max(0.0, std::min(full, top) - idle) * std::pow(load, 0.8);
}

double span_s(std::uint64_t from_us, std::uint64_t to_us) {
  return to_us > from_us ? static_cast<double>(to_us - from_us) / 1e6 : 0;
}

double link_kib_per_s(const Board& b, double load) {
  return static_cast<double>(b.nvlink_count) * b.nvlink_mbps * 1e6 / 1024 * 0.35 * load;
}

bool power_capped(const Gpu& g, double load) {
  double cap = g.live.power_limit_mw ? g.live.power_limit_mw : g.board.power_default_mw;
  return load > 0 && watts_over_idle(g, load) + g.board.power_idle_mw >= cap * 0.98;
}

// Nanoseconds held back by power or heat in `seconds` at `load`.
std::uint64_t power_held_ns(const Gpu& g, double load, double seconds) {
  if (g.live.throttle & kSoftwarePower) return static_cast<std::uint64_t>(seconds * 1e9);
  return power_capped(g, load) ? static_cast<std::uint64_t>(seconds * 2e8) : 0;
}

std::uint64_t heat_held_ns(const Gpu& g, double load, double seconds) {
  double at = g.board.temp_idle + (static_cast<double>(g.board.temp_full) - g.board.temp_idle) * load +
              g.live.temperature_offset;
  bool held = at >= g.board.temp_slowdown || (g.live.throttle & (kSoftwareHeat | kHardwareHeat));
  return held ? static_cast<std::uint64_t>(seconds * 1e9) : 0;
}

std::uint64_t brake_held_ns(const Gpu& g, double seconds) {
  return g.live.throttle & kPowerBrake ? static_cast<std::uint64_t>(seconds * 1e9) : 0;
}

// What the user or a lock allows of a clock.
std::uint32_t limited(std::uint32_t clock, std::uint32_t app, std::uint32_t low, std::uint32_t high) {
  if (app) clock = std::min(clock, app);
  return high ? std::clamp(clock, low, high) : clock;
}

}  // namespace

void settle_load(Gpu& g, std::uint64_t at_us) {
  double load = g.live.load_percent / 100.0, seconds = span_s(g.live.load_since_us, at_us);
  g.live.power_violation_ns += power_held_ns(g, load, seconds);
  g.live.thermal_violation_ns += heat_held_ns(g, load, seconds);
  g.live.brake_violation_ns += brake_held_ns(g, seconds);
  if (load > 0) g.live.loaded_ns += static_cast<std::uint64_t>(seconds * 1e9);
  g.live.energy_extra_mj += static_cast<std::uint64_t>(watts_over_idle(g, load) * seconds);
  g.live.link_extra_kib += static_cast<std::uint64_t>(link_kib_per_s(g.board, load) * seconds);
  g.live.load_since_us = at_us;
}

Sensors sense(const State& state, std::uint32_t index, const std::vector<Context>& contexts,
              std::uint64_t at_us) {
  const Gpu& g = state.gpus[index];
  const Board& b = g.board;
  std::uint64_t seed = state.seed * 1000003 + index;
  auto noise = [&](std::uint64_t channel, std::uint64_t period_ms) {
    return wobble(seed, channel, at_us, period_ms * 1000);
  };

  Sensors s;
  double set_load = g.live.load_percent / 100.0, load = set_load;
  for (const Context& c : contexts) {
    s.used_bytes += c.memory_mib << 20;
    if (c.busy) load += 0.85;
  }
  if (load > 0) load = std::clamp(load + 0.03 * noise(1, 900), 0.01, 1.0);
  s.load = load;
  if (set_load > 0)
    s.used_bytes += static_cast<std::uint64_t>(static_cast<double>(b.memory_bytes) * 0.6 * set_load);
  s.used_bytes = std::min(s.used_bytes, b.memory_bytes - b.reserved_bytes);

  auto percent = [](double part) {
    return static_cast<std::uint32_t>(std::lround(std::clamp(part, 0.0, 1.0) * 100));
  };
  s.gpu_util = percent(load);
  s.memory_util = percent(load * (0.45 + 0.1 * noise(2, 1500)));
  bool active = load > 0 || !contexts.empty();

  double heat = load * 0.97 + 0.02 * noise(3, 20000);
  double span = static_cast<double>(b.temp_full) - b.temp_idle;
  s.temperature = static_cast<std::uint32_t>(
                      std::lround(b.temp_idle + span * std::clamp(heat, 0.0, 1.0) + 1.5 * unit(seed + 77))) +
                  g.live.temperature_offset;
  s.memory_temperature = b.has_memory_temp ? s.temperature + 4 + percent(load) / 10 : 0;

  double power =
      b.power_idle_mw * (1 + 0.015 * noise(4, 1000)) + watts_over_idle(g, load) * (1 + 0.02 * noise(5, 700));
  double cap = g.live.power_limit_mw ? g.live.power_limit_mw : b.power_default_mw;
  s.power_mw = static_cast<std::uint32_t>(std::min(power, cap));

  bool hot = s.temperature >= b.temp_slowdown;
  bool capped = power_capped(g, load);
  const Live& l = g.live;
  if (!active) {
    s.sm_clock = b.sm_clock_idle;
    s.memory_clock = b.mem_clock_idle;
    s.video_clock = b.video_clock_idle;
    s.pstate = b.mem_clock_idle < b.mem_clock_max ? 8 : 0;
    s.clock_reasons = kIdle;
  } else {
    double droop = (hot || l.throttle ? 0.35 : capped ? 0.15 : 0.04 * load) + 0.005 * (1 + noise(6, 500));
    auto step =
        static_cast<std::uint32_t>(b.sm_clock_max * (1 - droop)) / 15 * 15;  // clocks move in 15 MHz steps
    s.sm_clock =
        limited(droop < 0.01 ? b.sm_clock_max : step, l.app_sm_clock, l.locked_sm_low, l.locked_sm_high);
    s.memory_clock = limited(b.mem_clock_max, l.app_mem_clock, l.locked_mem_low, l.locked_mem_high);
    s.video_clock = b.video_clock_max;
    if (capped) s.clock_reasons |= kSoftwarePower;
    if (l.app_sm_clock && l.app_sm_clock < b.sm_clock_max) s.clock_reasons |= kAppClocks;
  }
  if (hot) s.clock_reasons |= kSoftwareHeat | kHardwareHeat;
  if (l.throttle) {
    s.clock_reasons = (s.clock_reasons & ~kIdle) | l.throttle;
    if (l.throttle & (kHardwareHeat | kPowerBrake)) s.clock_reasons |= kHardwareSlowdown;
  }

  std::uint64_t since = state.driver_loaded_us ? state.driver_loaded_us : state.boot_us;
  double up = span_s(since, at_us), loaded = span_s(std::max(g.live.load_since_us, since), at_us);
  s.energy_mj = static_cast<std::uint64_t>(b.power_idle_mw * up) + g.live.energy_extra_mj +
                static_cast<std::uint64_t>(watts_over_idle(g, set_load) * loaded);
  std::uint64_t links =
      g.live.link_extra_kib + static_cast<std::uint64_t>(link_kib_per_s(b, set_load) * loaded);
  s.nvlink_tx_kib = links / 2 + links / 50;
  s.nvlink_rx_kib = links - s.nvlink_tx_kib;
  s.power_violation_ns = g.live.power_violation_ns + power_held_ns(g, set_load, loaded);
  s.thermal_violation_ns = g.live.thermal_violation_ns + heat_held_ns(g, set_load, loaded);
  s.brake_violation_ns = g.live.brake_violation_ns + brake_held_ns(g, loaded);
  double worked = static_cast<double>(g.live.loaded_ns) / 1e9 + (set_load > 0 ? loaded : 0);
  s.idle_ns = static_cast<std::uint64_t>(std::max(0.0, up - worked) * 1e9);

  double pcie = 985.0 * b.pcie_width * std::exp2(static_cast<int>(b.pcie_gen) - 3) * 1e6 / 1048576;
  s.pcie_tx_mib = load > 0 ? pcie * 0.08 * load * (1 + 0.2 * noise(7, 600)) : 0.3;
  s.pcie_rx_mib = load > 0 ? pcie * 0.12 * load * (1 + 0.2 * noise(8, 600)) : 0.5;
  s.sm_active = load * 0.9;
  s.sm_occupancy = load * 0.45;
  s.tensor = load * 0.38 * (1 + 0.1 * noise(9, 800));
  s.dram = load * 0.42 * (1 + 0.1 * noise(10, 800));
  s.fp64 = load * 0.01;
  s.fp32 = load * 0.17;
  s.fp16 = load * 0.09;
  return s;
}

}  // namespace gpuop::sim
