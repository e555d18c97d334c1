// Event sets: what the kernel raised after registration, waited for on the state's generation (a futex).
#include <errno.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

struct EventSet {
  std::uint64_t masks[kMaxGpus] = {};
  std::uint64_t seen[kMaxGpus] = {};  // newest event sequence handed out (or that preceded registration)
};

std::vector<EventSet*>& sets() {
  static auto* all = new std::vector<EventSet*>;
  return *all;
}

EventSet* set_of(void* handle) {
  auto& all = sets();
  auto it = std::find(all.begin(), all.end(), handle);
  return it == all.end() ? nullptr : *it;
}

constexpr std::uint64_t kXid = 0x8;

std::uint64_t supported(const Gpu& gpu) {
  std::uint64_t mask = 0x4 | kXid | 0x10;
  if (gpu.board.ecc_supported) mask |= 0x1 | 0x2;
  if (gpu.board.mig_capable) mask |= 0x100;
  if (gpu.board.row_remap_supported) mask |= 0x400 | 0x800;
  return mask | 0x8000;
}

// The oldest event that the set has not seen; false when there is none.
bool next_event(const State& state, EventSet& set, EventData* out) {
  std::uint64_t oldest = state.event_sequence > kMaxEvents ? state.event_sequence - kMaxEvents + 1 : 1;
  for (std::uint64_t s = oldest; s <= state.event_sequence; ++s) {
    const Event& e = state.events[s % kMaxEvents];
    if (e.sequence != s || e.gpu >= state.gpu_count) continue;
    if (s <= set.seen[e.gpu] || (set.masks[e.gpu] & e.type) == 0) continue;
    set.seen[e.gpu] = s;
    *out = EventData{gpu_handle(e.gpu), e.type, e.type == kXid ? e.data : 0, e.gi, e.ci};
    return true;
  }
  return false;
}

std::int64_t steady_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

}  // namespace

NVML_EXPORT int nvmlEventSetCreate(void** out) {
  NVML_ENTER(nvmlEventSetCreate);
  NVML_NEED(out);
  sets().push_back(new EventSet);
  *out = sets().back();
  return kSuccess;
}

NVML_EXPORT int nvmlEventSetFree(void* handle) {
  NVML_ENTER(nvmlEventSetFree);
  EventSet* set = set_of(handle);
  if (!set) return kInvalidArgument;
  std::erase(sets(), set);
  delete set;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetSupportedEventTypes(void* device, unsigned long long* out) {
  NVML_BOARD(nvmlDeviceGetSupportedEventTypes, device);
  NVML_NEED(out);
  *out = supported(gpu);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceRegisterEvents(void* device, unsigned long long mask, void* handle) {
  NVML_BOARD(nvmlDeviceRegisterEvents, device);
  EventSet* set = set_of(handle);
  if (!set) return kInvalidArgument;
  if (mask & ~supported(gpu)) return kNotSupported;
  if (set->masks[index] == 0) set->seen[index] = state.event_sequence;
  set->masks[index] |= mask;
  return kSuccess;
}

NVML_EXPORT int nvmlEventSetWait_v2(void* handle, EventData* out, unsigned timeout_ms) {
  std::int64_t deadline = steady_ms() + timeout_ms;
  while (true) {
    std::uint32_t generation = 0;
    {
      // The lock is not held while waiting: other threads go on using the library.
      NVML_ENTER(nvmlEventSetWait_v2);
      NVML_NEED(out);
      EventSet* set = set_of(handle);
      if (!set) return kInvalidArgument;
      generation = library().file.generation();
      // Read after the generation: a change in between ends the wait at once.
      const State* now = library().file.read();
      if (!now) return kUnknown;
      if (next_event(*now, *set, out)) return kSuccess;
    }
    std::int64_t left = deadline - steady_ms();
    if (left <= 0) return kTimeout;
    library().file.wait(generation, static_cast<int>(std::min<std::int64_t>(left, 1 << 30)));
  }
}

NVML_EXPORT int nvmlEventSetWait(void* handle, EventDataV1* out, unsigned timeout_ms) {
  EventData data{};
  int code = nvmlEventSetWait_v2(handle, out ? &data : nullptr, timeout_ms);
  if (out) *out = EventDataV1{data.device, data.type, data.data};
  return code;
}
