#include "plugin/health_watch.h"

#include <map>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/thread_link.h"
#include "hardware/nvml.h"

namespace gpuop::plugin {
namespace {

namespace abi = hardware::abi;
using hardware::Nvml;

constexpr unsigned kWaitMs = 5000;
constexpr auto kInitRetry = std::chrono::seconds(30);
constexpr auto kFirstBackoff = std::chrono::seconds(1);
constexpr auto kLastBackoff = std::chrono::seconds(30);
constexpr std::uint32_t kRecoveryActionField = 230;

}  // namespace

// What the thread and the loop share.
struct HealthWatch::Shared : ThreadLink {
  Shared(Loop& l, HealthWatchOptions o, HealthWatchEvents e)
      : ThreadLink(l), options(std::move(o)), events(std::move(e)) {}

  void run() {
    auto backoff = kFirstBackoff;
    while (!is_stopped()) {
      auto nvml = Nvml::open(options.nvml_library);
      if (!nvml) {
        log::error("health checks are off: " + nvml.error().text(), {{"retry_seconds", kInitRetry.count()}});
        pause(kInitRetry);
        continue;
      }
      auto set = (*nvml)->create_event_set();
      if (!set) {
        log::error("health checks are off: " + set.error().text(), {{"retry_seconds", kInitRetry.count()}});
        pause(kInitRetry);
        continue;
      }
      handles.clear();
      for (const std::string& uuid : options.gpu_uuids) watch(**nvml, *set, uuid);
      post([this] {
        if (events.watching) events.watching();
      });
      Result<> end = wait(**nvml, *set, backoff);
      (*nvml)->free_event_set(*set);
      if (end) break;
      log::warn("waiting for GPU events failed: " + end.error().text(), {{"retry_seconds", backoff.count()}});
      for (const std::string& uuid : options.gpu_uuids) {
        if (auto device = (*nvml)->device_by_uuid(uuid); !device) report_lost(uuid, device.error().text());
      }
      pause(backoff);
      backoff = std::min(backoff * 2, kLastBackoff);
    }
  }

  void watch(const Nvml& nvml, abi::EventSet set, const std::string& uuid) {
    auto device = nvml.device_by_uuid(uuid);
    if (!device) return report_lost(uuid, device.error().text());
    auto supported = nvml.supported_events(*device);
    if (!supported) return report_lost(uuid, supported.error().text());
    std::uint64_t wanted = abi::kEventXid | abi::kEventDoubleBitEcc | abi::kEventSingleBitEcc |
                           abi::kEventRecoveryAction | abi::kEventGpuUnavailable;
    if (options.mig_changes) wanted |= abi::kEventMigConfigChange;
    auto registered = nvml.register_events(*device, wanted & *supported, set);
    if (!registered && registered.error().code() != Code::kUnsupported)
      return report_lost(uuid, registered.error().text());
    if (!registered) log::warn("this GPU is too old to report its health", {{"uuid", uuid}});
    handles[*device] = uuid;
    if (lost.erase(uuid) > 0) report_changed(uuid);
  }

  // Until stopped (a value) or until waiting itself fails.
  Result<> wait(const Nvml& nvml, abi::EventSet set, std::chrono::seconds& backoff) {
    while (!is_stopped()) {
      auto data = nvml.wait_event(set, kWaitMs);
      if (!data && data.error().code() != Code::kTimeout) return fail(std::move(data).error());
      backoff = kFirstBackoff;
      if (data) handle(nvml, *data);
      for (const std::string& uuid : std::set(lost)) watch(nvml, set, uuid);
    }
    return {};
  }

  void handle(const Nvml& nvml, const abi::EventData& data) {
    if (data.event_type == abi::kEventMigConfigChange) {
      post([this] {
        if (events.mig_changed) events.mig_changed();
      });
      return;
    }
    // A GPU that fell off the bus no longer tells its UUID: what it was when its events were asked for
    // counts.
    std::string gpu;
    if (auto known = handles.find(data.device); known != handles.end()) {
      gpu = known->second;
    } else if (auto uuid = nvml.uuid(data.device)) {
      gpu = *uuid;
    }
    if (data.event_type == abi::kEventRecoveryAction || data.event_type == abi::kEventGpuUnavailable) {
      if (!gpu.empty()) look(nvml, gpu);
      return;
    }
    if (data.event_type != abi::kEventXid) return;
    HealthEvent event;
    event.xid = data.event_data;
    event.gpu_uuid = gpu;
    if (data.gpu_instance_id != abi::kNoInstance) event.gpu_instance = data.gpu_instance_id;
    if (data.compute_instance_id != abi::kNoInstance) event.compute_instance = data.compute_instance_id;
    post([this, event] { events.event(event); });
    if (!gpu.empty() && !nvml.device_by_uuid(gpu)) lost.insert(gpu);
  }

  void look(const Nvml& nvml, const std::string& uuid) {
    if (auto device = nvml.device_by_uuid(uuid); !device) return report_lost(uuid, device.error().text());
    lost.erase(uuid);
    report_changed(uuid);
  }

  // Said once; it is then tried again at every turn of the wait.
  void report_lost(const std::string& uuid, const std::string& why) {
    if (!lost.insert(uuid).second) return;
    post([this, uuid, why] { events.lost(uuid, why); });
  }
  void report_changed(const std::string& uuid) {
    post([this, uuid] {
      if (events.changed) events.changed(uuid);
    });
  }

  const HealthWatchOptions options;
  const HealthWatchEvents events;
  // The thread's own.
  std::map<Nvml::Device, std::string> handles;  // of GPUs whose events were asked for
  std::set<std::string> lost;                   // GPUs that did not answer
};

HealthWatch::HealthWatch(Loop& loop, HealthWatchOptions options, HealthWatchEvents events)
    : shared_(std::make_shared<Shared>(loop, std::move(options), std::move(events))) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

HealthWatch::~HealthWatch() {
  shared_->stop();
}

Result<> probe(const std::filesystem::path& nvml_library, const std::string& uuid,
               const std::string& gpu_uuid) {
  auto nvml = TRY(Nvml::open(nvml_library));
  TRY(nvml->device_by_uuid(uuid));
  Nvml::Device gpu = TRY(nvml->device_by_uuid(gpu_uuid));
  if (auto memory = nvml->memory(gpu); !memory && memory.error().code() != Code::kUnsupported) {
    return fail(std::move(memory).error());
  }
  std::vector<abi::FieldValue> fields(1);
  fields[0].field_id = kRecoveryActionField;
  if (auto read = nvml->field_values(gpu, fields); !read || fields[0].nvml_return != abi::kSuccess) return {};
  if (fields[0].value.u == 0) return {};
  return fail(Code::kUnavailable, "NVML recommends recovery action " + std::to_string(fields[0].value.u) +
                                      " for GPU '" + gpu_uuid + "'");
}

}  // namespace gpuop::plugin
