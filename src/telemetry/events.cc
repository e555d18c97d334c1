#include "telemetry/events.h"

#include <map>
#include <thread>

#include "base/log.h"
#include "base/thread_link.h"
#include "hardware/nvml.h"

namespace gpuop::telemetry {
namespace {

namespace abi = hardware::abi;
using hardware::Nvml;

// Long waits cost nothing while nothing happens; they bound how long a stop takes.
constexpr unsigned kWaitMs = 1000;
constexpr auto kFirstBackoff = std::chrono::seconds(1);
constexpr auto kLastBackoff = std::chrono::seconds(30);

}  // namespace

struct EventWatch::Shared : ThreadLink {
  Shared(Loop& l, std::filesystem::path n, std::vector<std::string> u, Callbacks c)
      : ThreadLink(l), library(std::move(n)), uuids(std::move(u)), callbacks(std::move(c)) {}

  void run() {
    auto backoff = kFirstBackoff;
    while (!is_stopped()) {
      auto ended = watch(backoff);
      if (ended || is_stopped()) break;
      log::warn("waiting for GPU events failed: " + ended.error().text(),
                {{"retry_seconds", backoff.count()}});
      pause(backoff);
      backoff = std::min(backoff * 2, kLastBackoff);
    }
    finish();
  }

  // Until stopped (a value) or until the library fails.
  Result<> watch(std::chrono::seconds& backoff) {
    auto nvml = TRY(Nvml::open(library));
    auto set = TRY(nvml->create_event_set());
    names.clear();
    for (const std::string& uuid : uuids) {
      if (auto added = add(*nvml, set, uuid); !added)
        log::warn("no events of this GPU: " + added.error().text(), {{"uuid", uuid}});
    }
    Result<> end;
    while (!is_stopped()) {
      auto data = nvml->wait_event(set, kWaitMs);
      if (!data && data.error().code() != Code::kTimeout) {
        end = fail(std::move(data).error());
        break;
      }
      backoff = kFirstBackoff;
      if (data) handle(*data);
    }
    nvml->free_event_set(set);
    return end;
  }

  Result<> add(const Nvml& nvml, abi::EventSet set, const std::string& uuid) {
    auto device = TRY(nvml.device_by_uuid(uuid));
    names[device] = uuid;
    auto supported = TRY(nvml.supported_events(device));
    return nvml.register_events(device, (abi::kEventXid | abi::kEventMigConfigChange) & supported, set);
  }

  void handle(const abi::EventData& data) {
    if (data.event_type == abi::kEventMigConfigChange) return post([this] { callbacks.mig_changed(); });
    auto name = names.find(data.device);
    if (data.event_type != abi::kEventXid || name == names.end()) return;
    XidEvent event;
    event.xid = data.event_data;
    if (data.gpu_instance_id != abi::kNoInstance) event.gi = data.gpu_instance_id;
    event.gpu_uuid = name->second;
    post([this, event = std::move(event)] { callbacks.xid(event); });
  }

  const std::filesystem::path library;
  const std::vector<std::string> uuids;
  const Callbacks callbacks;
  // A GPU that fell off the bus no longer tells its UUID: handles are known from before.
  std::map<Nvml::Device, std::string> names;
};

EventWatch::EventWatch(Loop& loop, std::filesystem::path library, std::vector<std::string> uuids,
                       Callbacks callbacks)
    : shared_(std::make_shared<Shared>(loop, std::move(library), std::move(uuids), std::move(callbacks))) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

EventWatch::~EventWatch() {
  shared_->stop();
}

bool EventWatch::close(Duration limit) {
  return shared_->stop_and_wait(limit);
}

}  // namespace gpuop::telemetry
