#include <algorithm>

#include "base/text.h"
#include "operator/pod.h"
#include "operator/shape.h"
#include "operator/taints.h"

namespace gpuop::op {

namespace {

constexpr std::string_view kDefaultDriverDir = "/run/nvidia/driver";
const Json kRootUser = 0;

void set_path(Json& pod, std::string_view volume, const std::string& path) {
  if (Json* found = find_volume(pod, volume)) set(*found, {"hostPath", "path"}, path);
}

// A count, or a percentage as text.
Result<Json> max_unavailable(const std::string& text) {
  bool percent = text.ends_with('%');
  std::string digits = percent ? text.substr(0, text.size() - 1) : text;
  std::optional<std::int64_t> count = parse_int(digits);
  if (!count || *count < 0)
    return fail(
        Code::kInvalid,
        "spec.daemonsets.rollingUpdate.maxUnavailable: must be a count or a percentage; got '" + text + "'");
  if (percent) return Json(text);
  return Json(*count);
}

void merge_metadata(Json& object, Keys keys, const policy::StringMap& add, bool labels) {
  if (add.empty()) return;
  Json& map = ensure(object, keys);
  if (!map.is_object()) map = JsonObject{};
  for (const auto& [key, value] : add) {
    if (labels && (key == "app" || key == "app.kubernetes.io/part-of")) continue;
    map.get_object()[key] = value;
  }
  if (map.get_object().empty()) remove(object, keys);
}

}  // namespace

Result<> shape_common(const View& view, Json& daemonset) {
  const policy::DaemonsetsSpec& common = view.spec.daemonsets;
  bool driver = get_string(daemonset, {"metadata", "name"}).starts_with("nvidia-driver-daemonset");
  if (common.update_strategy == "OnDelete") {
    set(daemonset, {"spec", "updateStrategy"}, JsonObject{{"type", "OnDelete"}});
  } else if (!common.rolling_update.max_unavailable.empty()) {
    Json limit = TRY(max_unavailable(common.rolling_update.max_unavailable));
    if (!driver)
      set(daemonset, {"spec", "updateStrategy"},
          JsonObject{{"type", "RollingUpdate"},
                     {"rollingUpdate", JsonObject{{"maxUnavailable", std::move(limit)}}}});
  }
  Json& pod = pod_spec(daemonset);
  if (!common.priority_class_name.empty()) set(pod, {"priorityClassName"}, common.priority_class_name);
  if (!common.tolerations.empty()) set(pod, {"tolerations"}, common.tolerations);
  tolerate(pod, view.facts.own_taints);
  if (common.pod_security_context.is_object()) set(pod, {"securityContext"}, common.pod_security_context);
  return {};
}

void shape_host_paths(const View& view, Json& daemonset) {
  const policy::HostPaths& paths = view.spec.host_paths;
  Json& pod = pod_spec(daemonset);
  const std::string& root = paths.root_fs;
  if (!root.empty() && root != "/") {
    if (find_volume(pod, "host-root")) {
      set_path(pod, "host-root", root);
      for (Json* container : all_containers(pod)) set_env(*container, "HOST_ROOT", root);
    }
    set_path(pod, "host-dev-char", (fs::path(root) / "dev/char").string());
  }
  const std::string& driver = paths.driver_install_dir;
  if (!driver.empty() && driver != kDefaultDriverDir) {
    set_path(pod, "driver-install-dir", driver);
    if (Json* check = find_container(pod, "initContainers", "driver-validation")) {
      set_env(*check, "DRIVER_INSTALL_DIR", driver);
      set_env(*check, "DRIVER_INSTALL_DIR_CTR_PATH", driver);
      for (Json& mount : ensure(*check, {"volumeMounts"}).get_array())
        if (get_string(mount, {"name"}) == "driver-install-dir") set(mount, {"mountPath"}, driver);
    }
  }
  fs::path kubelet = paths.kubelet_root_dir.empty() ? "/var/lib/kubelet" : paths.kubelet_root_dir;
  if (kubelet != "/var/lib/kubelet") {
    set_path(pod, "pod-gpu-resources", (kubelet / "pod-resources").string());
    set_path(pod, "device-plugin", (kubelet / "device-plugins").string());
  }
}

Result<> shape_validations(const View& view, Json& daemonset) {
  const policy::ValidatorSpec& validator = view.spec.validator;
  Json& pod = pod_spec(daemonset);
  Json* list = find_mutable(pod, {"initContainers"});
  if (!list || !list->is_array()) return {};
  for (std::size_t i = 0; i < list->get_array().size(); ++i) {
    Json& container = list->get_array()[i];
    std::string name = str(get_string(container, {"name"}));
    if (!name.contains("validation")) continue;
    set_image(pod, container, TRY(resolve_image(validator, "validator", "VALIDATOR_IMAGE", view.facts.env)),
              validator);
    set_resources(container, validator.resources);
    set(container, {"securityContext", "runAsUser"}, kRootUser);
    if (name.starts_with("driver")) set_env(container, validator.driver.env);
    if (name.starts_with("toolkit")) set_env(container, validator.toolkit.env);
  }
  return {};
}

void shape_runtime_class(const View& view, Json& daemonset, std::string_view container) {
  const policy::CdiSpec& cdi = view.spec.cdi;
  if (cdi.nri_plugin_enabled) {
    std::string key = "nvidia.cdi.k8s.io/container." + std::string(container);
    ensure(daemonset, {"spec", "template", "metadata", "annotations"});
    set(daemonset, {"spec", "template", "metadata", "annotations", key}, "management.nvidia.com/gpu=all");
    return;
  }
  if (!cdi.enabled && view.facts.runtime == "crio") return;
  const std::string& name = view.spec.op.runtime_class;
  set(pod_spec(daemonset), {"runtimeClassName"}, name.empty() ? "nvidia" : name);
}

void shape_metadata(const View& view, Json& daemonset) {
  const policy::DaemonsetsSpec& common = view.spec.daemonsets;
  merge_metadata(daemonset, {"spec", "template", "metadata", "labels"}, common.labels, true);
  merge_metadata(daemonset, {"spec", "template", "metadata", "annotations"}, common.annotations, false);
  merge_metadata(daemonset, {"metadata", "labels"}, common.labels, true);
  merge_metadata(daemonset, {"metadata", "annotations"}, common.annotations, false);
}

Result<> shape_main(const View& view, Json& daemonset, std::string_view name, const policy::Operand& operand,
                    std::string_view what, std::string_view variable, bool env, bool args) {
  Json& pod = pod_spec(daemonset);
  Json* container = find_container(pod, "containers", name);
  if (!container)
    return fail(Code::kInvalid, "shape DaemonSet '" + str(get_string(daemonset, {"metadata", "name"})) +
                                    "': its manifest has no container '" + std::string(name) + "'");
  set_image(pod, *container, TRY(resolve_image(operand, what, variable, view.facts.env)), operand);
  set_resources(*container, operand.resources);
  if (args) set_args(*container, operand.args);
  if (env) set_env(*container, operand.env);
  if (operand.host_network) use_host_network(pod);
  return {};
}

}  // namespace gpuop::op
