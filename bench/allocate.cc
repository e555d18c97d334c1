// The promise: choosing and allocating one device costs the plugin itself at most 100 µs.
#include <benchmark/benchmark.h>

#include "plugin/allocate.h"
#include "plugin/preferred.h"

namespace {

using namespace gpuop;
using namespace gpuop::plugin;

std::shared_ptr<const Offer> offer(int gpus, int replicas) {
  Offer parts;
  parts.resource.name = "nvidia.com/gpu";
  for (int gpu = 0; gpu < gpus; ++gpu) {
    for (int n = 0; n < std::max(1, replicas); ++n) {
      Device device;
      device.uuid = device.gpu_uuid = "GPU-00000000-0000-0000-0000-0000000000" + std::to_string(10 + gpu);
      device.id = replicas ? device.uuid + "::" + std::to_string(n) : device.uuid;
      device.index = std::to_string(gpu);
      device.gpu = device.gpu_index = gpu;
      device.replica = replicas ? n : -1;
      device.paths = {"/dev/nvidia" + device.index};
      parts.resource.devices.push_back(std::move(device));
    }
  }
  parts.scores.assign(static_cast<std::size_t>(gpus), std::vector<int>(static_cast<std::size_t>(gpus), 20));
  parts.settings.device_list_strategies = {"cdi-annotations", "cdi-cri"};
  parts.settings.device_id_strategy = "uuid";
  parts.settings.cdi_annotation_prefix = "cdi.k8s.io/";
  parts.settings.shared_devices_allocation_policy = "distributed";
  parts.control_nodes = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"};
  return make_offer(std::move(parts));
}

std::vector<std::string> all_ids(const Offer& offer) {
  std::vector<std::string> ids;
  for (const Device& device : offer.resource.devices) ids.push_back(device.id);
  return ids;
}

void allocate_one_of_eight(benchmark::State& state) {
  auto made = offer(8, 0);
  const std::vector<std::string> ids = {made->resource.devices[5].id};
  for (auto _ : state) benchmark::DoNotOptimize(allocate(*made, ids, "0f0f0f0f-0000-4000-8000-000000000001"));
}
BENCHMARK(allocate_one_of_eight)->Unit(benchmark::kMicrosecond);

void prefer_four_of_eight_aligned(benchmark::State& state) {
  auto made = offer(8, 0);
  auto ids = all_ids(*made);
  for (auto _ : state) benchmark::DoNotOptimize(preferred(*made, ids, {}, 4));
}
BENCHMARK(prefer_four_of_eight_aligned)->Unit(benchmark::kMicrosecond);

void prefer_one_of_400_replicas(benchmark::State& state) {
  auto made = offer(8, 50);
  auto ids = all_ids(*made);
  for (auto _ : state) benchmark::DoNotOptimize(preferred(*made, ids, {}, 1));
}
BENCHMARK(prefer_one_of_400_replicas)->Unit(benchmark::kMicrosecond);

}  // namespace
