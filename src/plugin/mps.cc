#include "plugin/mps.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::plugin {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

// Clients that one daemon can serve on a GPU: Volta's hardware brought more.
int max_replicas(const hardware::Gpu& gpu) {
  return gpu.compute_capability.major >= 7 ? 48 : 16;
}

}  // namespace

Result<MpsPlan> plan_mps(const sharing::Settings& settings, const Facts& facts) {
  MpsPlan out;
  if (sharing::active_strategy(settings) != sharing::SharingStrategy::kMps) return out;
  auto plan = plan_resources(settings, facts);
  if (!plan && plan.error().code() == Code::kUnsupported) {
    out.warnings.push_back(plan.error().text() + ": skipped");
    return out;
  }
  if (!plan) return fail(std::move(plan).error());
  out.warnings = plan->warnings;
  for (const Resource& resource : plan->resources) {
    MpsDaemon daemon;
    daemon.resource = resource.name;
    int replicas = 0;
    for (const Device& device : resource.devices) replicas = std::max(replicas, device.replica + 1);
    if (replicas == 0) continue;
    for (const Device& device : resource.devices) {
      if (device.replica != 0) continue;
      const hardware::Gpu& gpu = facts.inventory.gpus[static_cast<std::size_t>(device.gpu)];
      if (replicas > max_replicas(gpu)) {
        return fail(Code::kInvalid,
                    "invalid MPS configuration: invalid device maximum allowed replicas exceeded: " +
                        std::to_string(replicas) + " > " + std::to_string(max_replicas(gpu)));
      }
      std::uint64_t limit = gpu.memory_bytes.value_or(0) / static_cast<std::uint64_t>(replicas) / kMiB;
      if (limit > 0) {
        daemon.limits.push_back("set_default_device_pinned_mem_limit " + std::to_string(daemon.uuids.size()) +
                                " " + std::to_string(limit) + "M");
      }
      daemon.uuids.push_back(device.uuid);
    }
    daemon.threads = "set_default_active_thread_percentage " + std::to_string(100 / replicas);
    out.daemons.push_back(std::move(daemon));
  }
  return out;
}

std::string shm_size(std::string_view meminfo) {
  for (const std::string& line : split(meminfo, '\n')) {
    if (!line.starts_with("MemTotal:")) continue;
    auto fields = split_fields(line);
    auto total = fields.size() == 3 ? parse_int(fields[1]) : std::nullopt;
    if (!total || *total <= 0 || fields[2].empty()) break;
    return std::to_string(*total / 2) + fields[2].substr(0, 1);
  }
  return "65536k";
}

}  // namespace gpuop::plugin
