// Clocks: what they are, may be and are held to.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

enum ClockType : int { kGraphics = 0, kSm = 1, kMemoryClock = 2, kVideo = 3 };
constexpr std::uint32_t kStepMhz = 15;  // graphics clocks move in such steps

// NVML_CLOCK_GRAPHICS 0, SM 1, MEM 2, VIDEO 3.
int clock(int type, std::uint32_t sm, std::uint32_t mem, std::uint32_t video, unsigned* out) {
  if (!out) return kInvalidArgument;
  switch (type) {
    case kGraphics:
    case kSm:
      *out = sm;
      return kSuccess;
    case kMemoryClock:
      *out = mem;
      return kSuccess;
    case kVideo:
      *out = video;
      return kSuccess;
    default:
      return kInvalidArgument;
  }
}

int max_clock(const Board& b, int type, unsigned* out) {
  return clock(type, b.sm_clock_max, b.mem_clock_max, b.video_clock_max, out);
}

int app_clock(const Gpu& g, int type, unsigned* out) {
  const Board& b = g.board;
  return clock(type, g.live.app_sm_clock ? g.live.app_sm_clock : b.sm_clock_max,
               g.live.app_mem_clock ? g.live.app_mem_clock : b.mem_clock_max, b.video_clock_max, out);
}

bool has_memory_clock(const Board& b, std::uint32_t mhz) {
  return mhz == b.mem_clock_max || mhz == b.mem_clock_idle;
}

bool has_graphics_clock(const Board& b, std::uint32_t mhz) {
  return mhz >= b.sm_clock_idle && mhz <= b.sm_clock_max && (b.sm_clock_max - mhz) % kStepMhz == 0;
}

// A list whose size is asked for with too little room.
int fill(const std::vector<unsigned>& values, unsigned* count, unsigned* out) {
  NVML_NEED(count);
  unsigned room = *count;
  *count = static_cast<unsigned>(values.size());
  if (values.size() > room) return kInsufficientSize;
  if (!values.empty()) NVML_NEED(out);
  std::copy(values.begin(), values.end(), out);
  return kSuccess;
}

int set_locked(std::uint32_t index, bool memory, std::uint32_t low, std::uint32_t high) {
  return change([&](State& s) {
    Live& l = s.gpus[index].live;
    (memory ? l.locked_mem_low : l.locked_sm_low) = low;
    (memory ? l.locked_mem_high : l.locked_sm_high) = high;
    return 0;
  });
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetClockInfo(void* device, int type, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetClockInfo, device);
  Sensors s = sensors_of(state, index);
  return clock(type, s.sm_clock, s.memory_clock, s.video_clock, out);
}
NVML_EXPORT int nvmlDeviceGetMaxClockInfo(void* device, int type, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetMaxClockInfo, device);
  return max_clock(gpu.board, type, out);
}
NVML_EXPORT int nvmlDeviceGetApplicationsClock(void* device, int type, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetApplicationsClock, device);
  return app_clock(gpu, type, out);
}
NVML_EXPORT int nvmlDeviceGetDefaultApplicationsClock(void* device, int type, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetDefaultApplicationsClock, device);
  return max_clock(gpu.board, type, out);
}
NVML_EXPORT int nvmlDeviceGetMaxCustomerBoostClock(void* device, int type, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetMaxCustomerBoostClock, device);
  return max_clock(gpu.board, type, out);
}

// id: 0 now, 1 the applications' target, 2 its default, 3 the highest.
NVML_EXPORT int nvmlDeviceGetClock(void* device, int type, int id, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetClock, device);
  Sensors s = sensors_of(state, index);
  switch (id) {
    case 0:
      return clock(type, s.sm_clock, s.memory_clock, s.video_clock, out);
    case 1:
      return app_clock(gpu, type, out);
    case 2:
    case 3:
      return max_clock(gpu.board, type, out);
    default:
      return kInvalidArgument;
  }
}

NVML_EXPORT int nvmlDeviceGetSupportedMemoryClocks(void* device, unsigned* count, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetSupportedMemoryClocks, device);
  std::vector<unsigned> all = {gpu.board.mem_clock_max};
  if (gpu.board.mem_clock_idle != gpu.board.mem_clock_max) all.push_back(gpu.board.mem_clock_idle);
  return fill(all, count, out);
}

NVML_EXPORT int nvmlDeviceGetSupportedGraphicsClocks(void* device, unsigned memory, unsigned* count,
                                                     unsigned* out) {
  NVML_BOARD(nvmlDeviceGetSupportedGraphicsClocks, device);
  if (!has_memory_clock(gpu.board, memory)) return kNotFound;
  std::vector<unsigned> all;
  // With the memory at rest the rest of the board is, too.
  std::uint32_t top = memory == gpu.board.mem_clock_max ? gpu.board.sm_clock_max : gpu.board.sm_clock_idle;
  for (std::uint32_t mhz = top; mhz >= gpu.board.sm_clock_idle && mhz >= kStepMhz; mhz -= kStepMhz)
    all.push_back(mhz);
  return fill(all, count, out);
}

NVML_EXPORT int nvmlDeviceSetApplicationsClocks(void* device, unsigned memory, unsigned graphics) {
  NVML_BOARD(nvmlDeviceSetApplicationsClocks, device);
  if (!has_memory_clock(gpu.board, memory) || !has_graphics_clock(gpu.board, graphics))
    return kInvalidArgument;
  return change([&](State& s) {
    s.gpus[index].live.app_sm_clock = graphics;
    s.gpus[index].live.app_mem_clock = memory;
    return 0;
  });
}
NVML_EXPORT int nvmlDeviceResetApplicationsClocks(void* device) {
  NVML_BOARD(nvmlDeviceResetApplicationsClocks, device);
  return change([&](State& s) {
    s.gpus[index].live.app_sm_clock = s.gpus[index].live.app_mem_clock = 0;
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceSetGpuLockedClocks(void* device, unsigned low, unsigned high) {
  NVML_BOARD(nvmlDeviceSetGpuLockedClocks, device);
  if (low > high || high == 0) return kInvalidArgument;
  return set_locked(index, false, std::clamp(low, gpu.board.sm_clock_idle, gpu.board.sm_clock_max),
                    std::clamp(high, gpu.board.sm_clock_idle, gpu.board.sm_clock_max));
}
NVML_EXPORT int nvmlDeviceResetGpuLockedClocks(void* device) {
  NVML_BOARD(nvmlDeviceResetGpuLockedClocks, device);
  return set_locked(index, false, 0, 0);
}
NVML_EXPORT int nvmlDeviceSetMemoryLockedClocks(void* device, unsigned low, unsigned high) {
  NVML_BOARD(nvmlDeviceSetMemoryLockedClocks, device);
  if (gpu.board.mem_clock_idle == gpu.board.mem_clock_max) return kNotSupported;  // one clock only
  if (low > high || high == 0) return kInvalidArgument;
  return set_locked(index, true, low, high);
}
NVML_EXPORT int nvmlDeviceResetMemoryLockedClocks(void* device) {
  NVML_BOARD(nvmlDeviceResetMemoryLockedClocks, device);
  if (gpu.board.mem_clock_idle == gpu.board.mem_clock_max) return kNotSupported;
  return set_locked(index, true, 0, 0);
}

NVML_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetCurrentClocksEventReasons, device);
  NVML_NEED(out);
  *out = sensors_of(state, index).clock_reasons;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, out);
}
NVML_EXPORT int nvmlDeviceGetSupportedClocksEventReasons(void* device, unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetSupportedClocksEventReasons, device);
  NVML_NEED(out);
  *out = 0x1FF;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetSupportedClocksThrottleReasons(void* device, unsigned long long* out) {
  return nvmlDeviceGetSupportedClocksEventReasons(device, out);
}

NVML_EXPORT int nvmlDeviceGetPerformanceState(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetPerformanceState, device);
  NVML_NEED(out);
  *out = static_cast<int>(sensors_of(state, index).pstate);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPowerState(void* device, int* out) {
  return nvmlDeviceGetPerformanceState(device, out);
}

// Performance states: 0, and 8 where the memory has a slow clock.
NVML_EXPORT int nvmlDeviceGetSupportedPerformanceStates(void* device, int* out, unsigned bytes) {
  NVML_BOARD(nvmlDeviceGetSupportedPerformanceStates, device);
  NVML_NEED(out);
  unsigned room = bytes / sizeof(int), states = gpu.board.mem_clock_idle < gpu.board.mem_clock_max ? 2 : 1;
  if (room < states) return kInsufficientSize;
  for (unsigned i = 0; i < room; ++i) out[i] = i == 0 ? 0 : i == 1 && states == 2 ? 8 : 32;  // 32: unknown
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMinMaxClockOfPState(void* device, int type, int pstate, unsigned* low,
                                                 unsigned* high) {
  NVML_BOARD(nvmlDeviceGetMinMaxClockOfPState, device);
  if (!low || !high) return kInvalidArgument;
  const Board& b = gpu.board;
  bool slow = b.mem_clock_idle < b.mem_clock_max;
  if (pstate != 0 && !(pstate == 8 && slow)) return kInvalidArgument;
  int code =
      clock(type, b.sm_clock_idle, pstate ? b.mem_clock_idle : b.mem_clock_max, b.video_clock_idle, low);
  if (code) return code;
  return pstate ? clock(type, b.sm_clock_idle, b.mem_clock_idle, b.video_clock_idle, high)
                : max_clock(b, type, high);
}

NVML_EXPORT int nvmlDeviceGetDynamicPstatesInfo(void* device, DynamicPstates* out) {
  NVML_BOARD(nvmlDeviceGetDynamicPstatesInfo, device);
  NVML_NEED(out);
  if (gpu.live.mig_current) return kNotSupported;
  Sensors s = sensors_of(state, index);
  *out = DynamicPstates{};
  const std::uint32_t percents[] = {s.gpu_util, s.memory_util, s.decoder_util, 0};
  for (std::size_t i = 0; i < std::size(percents); ++i) out->domains[i] = {1, percents[i], 0, 0};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetAdaptiveClockInfoStatus(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetAdaptiveClockInfoStatus, device);
  NVML_NEED(out);
  *out = 1;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetClkMonStatus(void* device, ClockMonitor* out) {
  NVML_BOARD(nvmlDeviceGetClkMonStatus, device);
  NVML_NEED(out);
  *out = ClockMonitor{};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPerformanceModes(void* device, TextBuffer* out) {
  NVML_BOARD(nvmlDeviceGetPerformanceModes, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(TextBuffer), 1)) return kArgumentVersionMismatch;
  const Board& b = gpu.board;
  snprintf(out->text, sizeof out->text,
           "perf=0, nvclock=%u, nvclockmin=%u, nvclockmax=%u, memclock=%u, memclockmin=%u, memclockmax=%u",
           b.sm_clock_max, b.sm_clock_idle, b.sm_clock_max, b.mem_clock_max, b.mem_clock_idle,
           b.mem_clock_max);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetCurrentClockFreqs(void* device, TextBuffer* out) {
  NVML_BOARD(nvmlDeviceGetCurrentClockFreqs, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(TextBuffer), 1)) return kArgumentVersionMismatch;
  Sensors s = sensors_of(state, index);
  snprintf(out->text, sizeof out->text, "nvclock=%u, memclock=%u, processorclock=%u", s.sm_clock,
           s.memory_clock, s.sm_clock);
  return kSuccess;
}

// Clocks of data centre boards cannot be shifted, and boost is not the user's.
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetGpcClkVfOffset)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetGpcClkVfOffset)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetMemClkVfOffset)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetMemClkVfOffset)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetGpcClkMinMaxVfOffset)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetMemClkMinMaxVfOffset)
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetAutoBoostedClocksEnabled)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetAutoBoostedClocksEnabled)
NVML_ABSENT_ON_DEVICE(nvmlDeviceSetDefaultAutoBoostedClocksEnabled)

namespace {
int offsets(const char* symbol, void* device, ClockOffset* out) {
  Call call(symbol);
  if (call.fault) return call.fault;
  if (!device_of(*call.state, device) || !out) return kInvalidArgument;
  return out->version != version_word(sizeof(ClockOffset), 1) ? kArgumentVersionMismatch : kNotSupported;
}
}  // namespace

NVML_EXPORT int nvmlDeviceGetClockOffsets(void* device, ClockOffset* out) {
  return offsets("nvmlDeviceGetClockOffsets", device, out);
}
NVML_EXPORT int nvmlDeviceSetClockOffsets(void* device, ClockOffset* out) {
  return offsets("nvmlDeviceSetClockOffsets", device, out);
}
