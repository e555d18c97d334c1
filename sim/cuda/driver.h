// The fake CUDA driver's own state.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/cuda/cuda_abi.h"
#include "sim/state/contexts.h"
#include "sim/state/mig.h"
#include "sim/state/state.h"
#include "sim/state/telemetry.h"

namespace gpuop::sim::cuda {

// What CUDA calls a device: a board, or one MIG instance of it.
struct CudaDevice {
  std::uint32_t gpu = 0;
  int gi = -1, ci = -1;  // slots; -1: the whole board
};

struct Driver {
  std::recursive_mutex mutex;
  StateFile file;
  bool initialized = false;
  int init_code = kNotInitialized;  // what cuInit answered first; it does not look again
  std::string version;
  std::vector<CudaDevice> devices;
};
// Never destroyed.
Driver& driver();

// What cuInit does once: opens the hardware state, checks the driver and its device nodes, lists the devices.
int initialize();
// The devices that CUDA_VISIBLE_DEVICES leaves of `all`, in its order; parsing stops at the first wrong
// entry.
std::vector<CudaDevice> select_visible(const State& state, std::vector<CudaDevice> all, const char* visible);

std::uint64_t device_memory(const State& state, const CudaDevice& device);
const char* device_uuid(const State& state, const CudaDevice& device);

}  // namespace gpuop::sim::cuda

// The first lines of a function on a device: `state`, `device`, `gpu`.
#define CUDA_DEVICE(ordinal)                                                                       \
  std::scoped_lock lock(::gpuop::sim::cuda::driver().mutex);                                       \
  if (!::gpuop::sim::cuda::driver().initialized) return ::gpuop::sim::cuda::kNotInitialized;       \
  const ::gpuop::sim::State* state = ::gpuop::sim::cuda::driver().file.read();                     \
  if (!state) return ::gpuop::sim::cuda::kUnknown;                                                 \
  if ((ordinal) < 0 || (ordinal) >= static_cast<int>(::gpuop::sim::cuda::driver().devices.size())) \
    return ::gpuop::sim::cuda::kInvalidDevice;                                                     \
  [[maybe_unused]] const ::gpuop::sim::cuda::CudaDevice& device =                                  \
      ::gpuop::sim::cuda::driver().devices[static_cast<std::size_t>(ordinal)];                     \
  [[maybe_unused]] const ::gpuop::sim::Gpu& gpu = state->gpus[device.gpu]
