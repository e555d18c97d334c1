// GPU performance monitoring (telemetry.md §3.2): two samples, then metrics over the span between them.
#include <string.h>

#include <algorithm>
#include <vector>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

struct Sample {
  std::uint32_t gpu = kNone;
  std::uint64_t at_us = 0;
  Sensors sensors;
};

std::vector<Sample*>& samples() {
  static auto* all = new std::vector<Sample*>;
  return *all;
}

Sample* sample_of(void* handle) {
  auto it = std::find(samples().begin(), samples().end(), handle);
  return it == samples().end() ? nullptr : *it;
}

// Percent for the shares, MiB/s for the rates. False: not a metric of these boards.
bool metric(std::uint32_t id, const Board& b, const Sample& a, const Sample& z, double* out) {
  auto mean = [](double x, double y) { return (x + y) / 2; };
  const Sensors &s = a.sensors, &t = z.sensors;
  double seconds = static_cast<double>(z.at_us - a.at_us) / 1e6;
  switch (id) {
    case 1:
      *out = 100 * mean(s.load, t.load);
      return true;
    case 2:
      *out = 100 * mean(s.sm_active, t.sm_active);
      return true;
    case 3:
      *out = 100 * mean(s.sm_occupancy, t.sm_occupancy);
      return true;
    case 4:
      *out = 100 * mean(s.fp32, t.fp32) * 0.6;
      return true;
    case 5:
    case 7:
      *out = 100 * mean(s.tensor, t.tensor);
      return true;
    case 6:
    case 9:
      *out = 0;
      return true;
    case 10:
      *out = 100 * mean(s.dram, t.dram);
      return true;
    case 11:
      *out = 100 * mean(s.fp64, t.fp64);
      return true;
    case 12:
      *out = 100 * mean(s.fp32, t.fp32);
      return true;
    case 13:
      *out = 100 * mean(s.fp16, t.fp16);
      return true;
    case 20:
      *out = mean(s.pcie_tx_mib, t.pcie_tx_mib);
      return true;
    case 21:
      *out = mean(s.pcie_rx_mib, t.pcie_rx_mib);
      return true;
    default:
      break;
  }
  if ((id >= 30 && id < 30 + b.decoders) || (id >= 40 && id <= 47) || id == 50) {
    *out = 0;
    return true;
  }
  if (b.nvlink_count == 0) return false;
  double rx = static_cast<double>(t.nvlink_rx_kib - s.nvlink_rx_kib) / 1024 / seconds;
  double tx = static_cast<double>(t.nvlink_tx_kib - s.nvlink_tx_kib) / 1024 / seconds;
  if (id == 60)
    *out = rx;
  else if (id == 61)
    *out = tx;
  else if (id >= 62 && id < 62 + 2 * b.nvlink_count)
    *out = (id % 2 == 0 ? rx : tx) / b.nvlink_count;
  else
    return false;
  return true;
}

}  // namespace

NVML_EXPORT int nvmlGpmQueryDeviceSupport(void* device, GpmSupport* out) {
  NVML_BOARD(nvmlGpmQueryDeviceSupport, device);
  NVML_NEED(out);
  if (out->version != 1) return kArgumentVersionMismatch;
  out->supported = gpu.board.gpm_supported;
  return kSuccess;
}

NVML_EXPORT int nvmlGpmSampleAlloc(void** out) {
  NVML_ENTER(nvmlGpmSampleAlloc);
  NVML_NEED(out);
  samples().push_back(new Sample);
  *out = samples().back();
  return kSuccess;
}

NVML_EXPORT int nvmlGpmSampleFree(void* handle) {
  NVML_ENTER(nvmlGpmSampleFree);
  Sample* sample = sample_of(handle);
  if (!sample) return kInvalidArgument;
  std::erase(samples(), sample);
  delete sample;
  return kSuccess;
}

NVML_EXPORT int nvmlGpmSampleGet(void* device, void* handle) {
  NVML_BOARD(nvmlGpmSampleGet, device);
  Sample* sample = sample_of(handle);
  if (!sample) return kInvalidArgument;
  if (!gpu.board.gpm_supported) return kNotSupported;
  sample->gpu = index;
  sample->at_us = now_us();
  sample->sensors = sense(state, index, contexts_of(index), sample->at_us);
  return kSuccess;
}

NVML_EXPORT int nvmlGpmMigSampleGet(void* device, unsigned gi_id, void* handle) {
  NVML_BOARD(nvmlGpmMigSampleGet, device);
  Sample* sample = sample_of(handle);
  if (!sample) return kInvalidArgument;
  if (!gpu.board.gpm_supported) return kNotSupported;
  for (const GpuInstance& gi : gpu.live.gis) {
    if (!gi.used || gi.id != gi_id) continue;
    sample->gpu = index;
    sample->at_us = now_us();
    sample->sensors = sense(state, index, contexts_of(index, static_cast<int>(gi_id)), sample->at_us);
    return kSuccess;
  }
  return kNotFound;
}

NVML_EXPORT int nvmlGpmMetricsGet(GpmMetricsGet* request) {
  NVML_ENTER(nvmlGpmMetricsGet);
  NVML_NEED(request);
  if (request->version != 1) return kArgumentVersionMismatch;
  Sample *a = sample_of(request->sample1), *z = sample_of(request->sample2);
  if (!a || !z || a->gpu == kNone || a->gpu != z->gpu || a->at_us >= z->at_us ||
      request->count > std::size(request->metrics)) {
    return kInvalidArgument;
  }
  for (std::uint32_t i = 0; i < request->count; ++i) {
    GpmMetric& m = request->metrics[i];
    m.value = 0;
    m.info = {};
    m.result = metric(m.id, state.gpus[a->gpu].board, *a, *z, &m.value) ? kSuccess : kNotSupported;
  }
  return kSuccess;
}
