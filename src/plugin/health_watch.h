// Waiting for NVML's events, which only a blocking call can do: a thread of its own that posts to the loop
// (device-plugin-gfd-mps.md §5).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "plugin/health.h"

namespace gpuop::plugin {

struct HealthWatchEvents {
  // All called on the loop's thread, never after the watch was destroyed.
  std::function<void(const HealthEvent&)> event;
  // A GPU whose events cannot be had, or that no longer answers.
  std::function<void(const std::string& gpu_uuid, const std::string& why)> lost;
  // A GPU that was lost answers again, or NVML changed what it recommends for it: worth a probe.
  std::function<void(const std::string& gpu_uuid)> changed;
  // Every GPU's events have been asked for (again).
  std::function<void()> watching;
  // The MIG configuration changed; only when asked for.
  std::function<void()> mig_changed;
};

struct HealthWatchOptions {
  std::filesystem::path nvml_library;
  std::vector<std::string> gpu_uuids;  // physical GPUs
  bool mig_changes = false;
};

class HealthWatch {
 public:
  HealthWatch(Loop& loop, HealthWatchOptions options, HealthWatchEvents events);
  // Does not wait for a call that is under way (it may take 5 s): the thread ends by itself after it.
  ~HealthWatch();
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;
  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

// Whether a unit (GPU or MIG device) may be called healthy again: it is found by UUID, its GPU's memory can
// be read and NVML recommends no recovery action (field 230). The error says what is wrong.
Result<> probe(const std::filesystem::path& nvml_library, const std::string& uuid,
               const std::string& gpu_uuid);

}  // namespace gpuop::plugin
