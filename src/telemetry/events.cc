#include "telemetry/events.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
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

struct EventWatch::Shared : std::enable_shared_from_this<EventWatch::Shared> {
  Shared(Loop& l, std::filesystem::path n, std::vector<std::string> u, Callbacks c)
      : loop(l), library(std::move(n)), uuids(std::move(u)), callbacks(std::move(c)) {}

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
    std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
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

  void post(std::function<void()> work) {
    std::lock_guard lock(mutex);
    if (stopped) return;
    loop.post([self = shared_from_this(), work = std::move(work)] {
      if (!self->is_stopped()) work();
    });
  }
  bool is_stopped() {
    std::lock_guard lock(mutex);
    return stopped;
  }
  void pause(std::chrono::seconds span) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, span, [this] { return stopped; });
  }

  Loop& loop;
  const std::filesystem::path library;
  const std::vector<std::string> uuids;
  const Callbacks callbacks;
  // A GPU that fell off the bus no longer tells its UUID: handles are known from before.
  std::map<Nvml::Device, std::string> names;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  bool closed = false;
};

EventWatch::EventWatch(Loop& loop, std::filesystem::path library, std::vector<std::string> uuids,
                       Callbacks callbacks)
    : shared_(std::make_shared<Shared>(loop, std::move(library), std::move(uuids), std::move(callbacks))) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

EventWatch::~EventWatch() {
  std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
}

bool EventWatch::close(Duration limit) {
  std::unique_lock lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
  return shared_->changed.wait_for(lock, limit, [this] { return shared_->closed; });
}

}  // namespace gpuop::telemetry
