// Sampling, apart from scraping (telemetry.md §6.3): NVML's calls block, so a thread of its own reads a
// snapshot when it is told to and posts it to the loop.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "base/loop.h"
#include "base/result.h"
#include "telemetry/reader.h"

namespace gpuop::telemetry {

class Sampler {
 public:
  using Done = std::function<void(Result<std::shared_ptr<const Snapshot>>)>;

  // `done` is called on the loop's thread after each cycle, never after the sampler was destroyed.
  Sampler(Loop& loop, std::filesystem::path nvml_library, Done done);
  // Does not wait for a cycle that is under way: its thread closes NVML and ends by itself.
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Asks for one cycle; further ones asked for meanwhile are one.
  void cycle(ReadPlan plan);
  bool busy() const;
  // Waits up to `limit` until the thread has closed NVML, after which no device is open. True: it has.
  bool close(Duration limit);

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace gpuop::telemetry
