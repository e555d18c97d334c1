// XIDs and MIG changes as they happen (telemetry.md §6.3): a thread waits for NVML's events and posts them to
// the loop.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/loop.h"

namespace gpuop::telemetry {

struct XidEvent {
  Duration at{};  // the loop's monotonic time; set by whoever receives the event
  std::string gpu_uuid;
  std::optional<unsigned> gi;
  std::uint64_t xid = 0;
};

class EventWatch {
 public:
  struct Callbacks {
    std::function<void(XidEvent)> xid;
    std::function<void()> mig_changed;
  };
  // All callbacks come on the loop's thread, never after the watch was destroyed.
  EventWatch(Loop& loop, std::filesystem::path nvml_library, std::vector<std::string> gpu_uuids,
             Callbacks callbacks);
  ~EventWatch();  // does not wait for the thread, which may be in a call for up to a second
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;
  bool close(Duration limit);  // waits until NVML is closed

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace gpuop::telemetry
