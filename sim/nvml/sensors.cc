// Readings: utilisation, heat, power, PCIe (telemetry.md §3).
#include <algorithm>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

NVML_EXPORT int nvmlDeviceGetUtilizationRates(void* device, Utilization* out) {
  NVML_BOARD(nvmlDeviceGetUtilizationRates, device);
  NVML_NEED(out);
  if (gpu.live.mig_current) return kNotSupported;
  Sensors s = sensors_of(state, index);
  *out = Utilization{s.gpu_util, s.memory_util};
  return kSuccess;
}

namespace {
int engine_util(std::uint32_t value, const Gpu& gpu, unsigned* out, unsigned* period) {
  if (!out || !period) return kInvalidArgument;
  if (gpu.live.mig_current) return kNotSupported;
  *out = value;
  *period = 167000;  // µs, the driver's own sampling period
  return kSuccess;
}
}  // namespace

NVML_EXPORT int nvmlDeviceGetEncoderUtilization(void* device, unsigned* out, unsigned* period) {
  NVML_BOARD(nvmlDeviceGetEncoderUtilization, device);
  return engine_util(sensors_of(state, index).encoder_util, gpu, out, period);
}
NVML_EXPORT int nvmlDeviceGetDecoderUtilization(void* device, unsigned* out, unsigned* period) {
  NVML_BOARD(nvmlDeviceGetDecoderUtilization, device);
  return engine_util(sensors_of(state, index).decoder_util, gpu, out, period);
}
NVML_EXPORT int nvmlDeviceGetJpgUtilization(void* device, unsigned* out, unsigned* period) {
  NVML_BOARD(nvmlDeviceGetJpgUtilization, device);
  return engine_util(0, gpu, out, period);
}
NVML_EXPORT int nvmlDeviceGetOfaUtilization(void* device, unsigned* out, unsigned* period) {
  NVML_BOARD(nvmlDeviceGetOfaUtilization, device);
  return engine_util(0, gpu, out, period);
}

NVML_EXPORT int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetTemperature, device);
  if (!out || sensor != 0) return kInvalidArgument;
  *out = sensors_of(state, index).temperature;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTemperatureV(void* device, TemperatureV1* out) {
  NVML_BOARD(nvmlDeviceGetTemperatureV, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(TemperatureV1), 1)) return kArgumentVersionMismatch;
  if (out->sensor != 0) return kInvalidArgument;
  out->temperature = static_cast<std::int32_t>(sensors_of(state, index).temperature);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetMarginTemperature(void* device, MarginTemperature* out) {
  NVML_BOARD(nvmlDeviceGetMarginTemperature, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(MarginTemperature), 1)) return kArgumentVersionMismatch;
  if (!gpu.board.gpm_supported) return kNotSupported;  // Hopper and later
  out->margin = static_cast<std::int32_t>(gpu.board.temp_slowdown) -
                static_cast<std::int32_t>(sensors_of(state, index).temperature);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTemperatureThreshold(void* device, int kind, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetTemperatureThreshold, device);
  NVML_NEED(out);
  switch (kind) {
    case 0:
      *out = gpu.board.temp_shutdown;
      return kSuccess;
    case 1:
      *out = gpu.board.temp_slowdown;
      return kSuccess;
    case 2:
      *out = gpu.board.mem_temp_max;
      return gpu.board.mem_temp_max ? kSuccess : kNotSupported;
    case 3:
      *out = gpu.board.temp_max_op;
      return kSuccess;
    default:
      return kind < 0 || kind > 7 ? kInvalidArgument : kNotSupported;
  }
}

NVML_EXPORT int nvmlDeviceGetFanSpeed(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetFanSpeed, device);
  NVML_NEED(out);
  return kNotSupported;  // passively cooled boards
}

NVML_EXPORT int nvmlDeviceGetNumFans(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetNumFans, device);
  NVML_NEED(out);
  *out = gpu.board.fan_count;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPowerUsage(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPowerUsage, device);
  NVML_NEED(out);
  *out = sensors_of(state, index).power_mw;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetTotalEnergyConsumption, device);
  NVML_NEED(out);
  *out = sensors_of(state, index).energy_mj;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPowerManagementMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetPowerManagementMode, device);
  NVML_NEED(out);
  *out = 1;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPowerManagementLimit(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPowerManagementLimit, device);
  NVML_NEED(out);
  *out = gpu.live.power_limit_mw ? gpu.live.power_limit_mw : gpu.board.power_default_mw;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetEnforcedPowerLimit, device);
  NVML_NEED(out);
  *out = gpu.live.power_limit_mw ? gpu.live.power_limit_mw : gpu.board.power_default_mw;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPowerManagementDefaultLimit, device);
  NVML_NEED(out);
  *out = gpu.board.power_default_mw;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(void* device, unsigned* low, unsigned* high) {
  NVML_BOARD(nvmlDeviceGetPowerManagementLimitConstraints, device);
  if (!low || !high) return kInvalidArgument;
  *low = gpu.board.power_min_mw;
  *high = gpu.board.power_max_mw;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceSetPowerManagementLimit(void* device, unsigned limit) {
  NVML_BOARD(nvmlDeviceSetPowerManagementLimit, device);
  if (limit < gpu.board.power_min_mw || limit > gpu.board.power_max_mw) return kInvalidArgument;
  return change([&](State& s) {
    settle_load(s.gpus[index], now_us());
    s.gpus[index].live.power_limit_mw = limit;
    return 0;
  });
}

NVML_EXPORT int nvmlDeviceGetPcieReplayCounter(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPcieReplayCounter, device);
  NVML_NEED(out);
  *out = gpu.live.pcie_replays;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPcieThroughput(void* device, int counter, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetPcieThroughput, device);
  if (!out || counter < 0 || counter > 1) return kInvalidArgument;
  Sensors s = sensors_of(state, index);
  *out = static_cast<unsigned>((counter == 0 ? s.pcie_tx_mib : s.pcie_rx_mib) * 1024);  // KiB/s
  return kSuccess;
}
#define PCIE_CONSTANT(symbol, value)                    \
  NVML_EXPORT int symbol(void* device, unsigned* out) { \
    NVML_BOARD(symbol, device);                         \
    NVML_NEED(out);                                     \
    *out = value;                                       \
    return kSuccess;                                    \
  }
PCIE_CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, gpu.board.pcie_gen)
PCIE_CONSTANT(nvmlDeviceGetGpuMaxPcieLinkGeneration, gpu.board.pcie_gen)
PCIE_CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, gpu.board.pcie_gen)
PCIE_CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, gpu.board.pcie_width)
PCIE_CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, gpu.board.pcie_width)
