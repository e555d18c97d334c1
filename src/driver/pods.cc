#include "driver/pods.h"

#include <algorithm>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::driver {

namespace {

constexpr std::string_view kPrefix = "nvidia.com/gpu.deploy.";
constexpr std::string_view kPaused = "paused-for-driver-upgrade";

std::string name_text(const Json& pod) {
  return str(kube::namespace_of(pod)) + "/" + str(kube::name_of(pod));
}

bool asks_for_gpu(const JsonArray& containers) {
  for (const auto& container : containers) {
    for (std::string_view which : {"requests", "limits"}) {
      for (const auto& member : get_object(container, {"resources", which})) {
        std::string_view name = member.key();
        bool ours = name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
        if (ours && as_text(member.value()) != "0" && member.value() != Json(0)) return true;
      }
    }
  }
  return false;
}

bool has_empty_dir(const Json& pod) {
  return std::ranges::any_of(get_array(pod, {"spec", "volumes"}),
                             [](const Json& volume) { return has(volume, {"emptyDir"}); });
}

}  // namespace

const std::vector<std::string>& operand_labels() {
  static const std::vector<std::string> names = {"operator-validator",
                                                 "container-toolkit",
                                                 "device-plugin",
                                                 "gpu-feature-discovery",
                                                 "dcgm-exporter",
                                                 "dcgm",
                                                 "mig-manager",
                                                 "nvsm",
                                                 "sandbox-validator",
                                                 "sandbox-device-plugin",
                                                 "vgpu-device-manager",
                                                 "client",
                                                 "dra-driver",
                                                 "dra-validator",
                                                 "dcgm-dra",
                                                 "dcgm-exporter-dra"};
  return names;
}

std::string operand_label(std::string_view operand) {
  return std::string(kPrefix) + std::string(operand);
}

std::string paused(std::string_view value) {
  if (value.empty() || value == "false" || value.find(kPaused) != std::string_view::npos)
    return std::string(value);
  if (value == "true") return std::string(kPaused);
  return std::string(value) + "_" + std::string(kPaused);
}

std::string restored(std::string_view value) {
  if (value == kPaused) return "true";
  auto at = value.find(kPaused);
  if (at == std::string_view::npos) return std::string(value);
  std::string text = std::string(value.substr(0, at)) + std::string(value.substr(at + kPaused.size()));
  while (text.starts_with('_')) text.erase(0, 1);
  while (text.ends_with('_')) text.pop_back();
  return text;
}

std::map<std::string, std::string> changed_labels(const Json& node, const std::string& extra,
                                                  std::string (*change)(std::string_view)) {
  std::vector<std::string> names;
  for (const auto& operand : operand_labels()) names.push_back(operand_label(operand));
  if (!extra.empty()) names.push_back(extra);
  std::map<std::string, std::string> changes;
  for (const auto& name : names) {
    std::string_view now = kube::label(node, name);
    if (now.empty()) continue;
    if (std::string next = change(now); next != now) changes.emplace(name, next);
  }
  return changes;
}

std::vector<std::string> waited_apps(const Json& node) {
  std::vector<std::string> apps = {"nvidia-operator-validator",
                                   "nvidia-container-toolkit-daemonset",
                                   "nvidia-device-plugin-daemonset",
                                   "nvidia-device-plugin-mps-control-daemon",
                                   "gpu-feature-discovery",
                                   "nvidia-dcgm-exporter",
                                   "nvidia-dcgm",
                                   "nvidia-dcgm-exporter-dra",
                                   "nvidia-dcgm-dra"};
  const std::pair<const char*, const char*> optional[] = {
      {"mig-manager", "nvidia-mig-manager"},
      {"sandbox-validator", "nvidia-sandbox-validator"},
      {"sandbox-device-plugin", "nvidia-sandbox-device-plugin-daemonset"},
      {"vgpu-device-manager", "nvidia-vgpu-device-manager"}};
  for (auto [operand, app] : optional) {
    if (!kube::label(node, operand_label(operand)).empty()) apps.emplace_back(app);
  }
  return apps;
}

bool is_waited_for(const Json& pod, const std::string& ns, const std::vector<std::string>& apps,
                   bool clients) {
  std::string_view app = kube::label(pod, "app");
  if (kube::namespace_of(pod) == ns && std::ranges::find(apps, app) != apps.end()) return true;
  const Json* owner = kube::controller_of(pod);
  bool of_daemon_set = owner != nullptr && get_string(*owner, {"kind"}) == "DaemonSet";
  return clients && of_daemon_set && has(pod, {"spec", "nodeSelector", operand_label("client")});
}

bool uses_gpu(const Json& pod) {
  return asks_for_gpu(get_array(pod, {"spec", "containers"})) ||
         asks_for_gpu(get_array(pod, {"spec", "initContainers"}));
}

bool is_finished(const Json& pod) {
  std::string_view phase = get_string(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

DrainPlan plan_drain(const std::vector<Json>& pods, const DrainRules& rules) {
  DrainPlan plan;
  auto selector = kube::LabelSelector::parse(rules.selector);
  for (const auto& pod : pods) {
    if (is_finished(pod)) continue;
    if (rules.only_gpu_pods
            ? !uses_gpu(pod)
            : selector && !selector->empty() && !selector->matches(get_object(pod, {"metadata", "labels"}))) {
      continue;
    }
    const Json* owner = kube::controller_of(pod);
    bool of_daemon_set = owner != nullptr && get_string(*owner, {"kind"}) == "DaemonSet";
    bool mirror = !kube::annotation(pod, "kubernetes.io/config.mirror").empty();
    if (of_daemon_set || mirror) {
      plan.left.push_back(name_text(pod));
    } else if (owner == nullptr && !rules.force) {
      plan.blockers.push_back(name_text(pod) +
                              ": no controller would start it again (DRAIN_USE_FORCE allows it)");
    } else if (has_empty_dir(pod) && !rules.delete_empty_dir) {
      plan.blockers.push_back(name_text(pod) +
                              ": it has emptyDir volumes (DRAIN_DELETE_EMPTYDIR_DATA allows it)");
    } else {
      plan.evict.push_back(pod);
    }
  }
  return plan;
}

}  // namespace gpuop::driver
