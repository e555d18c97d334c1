#include "telemetry/read_health.h"

#include <algorithm>
#include <map>

#include "base/files.h"

namespace gpuop::telemetry {
namespace {

namespace abi = hardware::abi;
using hardware::Nvml;

// Field ids that the watches need, and the sum of those that were read.
class Counters {
 public:
  Counters(const Nvml& nvml, Nvml::Device device, std::initializer_list<std::uint32_t> ids) {
    std::vector<abi::FieldValue> wanted;
    for (std::uint32_t id : ids) {
      wanted.emplace_back().field_id = id;
    }
    if (!nvml.field_values(device, wanted)) return;
    for (const abi::FieldValue& value : wanted) {
      if (value.nvml_return != abi::kSuccess) continue;
      values_[value.field_id] = value.value_type == abi::kTypeUnsigned ? value.value.u : value.value.u64;
    }
  }
  std::optional<std::uint64_t> at(std::uint32_t id) const {
    auto found = values_.find(id);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<std::uint64_t> sum(std::uint32_t a, std::uint32_t b) const {
    auto first = at(a);
    auto second = at(b);
    if (!first && !second) return std::nullopt;
    return first.value_or(0) + second.value_or(0);
  }

 private:
  std::map<std::uint32_t, std::uint64_t> values_;
};

template <class T>
std::optional<T> optional_of(Result<T> read) {
  return read ? std::optional<T>(std::move(*read)) : std::nullopt;
}

std::optional<bool> flag(std::optional<std::uint64_t> number) {
  return number ? std::optional(*number != 0) : std::nullopt;
}

}  // namespace

HealthFacts read_health(const Nvml& nvml, Nvml::Device device) {
  HealthFacts facts;
  Counters counters(nvml, device, {4, 29, 30, 31, 38, 45, 52, 59, 74, 75, 91, 145, 230});
  facts.double_bit_volatile = counters.at(4);
  facts.retired_double_bit = counters.at(30);
  facts.retired_pages = counters.sum(29, 30);
  facts.retirement_pending = flag(counters.at(31));
  facts.crc_errors = counters.sum(38, 45);
  facts.link_errors = counters.sum(52, 59);
  facts.power_violation_ns = counters.at(74);
  facts.thermal_violation_ns = counters.at(75);
  facts.remap_failure = flag(counters.at(145));
  if (auto action = counters.at(230)) facts.recovery_action = static_cast<unsigned>(*action);
  facts.inforom_valid = optional_of(nvml.inforom_valid(device));
  if (auto replays = nvml.read_u32("nvmlDeviceGetPcieReplayCounter", device)) facts.pcie_replays = *replays;
  facts.pcie_gen = optional_of(nvml.read_u32("nvmlDeviceGetCurrPcieLinkGeneration", device));
  facts.pcie_width = optional_of(nvml.read_u32("nvmlDeviceGetCurrPcieLinkWidth", device));
  auto power = nvml.read_u32("nvmlDeviceGetPowerUsage", device);
  facts.power_readable = power || power.error().code() == Code::kUnsupported;
  for (unsigned link = 0; link < counters.at(91).value_or(0); ++link) {
    auto active = nvml.nvlink_active(device, link);
    if (active && !*active) facts.links_down.push_back(link);
  }
  return facts;
}

std::string pod_uid_of(std::string_view cgroup) {
  for (std::size_t at = 0; (at = cgroup.find("pod", at)) != std::string_view::npos;) {
    at += 3;
    auto end = cgroup.find_first_not_of("0123456789abcdef_-", at);
    std::string uid(cgroup.substr(at, end == std::string_view::npos ? end : end - at));
    std::ranges::replace(uid, '_', '-');
    if (uid.size() >= 32) return uid;
  }
  return {};
}

void read_processes(const Nvml& nvml, const GpuFacts& gpu, Nvml::Device device, std::uint64_t& since,
                    std::vector<ProcessUse>& processes) {
  constexpr std::uint64_t kNotAvailable = ~0ull;
  auto running = nvml.compute_processes(device);
  if (!running) return;
  std::map<unsigned, unsigned> busy;  // by process: its newest sample counts
  std::uint64_t newest = since;
  if (auto samples = nvml.process_utilization(device, since)) {
    std::map<unsigned, std::uint64_t> seen;
    for (const auto& sample : *samples) {
      newest = std::max(newest, sample.timestamp);
      if (sample.timestamp < seen[sample.pid]) continue;
      seen[sample.pid] = sample.timestamp;
      busy[sample.pid] = sample.sm;
    }
  }
  since = newest;
  for (const abi::ProcessInfo& process : *running) {
    ProcessUse use;
    use.pid = process.pid;
    use.entity.gpu = gpu.index;
    if (process.gpu_instance_id != abi::kNoInstance && !gpu.instances.empty())
      use.entity.gi = process.gpu_instance_id;
    if (process.used_gpu_memory != kNotAvailable) use.memory_bytes = process.used_gpu_memory;
    if (auto found = busy.find(process.pid); found != busy.end()) use.sm_percent = found->second;
    auto cgroup = read_file(kernel_path("/proc/" + std::to_string(process.pid) + "/cgroup"), 64u << 10);
    if (cgroup) use.pod_uid = pod_uid_of(*cgroup);
    processes.push_back(std::move(use));
  }
}

}  // namespace gpuop::telemetry
