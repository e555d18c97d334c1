// Who uses a board: processes, what they have used, and the samples behind it.
#include <algorithm>
#include <vector>

#include "sim/nvml/library.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::nvml;  // NOLINT

namespace {

enum class Clients { kCompute, kMps };

// One line a process: its contexts on this board, or in this MIG device, together.
std::vector<ProcessInfo> processes(const State& state, const Entity& e) {
  std::vector<Context> contexts;
  if (e.kind == Kind::kGpu) {
    contexts = contexts_of(e.gpu);
  } else {
    const GpuInstance& gi = state.gpus[e.gpu].live.gis[e.gi];
    contexts = contexts_of(e.gpu, static_cast<int>(gi.id), static_cast<int>(gi.cis[e.ci].id));
  }
  std::vector<ProcessInfo> list;
  for (const Context& c : contexts) {
    std::uint32_t gi = c.gi == 15 ? kNone : c.gi, ci = c.ci == 15 ? kNone : c.ci;
    auto same = std::find_if(list.begin(), list.end(), [&](const ProcessInfo& p) {
      return c.pid && p.pid == static_cast<std::uint32_t>(c.pid) && p.gi == gi && p.ci == ci;
    });
    if (same != list.end())
      same->memory += c.memory_mib << 20;
    else
      list.push_back(ProcessInfo{static_cast<std::uint32_t>(c.pid), c.memory_mib << 20, gi, ci});
  }
  return list;
}

// The three layouts of a process list differ in what they leave out at the end.
template <class Info>
int list_processes(const char* symbol, void* device, unsigned* count, void* room_for, Clients clients) {
  auto* out = static_cast<Info*>(room_for);
  Call call(symbol);
  if (call.fault) return call.fault;
  const Entity* e = device_of(*call.state, device);
  if (!e || !count) return kInvalidArgument;
  if (const Gpu& gpu = call.state->gpus[e->gpu]; gpu.live.lost) return unusable(gpu);
  // Contexts of MPS clients belong to their own processes here; the server holds none.
  std::vector<ProcessInfo> list;
  if (clients == Clients::kCompute) list = processes(*call.state, *e);
  unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > room) return kInsufficientSize;
  if (!list.empty()) NVML_NEED(out);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if constexpr (sizeof(Info) == sizeof(ProcessInfo))
      out[i] = list[i];
    else
      out[i] = Info{list[i].pid, list[i].memory};
  }
  return kSuccess;
}

struct Use {
  std::uint32_t pid = 0, sm = 0, memory = 0;
};

// Utilisation by process, of those that were busy.
std::vector<Use> uses(const State& state, std::uint32_t index) {
  std::vector<Use> out;
  auto contexts = contexts_of(index);
  Sensors s = sense(state, index, contexts, now_us());
  auto busy = static_cast<std::uint32_t>(
      std::count_if(contexts.begin(), contexts.end(), [](const Context& c) { return c.busy; }));
  for (const Context& c : contexts) {
    if (!c.busy || !c.pid) continue;
    auto pid = static_cast<std::uint32_t>(c.pid);
    auto same = std::find_if(out.begin(), out.end(), [&](const Use& u) { return u.pid == pid; });
    if (same == out.end()) same = out.insert(out.end(), Use{pid, 0, 0});
    same->sm += s.gpu_util / busy;
    same->memory += s.memory_util / busy;
  }
  return out;
}

}  // namespace

#define NVML_PROCESSES(symbol, Info, clients)                          \
  NVML_EXPORT int symbol(void* device, unsigned* count, void* out) {   \
    return list_processes<Info>(#symbol, device, count, out, clients); \
  }
NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses, ProcessInfoV1, Clients::kCompute)
NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, ProcessInfo, Clients::kCompute)
NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, ProcessInfo, Clients::kCompute)
NVML_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, ProcessInfoV1, Clients::kMps)
NVML_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, ProcessInfo, Clients::kMps)
NVML_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, ProcessInfo, Clients::kMps)
// Nothing draws on these boards.
NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, ProcessInfoV1, Clients::kMps)
NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, ProcessInfo, Clients::kMps)
NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessInfo, Clients::kMps)

NVML_EXPORT int nvmlDeviceGetRunningProcessDetailList(void* device, ProcessDetailList* out) {
  NVML_DEVICE(nvmlDeviceGetRunningProcessDetailList, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(ProcessDetailList), 1)) return kArgumentVersionMismatch;
  if (out->mode > 3) return kInvalidArgument;
  std::vector<ProcessInfo> list;
  if (out->mode == 0 || out->mode == 3) list = processes(state, *entity);
  std::uint32_t room = out->count;
  out->count = static_cast<std::uint32_t>(list.size());
  if (list.size() > room) return kInsufficientSize;
  if (!list.empty()) NVML_NEED(out->list);
  for (std::size_t i = 0; i < list.size(); ++i)
    out->list[i] = ProcessDetail{list[i].pid, list[i].memory, list[i].gi, list[i].ci, ~std::uint64_t{0}};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetProcessUtilization(void* device, ProcessUtilization* out, unsigned* count,
                                                unsigned long long since) {
  NVML_BOARD(nvmlDeviceGetProcessUtilization, device);
  NVML_NEED(count);
  if (gpu.live.mig_current) return kNotSupported;
  auto list = uses(state, index);
  std::uint64_t at = now_us();
  if (list.empty() || since >= at) {
    *count = 0;
    return kNotFound;
  }
  unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > room || !out) return kInsufficientSize;
  for (std::size_t i = 0; i < list.size(); ++i)
    out[i] = ProcessUtilization{list[i].pid, at, list[i].sm, list[i].memory, 0, 0};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetProcessesUtilizationInfo(void* device, ProcessesUtilizationInfo* out) {
  NVML_BOARD(nvmlDeviceGetProcessesUtilizationInfo, device);
  NVML_NEED(out);
  if (out->version != version_word(sizeof(ProcessesUtilizationInfo), 1)) return kArgumentVersionMismatch;
  if (gpu.live.mig_current) return kNotSupported;
  auto list = uses(state, index);
  std::uint64_t at = now_us();
  std::uint32_t room = out->count;
  out->count = static_cast<std::uint32_t>(list.size());
  if (list.empty() || out->last_seen_us >= at) return out->count = 0, kNotFound;
  if (list.size() > room || !out->list) return kInsufficientSize;
  for (std::size_t i = 0; i < list.size(); ++i)
    out->list[i] = ProcessUtilizationInfo{at, list[i].pid, list[i].sm, list[i].memory, 0, 0, 0, 0};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetAccountingMode(void* device, int* out) {
  NVML_BOARD(nvmlDeviceGetAccountingMode, device);
  NVML_NEED(out);
  *out = static_cast<int>(gpu.live.accounting);
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceSetAccountingMode(void* device, int mode) {
  NVML_BOARD(nvmlDeviceSetAccountingMode, device);
  if (mode < 0 || mode > 1) return kInvalidArgument;
  return change([&](State& s) {
    s.gpus[index].live.accounting = static_cast<std::uint32_t>(mode);
    return 0;
  });
}
NVML_EXPORT int nvmlDeviceGetAccountingBufferSize(void* device, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetAccountingBufferSize, device);
  NVML_NEED(out);
  *out = 4000;
  return kSuccess;
}
// Running processes only: those that ended are not kept.
NVML_EXPORT int nvmlDeviceGetAccountingPids(void* device, unsigned* count, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetAccountingPids, device);
  NVML_NEED(count);
  std::vector<ProcessInfo> list;
  if (gpu.live.accounting) list = processes(state, *entity);
  unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > room) return kInsufficientSize;
  if (!list.empty()) NVML_NEED(out);
  for (std::size_t i = 0; i < list.size(); ++i) out[i] = list[i].pid;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetAccountingStats(void* device, unsigned pid, AccountingStats* out) {
  NVML_BOARD(nvmlDeviceGetAccountingStats, device);
  NVML_NEED(out);
  if (!gpu.live.accounting) return kNotFound;
  for (const ProcessInfo& p : processes(state, *entity)) {
    if (p.pid != pid) continue;
    Sensors s = sensors_of(state, index);
    *out = AccountingStats{s.gpu_util, s.memory_util, p.memory, 0, 0, 1, {}};
    return kSuccess;
  }
  return kNotFound;
}
NVML_EXPORT int nvmlDeviceClearAccountingPids(void* device) {
  NVML_BOARD(nvmlDeviceClearAccountingPids, device);
  return kSuccess;
}
NVML_ABSENT_ON_DEVICE(nvmlDeviceGetAccountingStats_v2)

// One sample, the present one: this board's history is its formula.
// type: 0 power, 1 GPU, 2 memory, 3 encoder, 4 decoder, 5 processor clock, 6 memory clock, 8 JPEG, 9 OFA.
NVML_EXPORT int nvmlDeviceGetSamples(void* device, int type, unsigned long long since, unsigned* value_type,
                                     unsigned* count, UtilSample* out) {
  NVML_BOARD(nvmlDeviceGetSamples, device);
  if (!value_type || !count || type < 0 || type > 9) return kInvalidArgument;
  if (type == 7) return kNotSupported;  // power of a module
  if (gpu.live.mig_current && type >= 1 && type != 5 && type != 6) return kNotSupported;
  std::uint64_t at = now_us();
  if (since >= at) return *count = 0, kNotFound;
  unsigned room = *count;
  *value_type = kUint;
  *count = 1;
  if (!out) return kSuccess;
  if (room < 1) return kInsufficientSize;
  Sensors s = sense(state, index, contexts_of(index), at);
  const std::uint32_t values[] = {
      s.power_mw, s.gpu_util, s.memory_util, s.encoder_util, s.decoder_util, s.sm_clock, s.memory_clock, 0,
      0,          0};
  *out = UtilSample{at, {}};
  out->value.u = values[type];
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetEncoderCapacity(void* device, int codec, unsigned* out) {
  NVML_BOARD(nvmlDeviceGetEncoderCapacity, device);
  if (!out || codec < 0 || codec > 2) return kInvalidArgument;
  if (gpu.board.encoders == 0) return kNotSupported;
  *out = 100;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetEncoderStats(void* device, unsigned* sessions, unsigned* fps,
                                          unsigned* latency) {
  NVML_BOARD(nvmlDeviceGetEncoderStats, device);
  if (!sessions || !fps || !latency) return kInvalidArgument;
  *sessions = *fps = *latency = 0;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetEncoderSessions(void* device, unsigned* count, EncoderSession*) {
  NVML_BOARD(nvmlDeviceGetEncoderSessions, device);
  NVML_NEED(count);
  *count = 0;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetFBCStats(void* device, FbcStats* out) {
  NVML_BOARD(nvmlDeviceGetFBCStats, device);
  NVML_NEED(out);
  *out = FbcStats{};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetFBCSessions(void* device, unsigned* count, void*) {
  NVML_BOARD(nvmlDeviceGetFBCSessions, device);
  NVML_NEED(count);
  *count = 0;
  return kSuccess;
}
