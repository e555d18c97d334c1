// Reads one snapshot from NVML. Belongs to one thread; every call may block as long as the driver does.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "hardware/nvml.h"
#include "telemetry/facts.h"

namespace gpuop::telemetry {

struct ReadPlan {
  std::vector<int> fields;  // sorted numbers of fields
  bool health = false;
  bool p2p = false;
  bool processes = false;
  bool operator==(const ReadPlan&) const = default;
};

class Reader {
 public:
  // NVML is opened at the first read, and again after it failed as a whole.
  explicit Reader(std::filesystem::path nvml_library);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // `at` is monotonic time. Rates and GPM figures are over the span since the read before; their first one is
  // 0 and blank (§3.1, §3.2). An error only when nothing can be read; a GPU or a field that fails is blank.
  Result<Snapshot> read(const ReadPlan& plan, Duration at);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The conversions of §3.1, apart.
Value scaled(std::uint64_t raw, Type type, Scale scale);
Value scaled_share(double raw, Type type, Scale scale);  // GPM
// MB/s from two totals in KiB, `span` apart; 0 for no traffic ever and without an older total.
std::int64_t link_rate(std::optional<std::uint64_t> older_kib, std::uint64_t newer_kib, Duration span);

}  // namespace gpuop::telemetry
