#include "operator/node_labels.h"

#include <set>

#include "base/text.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kPresent = "nvidia.com/gpu.present";
constexpr std::string_view kDeploy = "nvidia.com/gpu.deploy.";
constexpr std::string_view kOperands = "nvidia.com/gpu.deploy.operands";
constexpr std::string_view kWorkload = "nvidia.com/gpu.workload.config";
constexpr std::string_view kOstree = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION";
constexpr std::string_view kFeature = "feature.node.kubernetes.io/";
constexpr std::string_view kUpgradeEnabled = "nvidia.com/gpu-driver-upgrade-enabled";

// Every state label that any workload mode uses: what may be swept (§4.2).
constexpr std::string_view kStates[] = {
    "driver",
    "gpu-feature-discovery",
    "container-toolkit",
    "device-plugin",
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
    "client",
    "mig-manager",
    "sandbox-device-plugin",
    "kata-sandbox-device-plugin",
    "vgpu-manager",
    "vgpu-device-manager",
    "sandbox-validator",
    "vfio-manager",
    "kata-manager",
    "cc-manager",
};

constexpr std::string_view kDriverOwner = "nvidia.com/gpu-operator.driver.owner";
constexpr std::string_view kUpgradeLabels[] = {"nvidia.com/gpu-driver-upgrade-state", kDriverOwner};
constexpr std::string_view kUpgradeAnnotations[] = {
    "nvidia.com/gpu-driver-upgrade-enabled",
    "nvidia.com/gpu-driver-upgrade-requested",
    "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load",
    "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable",
    "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time",
    "nvidia.com/gpu-driver-upgrade-validation-start-time",
};

std::string_view text_of(const JsonObject& map, std::string_view key) {
  const Json* value = map.if_contains(key);
  return value ? as_text(*value) : std::string_view();
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// pci-[CLASS_]10de[_DEVICE][_SUBVENDOR][_SUBDEVICE].present, CLASS a display (03) or accelerator (12) class.
bool is_gpu_key(std::string_view key) {
  if (!key.starts_with(kFeature)) return false;
  key.remove_prefix(kFeature.size());
  if (!key.starts_with("pci-") || !key.ends_with(".present")) return false;
  key = key.substr(4, key.size() - 4 - 8);
  auto parts = split(key, '_');
  for (const auto& part : parts) {
    if (part.size() != 4 || !is_hex(part)) return false;
  }
  if (parts.front() != "10de") {
    if (!parts.front().starts_with("03") && !parts.front().starts_with("12")) return false;
    parts.erase(parts.begin());
    if (parts.empty() || parts.front() != "10de") return false;
  }
  return parts.size() <= 4;
}

std::set<std::string> wanted_states(const std::string& workload, const JsonObject& labels,
                                    const LabelRules& rules) {
  if (workload == "vm-passthrough") {
    return {rules.sandbox_mode == "kata" ? "kata-sandbox-device-plugin" : "sandbox-device-plugin",
            "sandbox-validator",
            "vfio-manager",
            "kata-manager",
            "cc-manager",
            "client"};
  }
  if (workload == "vm-vgpu") {
    return {"sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager",
            "sandbox-validator",     "cc-manager",   "client"};
  }
  std::set<std::string> wanted{
      "driver",        "gpu-feature-discovery", "container-toolkit",  "device-plugin", "dcgm",
      "dcgm-exporter", "node-status-exporter",  "operator-validator", "client"};
  if (mig_capable(labels)) wanted.insert("mig-manager");
  return wanted;
}

void remove_states(NodeChange& change, const JsonObject& labels) {
  for (auto state : kStates) {
    const std::string key = std::string(kDeploy) + std::string(state);
    if (labels.contains(key)) change.labels[key] = std::nullopt;
  }
}

void leave_gpu_duty(NodeChange& change, const JsonObject& labels, const JsonObject& annotations) {
  change.labels[std::string(kPresent)] = "false";
  remove_states(change, labels);
  for (auto key : kUpgradeLabels) {
    if (labels.contains(key)) change.labels[std::string(key)] = std::nullopt;
  }
  for (auto key : kUpgradeAnnotations) {
    if (annotations.contains(key)) change.annotations[std::string(key)] = std::nullopt;
  }
  change.reasons.emplace_back("feature discovery no longer reports an NVIDIA GPU");
}

}  // namespace

LabelRules label_rules(const policy::ClusterPolicySpec& spec) {
  LabelRules rules;
  rules.sandbox = spec.sandbox_workloads.enabled;
  if (!spec.sandbox_workloads.default_workload.empty())
    rules.default_workload = spec.sandbox_workloads.default_workload;
  rules.sandbox_mode = spec.sandbox_workloads.mode;
  rules.mig_manager = spec.mig_manager.enabled;
  rules.mig_default = spec.mig_manager.config.default_config;
  rules.auto_upgrade = spec.driver.enabled && spec.driver.upgrade_policy &&
                       spec.driver.upgrade_policy->auto_upgrade && !spec.sandbox_workloads.enabled;
  rules.taints = taint_rules(spec);
  return rules;
}

bool has_gpu_feature(const JsonObject& labels) {
  for (const auto& [key, value] : labels) {
    if (is_gpu_key(key) && as_text(value) == "true") return true;
  }
  return false;
}

bool has_feature_labels(const JsonObject& labels) {
  for (const auto& [key, value] : labels) {
    if (std::string_view(key).starts_with(kFeature)) return true;
  }
  return false;
}

std::string workload_of(const JsonObject& labels, const LabelRules& rules,
                        std::vector<std::string>& warnings) {
  if (!rules.sandbox) return "container";
  const auto wanted = text_of(labels, kWorkload);
  for (std::string_view known : {"container", "vm-passthrough", "vm-vgpu"}) {
    if (wanted == known) return std::string(known);
  }
  if (!wanted.empty()) {
    static const std::vector<std::string> kKnown{"container", "vm-passthrough", "vm-vgpu"};
    warnings.push_back(
        "label nvidia.com/gpu.workload.config: must be one of container, vm-passthrough, vm-vgpu; got '" +
        std::string(wanted) + "'" + did_you_mean(wanted, kKnown) + "; using " + rules.default_workload);
  }
  return rules.default_workload;
}

bool mig_capable(const JsonObject& labels) {
  if (!text_of(labels, "nvidia.com/vgpu.host-driver-version").empty()) return false;
  if (const Json* capable = labels.if_contains("nvidia.com/mig.capable")) return as_text(*capable) == "true";
  const std::string product = to_lower(text_of(labels, "nvidia.com/gpu.product"));
  for (std::string_view family : {"h100", "a100", "a30"}) {
    if (product.find(family) != std::string::npos) return true;
  }
  return false;
}

namespace {

bool upgrades_by_itself(const JsonObject& labels, const LabelRules& rules) {
  if (!rules.auto_upgrade_by_owner) return rules.auto_upgrade;
  const auto owner = rules.auto_upgrade_by_owner->find(std::string(text_of(labels, kDriverOwner)));
  return owner != rules.auto_upgrade_by_owner->end() && owner->second;
}

}  // namespace

NodeChange decide_node(const JsonObject& labels, const JsonObject& annotations, const LabelRules& rules,
                       std::optional<Duration> vanished_for) {
  NodeChange change;
  const bool present = text_of(labels, kPresent) == "true";
  if (!has_gpu_feature(labels)) {
    if (!present) return change;
    if (vanished_for.value_or(Duration::zero()) < kVanishGrace) {
      change.gpu = true;
      change.wait = kVanishGrace - vanished_for.value_or(Duration::zero());
      change.reasons.emplace_back(
          "feature discovery's GPU label is missing; waiting before anything is taken away");
      return change;
    }
    leave_gpu_duty(change, labels, annotations);
    return change;
  }
  change.gpu = true;
  if (!present) change.labels[std::string(kPresent)] = "true";
  if (text_of(labels, kOperands) == "false") {
    remove_states(change, labels);
    if (!change.labels.empty()) {
      change.warnings.emplace_back(
          "label nvidia.com/gpu.deploy.operands=false takes every operand off this node, the driver "
          "included");
    }
    change.reasons.emplace_back("nvidia.com/gpu.deploy.operands=false: no operands on this node");
  } else {
    const std::string workload = workload_of(labels, rules, change.warnings);
    const auto wanted = wanted_states(workload, labels, rules);
    for (const auto& state : wanted) {
      const std::string key = std::string(kDeploy) + state;
      if (text_of(labels, key).empty()) change.labels[key] = "true";
    }
    for (auto state : kStates) {
      const std::string key = std::string(kDeploy) + std::string(state);
      if (wanted.contains(std::string(state)) || !labels.contains(key)) continue;
      if (state == "mig-manager" && workload == "container") continue;  // §4.2: not swept for containers
      change.labels[key] = std::nullopt;
    }
    change.reasons.push_back("workload mode " + workload);
  }
  // Whatever runs there: what is not said to be partitioned is not (§4.4).
  if (rules.mig_manager && rules.mig_default == "all-disabled" && mig_capable(labels) &&
      text_of(labels, "nvidia.com/mig.config").empty()) {
    change.labels["nvidia.com/mig.config"] = "all-disabled";
  }
  const auto enabled = text_of(annotations, kUpgradeEnabled);
  const bool wanted = upgrades_by_itself(labels, rules);
  if (wanted && enabled != "true") change.annotations[std::string(kUpgradeEnabled)] = "true";
  if (!wanted && annotations.contains(kUpgradeEnabled)) {
    change.annotations[std::string(kUpgradeEnabled)] = std::nullopt;
  }
  return change;
}

bool concerns_labels(const JsonObject& before, const JsonObject& now) {
  const bool gpu = has_gpu_feature(now);
  // Missing, outdated, or not any more.
  if (gpu != (text_of(now, kPresent) == "true") || gpu != has_gpu_feature(before)) return true;
  const auto changed = [&](std::string_view key) { return text_of(before, key) != text_of(now, key); };
  if (changed(kPresent) || changed(kWorkload) || changed(kDriverOwner) || changed(kOstree)) return true;
  return (text_of(before, kOperands) == "false") != (text_of(now, kOperands) == "false") ||
         mig_capable(before) != mig_capable(now);
}

NodeChange decide_leave(const JsonObject& labels, const JsonObject& annotations) {
  NodeChange change;
  const auto drop = [&](std::string_view key) { change.labels[std::string(key)] = std::nullopt; };
  if (labels.contains(kPresent)) drop(kPresent);
  for (auto state : kStates) {
    const std::string key = std::string(kDeploy) + std::string(state);
    if (!labels.contains(key)) continue;
    const auto value = text_of(labels, key);
    // The paused and found ones are written by drivers' and MIG managers (§4.5).
    if (value.empty() || value == "true" || value == "pre-installed" || value.starts_with("paused-for-"))
      drop(key);
  }
  if (text_of(labels, "nvidia.com/mig.config") == "all-disabled") drop("nvidia.com/mig.config");
  if (labels.contains("nvidia.com/mig.config.state")) drop("nvidia.com/mig.config.state");
  for (auto key : kUpgradeLabels) {
    if (labels.contains(key)) drop(key);
  }
  for (auto key : kUpgradeAnnotations) {
    if (annotations.contains(key)) change.annotations[std::string(key)] = std::nullopt;
  }
  return change;
}

Json node_patch(const NodeChange& change) {
  JsonObject metadata;
  const auto add = [&metadata](std::string_view key,
                               const std::map<std::string, std::optional<std::string>>& values) {
    if (values.empty()) return;
    JsonObject object;
    for (const auto& [name, value] : values) object[name] = value ? Json(*value) : Json(nullptr);
    metadata[key] = std::move(object);
  };
  add("labels", change.labels);
  add("annotations", change.annotations);
  return JsonObject{{"metadata", std::move(metadata)}};
}

}  // namespace gpuop::op
