#include "sim/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <algorithm>
#include <tuple>

#include "sim/state/devices.h"

namespace gpuop::sim::cuda {

namespace {

std::vector<CudaDevice> present_devices(const State& state) {
  std::vector<CudaDevice> out;
  auto node = [](const std::string& prefix, std::uint32_t n) {
    return device_node_exists(prefix + std::to_string(n));
  };
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const Gpu& gpu = state.gpus[g];
    if (gpu.live.lost || !node("nvidia", gpu.board.minor)) continue;
    if (!gpu.live.mig_current) {
      out.push_back({g, -1, -1});
      continue;
    }
    // A partitioned board is usable through its instances only, those whose capability nodes are here.
    for (int i = 0; i < kMaxGis; ++i) {
      const GpuInstance& gi = gpu.live.gis[i];
      if (!gi.used) continue;
      for (int c = 0; c < kMaxCis; ++c) {
        if (!gi.cis[c].used || !node("nvidia-caps/nvidia-cap", gi_cap_minor(gpu.board.minor, gi.id)) ||
            !node("nvidia-caps/nvidia-cap", ci_cap_minor(gpu.board.minor, gi.id, gi.cis[c].id))) {
          continue;
        }
        out.push_back({g, i, c});
      }
    }
  }
  std::sort(out.begin(), out.end(), [&](const CudaDevice& a, const CudaDevice& b) {
    auto place = [&](const CudaDevice& d) {
      return std::tuple(state.gpus[d.gpu].board.bus, d.gpu, d.gi, d.ci);
    };
    return place(a) < place(b);
  });
  return out;
}

}  // namespace

Driver& driver() {
  static Driver* d = new Driver;
  return *d;
}

const char* device_uuid(const State& state, const CudaDevice& d) {
  return d.gi < 0 ? state.gpus[d.gpu].board.uuid : state.gpus[d.gpu].live.gis[d.gi].cis[d.ci].uuid;
}

std::uint64_t device_memory(const State& state, const CudaDevice& d) {
  const Gpu& gpu = state.gpus[d.gpu];
  if (d.gi < 0) return gpu.board.memory_bytes - gpu.board.reserved_bytes;
  const GiProfile* row = find_gi_profile(gpu.board, gpu.live.gis[d.gi].profile);
  return row ? row->memory_mib << 20 : 0;
}

std::vector<CudaDevice> select_visible(const State& state, std::vector<CudaDevice> all, const char* visible) {
  if (!visible) return all;
  std::vector<CudaDevice> out;
  std::string text = visible;
  for (std::size_t from = 0; from <= text.size();) {
    std::size_t to = std::min(text.find(',', from), text.size());
    std::string item = text.substr(from, to - from);
    from = to + 1;
    std::size_t first = item.find_first_not_of(' ');
    item = first == std::string::npos ? "" : item.substr(first, item.find_last_not_of(' ') - first + 1);
    const CudaDevice* found = nullptr;
    if (!item.empty() && item.find_first_not_of("0123456789") == std::string::npos) {
      unsigned long n = strtoul(item.c_str(), nullptr, 10);
      if (n < all.size()) found = &all[n];
    } else if (item.starts_with("GPU-") || item.starts_with("MIG-")) {
      // A beginning is enough when only one device has it.
      for (const CudaDevice& d : all) {
        if (strncasecmp(device_uuid(state, d), item.c_str(), item.size()) != 0) continue;
        if (found) {
          found = nullptr;
          break;
        }
        found = &d;
      }
    }
    if (!found) break;
    bool twice = std::any_of(out.begin(), out.end(), [&](const CudaDevice& d) {
      return d.gpu == found->gpu && d.gi == found->gi && d.ci == found->ci;
    });
    if (twice) return {};
    out.push_back(*found);
  }
  return out;
}

int initialize() {
  Driver& d = driver();
  std::string path = state_beside_library(reinterpret_cast<const void*>(&driver), &d.version);
  if (path.empty()) return kNoDevice;
  switch (d.file.open(path)) {
    case StateFault::kNone:
      break;
    case StateFault::kMissing:
      return kNoDevice;
    default:
      return kUnknown;
  }
  const State* state = d.file.read();
  if (!state->driver_loaded) return kNoDevice;
  if (d.version != state->kernel_driver) return kSystemDriverMismatch;
  if (!device_node_exists("nvidiactl")) return kNoDevice;
  if (!device_node_exists("nvidia-uvm") || !state->uvm_loaded) return kUnknown;
  d.devices = select_visible(*state, present_devices(*state), getenv("CUDA_VISIBLE_DEVICES"));
  return d.devices.empty() ? kNoDevice : kSuccess;
}

}  // namespace gpuop::sim::cuda
