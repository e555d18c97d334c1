// The library's own state: the node's file, what this process may see, and its handles.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "sim/nvml/nvml_abi.h"
#include "sim/state/contexts.h"
#include "sim/state/mig.h"
#include "sim/state/state.h"
#include "sim/state/telemetry.h"

namespace gpuop::sim::nvml {

// What a handle points at. All handles are addresses of entries in static tables, so a stray pointer is told
// apart from a handle by its address alone.
enum class Kind { kGpu, kMig, kGpuInstance, kComputeInstance };
struct Entity {
  Kind kind = Kind::kGpu;
  std::uint32_t gpu = 0;  // index in State::gpus
  int gi = -1, ci = -1;   // slots
};

struct Library {
  std::recursive_mutex mutex;
  StateFile file;
  bool file_open = false;
  int references = 0;
  char version[64] = {};               // the library's own
  std::vector<std::uint32_t> visible;  // State::gpus indices in NVML order: those with a device node here
  std::uint32_t forced_calls[kMaxForced] = {};  // good calls so far, of …
  Forced forced_seen[kMaxForced] = {};          // … these
};
Library& library();

// Opens the state and finds the visible boards. A NVML code.
int attach();

// One call: holds the lock, knows the state. `fault` is set when the call must answer that at once: forced by
// the state, not initialised, state unreadable.
class Call {
 public:
  explicit Call(const char* symbol, bool needs_init = true);
  ~Call() { library().mutex.unlock(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  int fault = kSuccess;
  const State* state = nullptr;
};

// The board or MIG device behind a handle; nullptr when it is none, or no longer exists.
const Entity* device_of(const State& state, void* handle);  // kGpu or kMig
const Entity* instance_of(const State& state, void* handle, Kind kind);
void* gpu_handle(std::uint32_t gpu);
void* mig_handle(std::uint32_t gpu, int gi, int ci);
void* gi_handle(std::uint32_t gpu, int gi);
void* ci_handle(std::uint32_t gpu, int gi, int ci);
// Position in this process's enumeration; kNone when it is not visible.
std::uint32_t visible_index(std::uint32_t gpu);
// Whether /dev/nvidia-caps lets this process use the instance.
bool mig_visible(const State& state, std::uint32_t gpu, int gi, int ci);

// Contexts on one board (and, for a MIG device, one instance), this process's excluded.
std::vector<Context> contexts_of(std::uint32_t gpu, int gi_id = -1, int ci_id = -1);
Sensors sensors_of(const State& state, std::uint32_t gpu);

// Changes the state; an errno becomes a NVML code.
int change(const std::function<int(State&)>& with);

// What every call on a board answers that cannot be used: lost, or in need of a reset.
inline int unusable(const Gpu& gpu) {
  return gpu.live.lost == 2 ? kResetRequired : kGpuIsLost;
}

// The version word that a versioned struct begins with.
std::uint32_t version_of(const void* versioned);

int copy_text(char* out, std::uint32_t length, const char* text);

}  // namespace gpuop::sim::nvml

// The first line of a function that needs no device.
#define NVML_ENTER(symbol)                \
  ::gpuop::sim::nvml::Call call(#symbol); \
  if (call.fault) return call.fault;      \
  [[maybe_unused]] const ::gpuop::sim::State& state = *call.state

// … of a function on a whole board: `gpu` (Gpu), `index`. A MIG device handle answers NOT_SUPPORTED.
#define NVML_BOARD(symbol, handle)                                                              \
  NVML_ENTER(symbol);                                                                           \
  const ::gpuop::sim::nvml::Entity* entity = ::gpuop::sim::nvml::device_of(state, handle);      \
  if (!entity) return ::gpuop::sim::nvml::kInvalidArgument;                                     \
  if (entity->kind == ::gpuop::sim::nvml::Kind::kMig) return ::gpuop::sim::nvml::kNotSupported; \
  [[maybe_unused]] const std::uint32_t index = entity->gpu;                                     \
  [[maybe_unused]] const ::gpuop::sim::Gpu& gpu = state.gpus[index];                            \
  if (gpu.live.lost) return ::gpuop::sim::nvml::unusable(gpu)

// … of a function on a board or a MIG device: also `entity`.
#define NVML_DEVICE(symbol, handle)                                                        \
  NVML_ENTER(symbol);                                                                      \
  const ::gpuop::sim::nvml::Entity* entity = ::gpuop::sim::nvml::device_of(state, handle); \
  if (!entity) return ::gpuop::sim::nvml::kInvalidArgument;                                \
  [[maybe_unused]] const std::uint32_t index = entity->gpu;                                \
  [[maybe_unused]] const ::gpuop::sim::Gpu& gpu = state.gpus[index];                       \
  if (gpu.live.lost) return ::gpuop::sim::nvml::unusable(gpu)

// … of a function that answers what the driver knows without the board: also when it is lost.
#define NVML_KNOWN(symbol, handle)                                                         \
  NVML_ENTER(symbol);                                                                      \
  const ::gpuop::sim::nvml::Entity* entity = ::gpuop::sim::nvml::device_of(state, handle); \
  if (!entity) return ::gpuop::sim::nvml::kInvalidArgument;                                \
  [[maybe_unused]] const std::uint32_t index = entity->gpu;                                \
  [[maybe_unused]] const ::gpuop::sim::Gpu& gpu = state.gpus[index]

// … of a function on a GPU or compute instance: `entity`, `gpu`, `index`, `gi`, `row` (its profile).
#define NVML_INSTANCE(symbol, handle, wanted)                                                        \
  NVML_ENTER(symbol);                                                                                \
  const ::gpuop::sim::nvml::Entity* entity = ::gpuop::sim::nvml::instance_of(state, handle, wanted); \
  if (!entity) return ::gpuop::sim::nvml::kInvalidArgument;                                          \
  [[maybe_unused]] const std::uint32_t index = entity->gpu;                                          \
  const ::gpuop::sim::Gpu& gpu = state.gpus[index];                                                  \
  if (gpu.live.lost) return ::gpuop::sim::nvml::unusable(gpu);                                       \
  [[maybe_unused]] const ::gpuop::sim::GpuInstance& gi = gpu.live.gis[entity->gi];                   \
  [[maybe_unused]] const ::gpuop::sim::GiProfile* row =                                              \
      ::gpuop::sim::find_gi_profile(gpu.board, gi.profile);                                          \
  if (!row) return ::gpuop::sim::nvml::kUnknown

// A function that these boards do not have: NOT_SUPPORTED, once its handle is good.
#define NVML_ABSENT_ON_DEVICE(symbol)         \
  NVML_EXPORT int symbol(void* device) {      \
    NVML_DEVICE(symbol, device);              \
    return ::gpuop::sim::nvml::kNotSupported; \
  }
#define NVML_ABSENT(symbol)                   \
  NVML_EXPORT int symbol() {                  \
    NVML_ENTER(symbol);                       \
    return ::gpuop::sim::nvml::kNotSupported; \
  }

#define NVML_NEED(pointer) \
  if (!(pointer)) return ::gpuop::sim::nvml::kInvalidArgument
