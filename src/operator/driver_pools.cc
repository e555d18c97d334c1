#include "operator/driver_pools.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kFeature = "feature.node.kubernetes.io/";
constexpr std::string_view kReconcileFailed = "ReconcileFailed";

std::string label_of(const JsonObject& labels, std::string_view key) {
  const Json* value = labels.if_contains(key);
  return value ? str(as_text(*value)) : "";
}

bool selects(const policy::NvidiaDriver& driver, const DriverNode& node) {
  return std::ranges::all_of(driver.spec.node_selector, [&](const auto& entry) {
    const Json* value = node.labels.if_contains(entry.first);
    return value && as_text(*value) == entry.second;
  });
}

void refuse_by_itself(const policy::NvidiaDriver& driver, DriverOwnership& out) {
  if (driver.spec.node_selector.contains(std::string(kDriverOwner))) {
    out.refused[driver.name] = {str(kReconcileFailed),
                                "spec.nodeSelector: the label " + std::string(kDriverOwner) +
                                    " is the operator's own and cannot be selected by"};
  } else if (driver.spec.is_default && !driver.spec.node_selector.empty()) {
    out.refused[driver.name] = {str(kReconcileFailed), "default NVIDIADriver must not use nodeSelector"};
  }
}

void refuse_several_defaults(const std::vector<policy::NvidiaDriver>& drivers, DriverOwnership& out) {
  std::vector<std::string> defaults;
  for (const auto& driver : drivers) {
    if (driver.spec.is_default) defaults.push_back(driver.name);
  }
  if (defaults.size() < 2) return;
  std::ranges::sort(defaults);
  for (const auto& driver : drivers)
    out.refused[driver.name] = {
        str(kReconcileFailed),
        "only one NVIDIADriver may have spec.default=true; these have: " + join(defaults, ", ")};
}

// The digits of a hash as upstream's names have them: letters that spell nothing.
std::string safe_hash(const std::string& text) {
  constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  std::string out = std::to_string(fnv1a32(text));
  for (char& c : out) c = kAlphabet[static_cast<unsigned char>(c) % kAlphabet.size()];
  return out;
}

}  // namespace

DriverOwnership decide_ownership(const std::vector<policy::NvidiaDriver>& drivers,
                                 const std::vector<DriverNode>& nodes) {
  DriverOwnership out;
  for (const auto& driver : drivers) refuse_by_itself(driver, out);
  refuse_several_defaults(drivers, out);
  std::set<std::string> left_alone;
  for (const auto& node : nodes) {
    std::vector<std::string> claimants;
    std::string fallback;
    for (const auto& driver : drivers) {
      if (driver.spec.is_default) {
        fallback = driver.name;
      } else if (selects(driver, node)) {
        claimants.push_back(driver.name);
      }
    }
    std::ranges::sort(claimants);
    if (claimants.size() > 1) {
      for (const auto& name : claimants) {
        if (out.refused.contains(name)) continue;
        out.refused[name] = {
            "ConflictingNodeSelector",
            "node '" + node.name + "' is selected by several NVIDIADrivers: " + join(claimants, ", ")};
      }
    }
    if (claimants.empty() && !fallback.empty()) claimants.push_back(fallback);
    out.owner[node.name] = claimants.empty() ? "" : claimants.front();
    if (claimants.size() > 1) left_alone.insert(node.name);
  }
  // A resource that is refused moves no label: neither the nodes that it would get nor those that it has.
  for (const auto& node : nodes) {
    if (out.refused.contains(out.owner[node.name]) ||
        out.refused.contains(label_of(node.labels, kDriverOwner)))
      left_alone.insert(node.name);
  }
  for (const auto& name : left_alone) out.owner.erase(name);
  return out;
}

std::vector<DriverPool> driver_pools(const policy::NvidiaDriverSpec& spec,
                                     const std::vector<DriverNode>& owned, bool openshift,
                                     std::vector<std::string>& warnings) {
  const std::string id_key = std::string(kFeature) + "system-os_release.ID";
  const std::string version_key = std::string(kFeature) + "system-os_release.VERSION_ID";
  const std::string kernel_key = std::string(kFeature) + "kernel-version.full";
  const std::string ostree_key = std::string(kFeature) + "system-os_release.OSTREE_VERSION";
  std::map<std::tuple<std::string, std::string, std::string>, DriverPool> pools;
  for (const auto& node : owned) {
    DriverPool pool;
    auto need = [&](const std::string& key) {
      std::string value = label_of(node.labels, key);
      if (value.empty())
        warnings.push_back("node '" + node.name + "' gets no driver: it lacks the label " + key);
      return value;
    };
    pool.os_id = need(id_key);
    pool.os_version = need(version_key);
    if (spec.use_precompiled) pool.kernel = need(kernel_key);
    if (openshift && !spec.use_precompiled) pool.rhcos = need(ostree_key);
    if (pool.os_id.empty() || pool.os_version.empty() || (spec.use_precompiled && pool.kernel.empty()) ||
        (openshift && !spec.use_precompiled && pool.rhcos.empty()))
      continue;
    pool.os_tag = os_tag({node.name, pool.os_id, pool.os_version, "", ""});
    pool.selector[id_key] = pool.os_id;
    // A tag without the minor version stands for every minor version.
    if (pool.os_tag == pool.os_id + pool.os_version) {
      pool.selector[version_key] = pool.os_version;
    } else {
      pool.selector[version_key + ".major"] = pool.os_version.substr(0, pool.os_version.find('.'));
    }
    if (!pool.kernel.empty()) pool.selector[kernel_key] = pool.kernel;
    if (!pool.rhcos.empty()) pool.selector[ostree_key] = pool.rhcos;
    pools.emplace(std::tuple(pool.os_tag, pool.kernel, pool.rhcos), pool);
  }
  std::vector<DriverPool> out;
  for (auto& [key, pool] : pools) out.push_back(std::move(pool));
  return out;
}

std::string pool_name(const policy::NvidiaDriver& driver, const DriverPool& pool) {
  const std::string& part = pool.kernel.empty() ? pool.rhcos : pool.kernel;
  const std::string hash = safe_hash(driver.uid + (part.empty() ? "" : "-" + part));
  std::string prefix = "nvidia-" + driver.spec.driver_type + "-driver-" + pool.os_tag;
  constexpr std::size_t kLimit = 63;
  if (prefix.size() + 1 + hash.size() > kLimit) prefix.resize(kLimit - 1 - hash.size());
  return prefix + "-" + hash;
}

std::string pool_account(const policy::NvidiaDriver& driver, const DriverPool& pool) {
  const bool vgpu = driver.spec.driver_type == "vgpu-host-manager";
  std::string name = (vgpu ? "nvidia-vgpu-manager-" : "nvidia-" + driver.spec.driver_type + "-driver-") +
                     driver.name + "-" + pool.os_tag;
  return name.substr(0, 253);
}

std::vector<std::string> config_map_refs(const policy::NvidiaDriverSpec& spec) {
  std::set<std::string> names = {spec.kernel_module_config.name};
  if (!spec.use_precompiled) names.insert({spec.repo_config.name, spec.cert_config.name});
  names.erase("");
  return {names.begin(), names.end()};
}

std::vector<std::string> secret_refs(const policy::NvidiaDriverSpec& spec) {
  return spec.secret_env.empty() ? std::vector<std::string>{} : std::vector<std::string>{spec.secret_env};
}

}  // namespace gpuop::op
