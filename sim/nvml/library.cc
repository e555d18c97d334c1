#include "sim/nvml/library.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "sim/state/devices.h"

namespace gpuop::sim::nvml {

namespace {

constexpr std::size_t kCisOfGpu = std::size_t{kMaxGis} * kMaxCis;
Entity gpus[kMaxGpus];
Entity migs[kMaxGpus][kMaxGis][kMaxCis];
Entity gis[kMaxGpus][kMaxGis];
Entity cis[kMaxGpus][kMaxGis][kMaxCis];

template <class T, std::size_t N>
bool inside(const T (&table)[N], const void* p, std::size_t* offset) {
  auto base = reinterpret_cast<std::uintptr_t>(table), at = reinterpret_cast<std::uintptr_t>(p);
  if (at < base || at >= base + sizeof(table) || (at - base) % sizeof(Entity) != 0) return false;
  *offset = (at - base) / sizeof(Entity);
  return true;
}

// The real library asks the kernel; here the loaded module is in the state.
int check_driver(const State& state, const Library& lib) {
  if (!state.driver_loaded) return kDriverNotLoaded;
  if (strcmp(state.kernel_driver, lib.version) != 0) return kVersionMismatch;
  if (device_node_exists("nvidiactl")) return kSuccess;
  // The module is there but its nodes are not. The library makes them where it may; else it cannot reach the
  // module and does not know why.
  if (!make_device_node("nvidiactl", 255)) return kUnknown;
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const unsigned minor = static_cast<unsigned>(state.gpus[g].board.minor);
    make_device_node("nvidia" + std::to_string(minor), minor);
  }
  return kSuccess;
}

int forced_code(const State& state, const char* symbol, Library& lib) {
  for (std::uint32_t i = 0; i < state.forced_count; ++i) {
    const Forced& f = state.forced[i];
    // The place may have been another call's when it was last counted.
    if (strncmp(lib.forced_seen[i].symbol, f.symbol, sizeof f.symbol) != 0 ||
        lib.forced_seen[i].after != f.after) {
      lib.forced_seen[i] = f;
      lib.forced_calls[i] = 0;
    }
    if (strncmp(f.symbol, symbol, sizeof f.symbol) != 0) continue;
    if (lib.forced_calls[i] >= f.after) return f.code;
    ++lib.forced_calls[i];
  }
  return kSuccess;
}

int open_state(Library& lib) {
  if (lib.file_open) return kSuccess;
  std::string version;
  std::string path = state_beside_library(reinterpret_cast<const void*>(&gpu_handle), &version);
  if (path.empty()) return kDriverNotLoaded;
  snprintf(lib.version, sizeof lib.version, "%s", version.c_str());
  switch (lib.file.open(path)) {
    case StateFault::kNone:
      break;
    case StateFault::kMissing:
      return kDriverNotLoaded;
    case StateFault::kPermission:
      return kNoPermission;
    default:
      return kUnknown;
  }
  lib.file_open = true;
  return kSuccess;
}

}  // namespace

Library& library() {
  // Never destroyed: other threads may still call while the process ends, and the file's locks must outlive
  // us.
  static Library* lib = new Library;
  return *lib;
}

int attach() {
  Library& lib = library();
  if (int code = open_state(lib)) return code;
  const State* state = lib.file.read();
  if (!state) return kUnknown;
  if (int code = check_driver(*state, lib)) return code;
  lib.visible.clear();
  for (std::uint32_t g = 0; g < state->gpu_count; ++g) {
    char node[64];
    snprintf(node, sizeof node, "nvidia%u", state->gpus[g].board.minor);
    if (device_node_exists(node)) lib.visible.push_back(g);
  }
  auto place = [&](std::uint32_t g) {
    const Board& b = state->gpus[g].board;
    return std::uint64_t{b.domain} << 32 | b.bus << 8 | b.device;
  };
  std::sort(lib.visible.begin(), lib.visible.end(),
            [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
  return kSuccess;
}

Call::Call(const char* symbol, bool needs_init) {
  Library& lib = library();
  lib.mutex.lock();
  if (needs_init && lib.references == 0) {
    fault = kUninitialized;
    return;
  }
  if (!needs_init && open_state(lib) != kSuccess) return;
  state = lib.file.read();
  if (!state) {
    if (needs_init) fault = kUnknown;
    return;
  }
  fault = forced_code(*state, symbol, lib);
  if (needs_init && !fault && !state->driver_loaded) fault = kGpuIsLost;  // the module went away beneath us
}

const Entity* device_of(const State& state, void* handle) {
  std::size_t at = 0;
  if (inside(gpus, handle, &at)) {
    gpus[at].gpu = static_cast<std::uint32_t>(at);
    return at < state.gpu_count ? &gpus[at] : nullptr;
  }
  if (inside(migs, handle, &at)) {
    Entity& e = migs[at / kCisOfGpu][at / kMaxCis % kMaxGis][at % kMaxCis];
    e = Entity{Kind::kMig, static_cast<std::uint32_t>(at / kCisOfGpu),
               static_cast<int>(at / kMaxCis % kMaxGis), static_cast<int>(at % kMaxCis)};
    if (e.gpu >= state.gpu_count) return nullptr;
    const GpuInstance& gi = state.gpus[e.gpu].live.gis[e.gi];
    return gi.used && gi.cis[e.ci].used ? &e : nullptr;
  }
  return nullptr;
}

const Entity* instance_of(const State& state, void* handle, Kind kind) {
  std::size_t at = 0;
  if (kind == Kind::kGpuInstance && inside(gis, handle, &at)) {
    Entity& e = gis[at / kMaxGis][at % kMaxGis];
    e = Entity{kind, static_cast<std::uint32_t>(at / kMaxGis), static_cast<int>(at % kMaxGis), -1};
    return e.gpu < state.gpu_count && state.gpus[e.gpu].live.gis[e.gi].used ? &e : nullptr;
  }
  if (kind == Kind::kComputeInstance && inside(cis, handle, &at)) {
    Entity& e = cis[at / kCisOfGpu][at / kMaxCis % kMaxGis][at % kMaxCis];
    e = Entity{kind, static_cast<std::uint32_t>(at / kCisOfGpu), static_cast<int>(at / kMaxCis % kMaxGis),
               static_cast<int>(at % kMaxCis)};
    return e.gpu < state.gpu_count && state.gpus[e.gpu].live.gis[e.gi].cis[e.ci].used ? &e : nullptr;
  }
  return nullptr;
}

void* gpu_handle(std::uint32_t gpu) {
  return &gpus[gpu];
}
void* mig_handle(std::uint32_t gpu, int gi, int ci) {
  return &migs[gpu][gi][ci];
}
void* gi_handle(std::uint32_t gpu, int gi) {
  return &gis[gpu][gi];
}
void* ci_handle(std::uint32_t gpu, int gi, int ci) {
  return &cis[gpu][gi][ci];
}

std::uint32_t visible_index(std::uint32_t gpu) {
  const auto& v = library().visible;
  auto it = std::find(v.begin(), v.end(), gpu);
  return it == v.end() ? kNone : static_cast<std::uint32_t>(it - v.begin());
}

bool mig_visible(const State& state, std::uint32_t g, int gi, int ci) {
  char node[64];
  auto there = [&](std::uint32_t minor) {
    snprintf(node, sizeof node, "nvidia-caps/nvidia-cap%u", minor);
    return device_node_exists(node);
  };
  const GpuInstance& instance = state.gpus[g].live.gis[gi];
  std::uint32_t minor = state.gpus[g].board.minor;
  return there(kMigMonitorMinor) || (there(gi_cap_minor(minor, instance.id)) &&
                                     there(ci_cap_minor(minor, instance.id, instance.cis[ci].id)));
}

std::vector<Context> contexts_of(std::uint32_t gpu, int gi_id, int ci_id) {
  std::vector<Context> all = list_contexts(library().file.fd());
  std::erase_if(all, [&](const Context& c) {
    return c.gpu != gpu || (gi_id >= 0 && static_cast<int>(c.gi) != gi_id) ||
           (ci_id >= 0 && static_cast<int>(c.ci) != ci_id);
  });
  return all;
}

Sensors sensors_of(const State& state, std::uint32_t gpu) {
  return sense(state, gpu, contexts_of(gpu), now_us());
}

int change(const std::function<int(State&)>& with) {
  int result = library().file.update(with);
  // NVML's codes never meet these two.
  if (result == EROFS) return kNoPermission;
  return result == EIO ? kUnknown : result;
}

std::uint32_t version_of(const void* versioned) {
  std::uint32_t version = 0;
  memcpy(&version, versioned, sizeof version);
  return version;
}

int copy_text(char* out, std::uint32_t length, const char* text) {
  if (!out) return kInvalidArgument;
  std::size_t need = strlen(text) + 1;
  if (length < need) return kInsufficientSize;
  memcpy(out, text, need);
  return kSuccess;
}

}  // namespace gpuop::sim::nvml
