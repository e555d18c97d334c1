#include "telemetry/pods.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::telemetry {
namespace {

bool wanted(const std::string& resource, const AttributionRules& rules) {
  return resource == "nvidia.com/gpu" || resource == "nvidia.com/gpu.shared" ||
         resource.starts_with("nvidia.com/mig-") ||
         std::ranges::find(rules.resource_names, resource) != rules.resource_names.end();
}

std::optional<unsigned> small_number(std::string_view text) {
  auto number = parse_int(text);
  if (!number || *number < 0 || *number > 0xFFFF || text.front() == '+') return std::nullopt;
  return static_cast<unsigned>(*number);
}

// "MIG-GPU-<uuid>/<gi>/<ci>", of drivers before R470.
Result<DeviceId> parse_old_mig(std::string_view id) {
  const std::string whole(id);
  auto parts = split(id.substr(4), '/');
  if (parts.size() != 3 || !parts[0].starts_with("GPU-") || parts[0].size() < 5)
    return fail(Code::kInvalid, "invalid MIG device UUID '" + whole + "'");
  auto gi = small_number(parts[1]);
  if (!gi)
    return fail(Code::kInvalid, "invalid GPU instance ID '" + parts[1] + "' for MIG device '" + whole + "'");
  if (!small_number(parts[2]))
    return fail(Code::kInvalid, "unable to parse '" + whole + "' as MIG device UUID");
  return DeviceId{DeviceId::Kind::kUuid, parts[0], 0, gi, ""};
}

// "nvidia0", "nvidia0/vgpu2", "nvidia0/gi3", "nvidia0/gi3/vgpu1".
Result<DeviceId> parse_node_name(std::string_view id) {
  auto wrong = [&] { return fail(Code::kInvalid, "'" + std::string(id) + "' is no device id of this node"); };
  auto parts = split(id.substr(6), '/');
  auto minor = small_number(parts[0]);
  if (!minor || parts.size() > 3) return wrong();
  DeviceId parsed{DeviceId::Kind::kMinor, "", *minor, {}, ""};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::string_view part = parts[i];
    if (part.starts_with("vgpu") && i + 1 == parts.size() && small_number(part.substr(4))) {
      parsed.replica = part.substr(4);
    } else if (part.starts_with("gi") && i == 1 && small_number(part.substr(2))) {
      parsed.gi = small_number(part.substr(2));
    } else {
      return wrong();
    }
  }
  return parsed;
}

const GpuFacts* find_gpu(const DeviceId& id, const std::vector<GpuFacts>& gpus) {
  auto found = gpus.end();
  if (id.kind == DeviceId::Kind::kUuid) found = std::ranges::find(gpus, id.uuid, &GpuFacts::uuid);
  if (id.kind == DeviceId::Kind::kMinor) found = std::ranges::find(gpus, id.number, &GpuFacts::minor);
  if (id.kind == DeviceId::Kind::kIndex) found = std::ranges::find(gpus, id.number, &GpuFacts::index);
  return found == gpus.end() ? nullptr : &*found;
}

std::optional<EntityKey> entity_of(const DeviceId& id, const std::vector<GpuFacts>& gpus,
                                   const AttributionRules& rules) {
  if (id.kind == DeviceId::Kind::kMigUuid) {
    for (const GpuFacts& gpu : gpus) {
      auto found = std::ranges::find(gpu.mig_devices, id.uuid, &MigDeviceFacts::uuid);
      if (found != gpu.mig_devices.end()) return EntityKey{gpu.index, found->gi};
    }
    return std::nullopt;
  }
  // A whole GPU by its node's name counts only where ids are said to be such.
  if (id.kind == DeviceId::Kind::kMinor && !id.gi && !rules.by_device_name) return std::nullopt;
  const GpuFacts* gpu = find_gpu(id, gpus);
  if (!gpu) return std::nullopt;
  return EntityKey{gpu->index, id.gi};
}

auto order(const PodUse& use) {
  return std::tie(use.ns, use.pod, use.container, use.replica);
}

}  // namespace

Result<DeviceId> parse_device_id(std::string_view id) {
  std::string replica;
  if (auto colons = id.rfind("::"); colons != std::string_view::npos) {
    replica = id.substr(colons + 2);
    id = id.substr(0, colons);
  }
  DeviceId parsed;
  if (id.starts_with("GPU-")) {
    parsed = {DeviceId::Kind::kUuid, std::string(id), 0, {}, ""};
  } else if (id.starts_with("MIG-GPU-")) {
    parsed = TRY(parse_old_mig(id));
  } else if (id.starts_with("MIG-")) {
    parsed = {DeviceId::Kind::kMigUuid, std::string(id), 0, {}, ""};
  } else if (id.starts_with("nvidia")) {
    parsed = TRY(parse_node_name(id));
  } else if (auto index = id.empty() ? std::nullopt : small_number(id)) {
    parsed = {DeviceId::Kind::kIndex, "", *index, {}, ""};
  } else {
    return fail(Code::kInvalid, "'" + std::string(id) + "' is no device id that this exporter knows");
  }
  if (!replica.empty()) parsed.replica = std::move(replica);
  return parsed;
}

Attribution attribute(const std::vector<podresources::Use>& devices, const std::vector<GpuFacts>& gpus,
                      const PodMetas& metas, const AttributionRules& rules) {
  Attribution attribution;
  for (const podresources::Use& device : devices) {
    if (!wanted(device.resource, rules)) continue;
    auto meta = metas.find({device.ns, device.pod});
    if (meta != metas.end() && meta->second.ended) continue;
    auto id = parse_device_id(device.id);
    auto entity = id ? entity_of(*id, gpus, rules) : std::nullopt;
    if (!entity) {
      attribution.unmatched.push_back(device.id);
      continue;
    }
    ++attribution.matched;
    PodUse use{device.ns, device.pod, device.container, id->replica, "", {}};
    if (meta != metas.end()) {
      use.uid = meta->second.uid;
      use.labels = meta->second.labels;
    }
    attribution.uses[*entity].push_back(std::move(use));
  }
  for (auto& [entity, uses] : attribution.uses) {
    std::ranges::sort(uses, [](const PodUse& a, const PodUse& b) { return order(a) < order(b); });
    uses.erase(std::ranges::unique(uses).begin(), uses.end());
  }
  return attribution;
}

std::string label_name(std::string_view key) {
  std::string name;
  for (char c : key) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    name += plain ? c : '_';
  }
  if (!name.empty() && name.front() >= '0' && name.front() <= '9') name.insert(0, "_");
  return name;
}

}  // namespace gpuop::telemetry
