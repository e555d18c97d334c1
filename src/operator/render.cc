#include "operator/render.h"

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "operator/driver_parts.h"
#include "operator/pod.h"
#include "operator/shape.h"

namespace gpuop::op {

namespace {

constexpr std::string_view kPlaceholderNamespace = "gpu-operator";  // what the manifests carry

struct StateRule {
  std::string_view name;
  bool (*enabled)(const policy::ClusterPolicySpec& spec);
  Result<> (*shape)(const View& view, Json& daemonset);  // null: no DaemonSet, or the driver's own way
  std::string_view reason;                               // why it is off, when it is
};

bool sandbox(const policy::ClusterPolicySpec& s) {
  return s.sandbox_workloads.enabled;
}
bool kata(const policy::ClusterPolicySpec& s) {
  return sandbox(s) && s.sandbox_workloads.mode == "kata";
}
bool always(const policy::ClusterPolicySpec&) {
  return true;
}
bool never(const policy::ClusterPolicySpec&) {
  return false;
}

using Spec = policy::ClusterPolicySpec;

// operator.md §3.1, in its order.
const StateRule kStates[] = {
    {"pre-requisites", [](const Spec& s) { return !s.cdi.nri_plugin_enabled; }, nullptr,
     "spec.cdi.nriPluginEnabled is true: the runtime needs no RuntimeClass"},
    {"state-operator-metrics", always, nullptr, ""},
    {"state-driver", [](const Spec& s) { return s.driver.enabled && !s.driver.use_nvidia_driver_crd; },
     nullptr, "spec.driver.enabled is false"},
    {"state-container-toolkit", [](const Spec& s) { return s.toolkit.enabled; }, shape_toolkit,
     "spec.toolkit.enabled is false"},
    {"state-operator-validation", always, shape_validator, ""},
    {"state-device-plugin", [](const Spec& s) { return s.device_plugin.enabled; }, shape_device_plugin,
     "spec.devicePlugin.enabled is false"},
    {"state-mps-control-daemon", [](const Spec& s) { return s.device_plugin.enabled; }, shape_mps,
     "spec.devicePlugin.enabled is false"},
    {"state-dcgm", [](const Spec& s) { return s.dcgm.enabled; }, shape_dcgm, "spec.dcgm.enabled is false"},
    {"state-dcgm-exporter", [](const Spec& s) { return s.dcgm_exporter.enabled; }, shape_dcgm_exporter,
     "spec.dcgmExporter.enabled is false"},
    {"gpu-feature-discovery", [](const Spec& s) { return s.gfd.enabled; }, shape_gfd,
     "spec.gfd.enabled is false"},
    {"state-mig-manager", [](const Spec& s) { return s.mig_manager.enabled; }, shape_mig_manager,
     "spec.migManager.enabled is false"},
    {"state-node-status-exporter", [](const Spec& s) { return s.node_status_exporter.enabled; },
     shape_node_status_exporter, "spec.nodeStatusExporter.enabled is false"},
    {"state-vgpu-manager",
     [](const Spec& s) { return sandbox(s) && s.vgpu_manager.enabled && !s.driver.use_nvidia_driver_crd; },
     nullptr,
     "spec.sandboxWorkloads.enabled or spec.vgpuManager.enabled is false, or NVIDIADriver resources manage "
     "vGPU "
     "managers"},
    {"state-vgpu-device-manager", [](const Spec& s) { return sandbox(s) && s.vgpu_device_manager.enabled; },
     shape_vgpu_device_manager, "spec.sandboxWorkloads.enabled or spec.vgpuDeviceManager.enabled is false"},
    {"state-sandbox-validation", sandbox, shape_sandbox_validator, "spec.sandboxWorkloads.enabled is false"},
    {"state-vfio-manager", [](const Spec& s) { return sandbox(s) && s.vfio_manager.enabled; },
     shape_vfio_manager, "spec.sandboxWorkloads.enabled or spec.vfioManager.enabled is false"},
    {"state-sandbox-device-plugin",
     [](const Spec& s) { return sandbox(s) && !kata(s) && s.sandbox_device_plugin.enabled; },
     shape_sandbox_device_plugin,
     "spec.sandboxWorkloads.enabled or spec.sandboxDevicePlugin.enabled is false, or "
     "spec.sandboxWorkloads.mode is "
     "not kubevirt"},
    {"state-kata-device-plugin",
     [](const Spec& s) { return kata(s) && s.kata_sandbox_device_plugin.enabled; }, shape_kata_device_plugin,
     "spec.sandboxWorkloads.enabled or spec.kataSandboxDevicePlugin.enabled is false, or "
     "spec.sandboxWorkloads.mode "
     "is not kata"},
    {"state-kata-manager", never, nullptr, "deprecated; its objects are only removed"},
    {"state-cc-manager", [](const Spec& s) { return kata(s) && s.cc_manager.enabled; }, shape_cc_manager,
     "spec.sandboxWorkloads.enabled or spec.ccManager.enabled is false, or spec.sandboxWorkloads.mode is not "
     "kata"},
};

// vX.Y of the API server, for the few objects whose version depends on it.
bool at_most_1_20_0(std::string_view version) {
  if (version.starts_with('v')) version.remove_prefix(1);
  std::vector<std::string> parts = split(version, '.');
  if (parts.size() < 3) return false;
  std::optional<std::int64_t> major = parse_int(parts[0]), minor = parse_int(parts[1]);
  if (!major || !minor || *major != 1) return false;
  return *minor < 20 || (*minor == 20 && parts[2].starts_with("0"));
}

class Renderer {
 public:
  Renderer(const policy::ClusterPolicy& policy, const ClusterFacts& facts, const Assets& assets)
      : view_{policy, policy.spec, facts}, assets_(assets) {}

  State render(const StateRule& rule) {
    State state;
    state.name = rule.name;
    state.enabled = rule.enabled(view_.spec);
    if (state.name == "state-kata-manager") {
      leave_kata(state);
      state.reasons.emplace_back(rule.reason);
      return state;
    }
    auto found = assets_.states.find(state.name);
    if (found == assets_.states.end()) {
      if (state.enabled)
        state.error = Error(Code::kNotFound, "render " + state.name + ": its manifests are missing");
      return state;
    }
    if (is_driver(state)) sweep_drivers(state);
    if (!state.enabled) {
      state.reasons.emplace_back(rule.reason);
      if (is_driver(state) && hands_over(state)) {
        state.reasons = {"spec.driver.useNvidiaDriverCRD is true: NVIDIADriver resources manage drivers"};
        return state;
      }
      for (const Manifest& manifest : found->second)
        if (exists_here(manifest)) state.absent.push_back(ref_of(placed(manifest.object)));
      return state;
    }
    for (const Manifest& manifest : found->second) {
      if (!exists_here(manifest)) continue;
      if (Result<> done = add(state, rule, manifest); !done) {
        state.error = std::move(done).error();
        state.objects.clear();
        state.absent.clear();
        state.sweeps.clear();
        return state;
      }
    }
    return state;
  }

 private:
  // What operators before 26.7 made for the Kata manager.
  void leave_kata(State& state) const {
    const std::string& space = view_.facts.operator_namespace;
    const std::string name = "nvidia-kata-manager", rbac = "rbac.authorization.k8s.io/v1";
    state.absent = {{"apps/v1", "DaemonSet", space, name},
                    {"v1", "ConfigMap", space, name + "-config"},
                    {"v1", "ConfigMap", space, name + "-entrypoint"},
                    {rbac, "ClusterRoleBinding", "", name},
                    {rbac, "RoleBinding", space, name},
                    {rbac, "ClusterRole", "", name},
                    {rbac, "Role", space, name},
                    {"v1", "ServiceAccount", space, name}};
    for (const std::string& each : view_.facts.kata_runtime_classes)
      state.absent.push_back({"node.k8s.io/v1", "RuntimeClass", "", each});
  }

  // The driver of containers or of virtual GPUs: DaemonSets by OS and kernel, handed over to NVIDIADriver
  // resources.
  static bool is_driver(const State& state) {
    return state.name == "state-driver" || state.name == "state-vgpu-manager";
  }
  bool hands_over(const State& state) const {
    const Spec& spec = view_.spec;
    const bool wanted =
        state.name == "state-driver" ? spec.driver.enabled : sandbox(spec) && spec.vgpu_manager.enabled;
    return wanted && spec.driver.use_nvidia_driver_crd;
  }

  void sweep_drivers(State& state) const {
    state.sweeps.push_back({.name_prefix = state.name == "state-driver" ? "nvidia-driver-daemonset"
                                                                        : "nvidia-vgpu-manager-daemonset",
                            .orphan_pods = hands_over(state)});
  }

  // Whether the cluster has a place for such an object at all.
  bool exists_here(const Manifest& manifest) const {
    if (manifest.openshift_only() && !view_.facts.openshift()) return false;
    std::string_view kind = get_string(manifest.object, {"kind"});
    if (kind == "ServiceMonitor") return view_.facts.has_service_monitors;
    if (kind == "PrometheusRule") return view_.facts.has_prometheus_rules;
    return true;
  }

  // The manifest in the operator's namespace, owned by the policy.
  Json placed(const Json& manifest) const {
    Json object = manifest;
    const std::string& space = view_.facts.operator_namespace;
    std::string_view kind =
        get_string(manifest, {"kind"});  // not of `object`, whose members move as it grows
    place(object, space, {"nvidia.com/v1", "ClusterPolicy", view_.policy.name, view_.policy.uid});
    if (Json* subjects = find_mutable(object, {"subjects"}); subjects && subjects->is_array())
      for (Json& subject : subjects->get_array())
        if (get_string(subject, {"namespace"}) == kPlaceholderNamespace) set(subject, {"namespace"}, space);
    if (kind == "SecurityContextConstraints")
      set(object, {"users"},
          JsonArray{
              Json("system:serviceaccount:" + space + ":" + str(get_string(object, {"metadata", "name"})))});
    if (kind == "ServiceMonitor")
      set(object, {"spec", "namespaceSelector", "matchNames"}, JsonArray{Json(space)});
    if (kind == "RuntimeClass") {
      if (get_string(object, {"metadata", "name"}) == "nvidia" && !view_.spec.op.runtime_class.empty()) {
        set(object, {"metadata", "name"}, view_.spec.op.runtime_class);
        set(object, {"handler"}, view_.spec.op.runtime_class);
      }
      if (at_most_1_20_0(view_.facts.kubernetes_version)) set(object, {"apiVersion"}, "node.k8s.io/v1beta1");
    }
    return object;
  }

  Result<> add(State& state, const StateRule& rule, const Manifest& manifest) {
    std::string_view kind = get_string(manifest.object, {"kind"});
    if (kind == "DaemonSet") return add_daemonsets(state, rule, manifest.object);
    Json object = placed(manifest.object);
    if (!gate(state, object)) return {};
    if (kind == "ServiceMonitor") shape_service_monitor(state.name, object);
    if (kind == "Service" && state.name == "state-dcgm-exporter") shape_exporter_service(object);
    state.objects.push_back(std::move(object));
    return {};
  }

  // Objects with a gate of their own; answers whether the object is wanted.
  bool gate(State& state, const Json& object) const {
    std::string_view kind = get_string(object, {"kind"}), name = get_string(object, {"metadata", "name"});
    auto gone = [&](bool wanted, std::string reason) {
      if (wanted) return true;
      state.absent.push_back(ref_of(object));
      state.reasons.push_back(std::move(reason));
      return false;
    };
    if (kind == "RuntimeClass" && (name == "nvidia-cdi" || name == "nvidia-legacy") &&
        name != view_.spec.op.runtime_class)
      return gone(view_.spec.cdi.enabled,
                  "RuntimeClass " + std::string(name) + ": spec.cdi.enabled is false");
    if (name == "nvidia-dcgm-exporter-read-pods")
      return gone(wants_pod_metadata(view_.spec.dcgm_exporter),
                  std::string(kind) + " " + std::string(name) + ": no pod metadata is asked for");
    if (kind == "ServiceMonitor" && state.name == "state-dcgm-exporter") {
      const auto& monitor = view_.spec.dcgm_exporter.service_monitor;
      return gone(monitor && monitor->enabled,
                  "ServiceMonitor: spec.dcgmExporter.serviceMonitor.enabled is not true");
    }
    if (kind != "ConfigMap") return true;
    // A default that the user replaced is not made; one that is there is left alone.
    auto replaced = [&](std::string_view default_name, const std::string& chosen) {
      return name == default_name && !chosen.empty() && chosen != default_name;
    };
    return !replaced("default-mig-parted-config", view_.spec.mig_manager.config.name) &&
           !replaced("default-gpu-clients", view_.spec.mig_manager.gpu_clients_config.name) &&
           !replaced("default-vgpu-devices-config", view_.spec.vgpu_device_manager.config.name);
  }

  void shape_service_monitor(const std::string& state, Json& object) const {
    const std::optional<policy::ServiceMonitor>* monitor = nullptr;
    if (state == "state-dcgm-exporter") monitor = &view_.spec.dcgm_exporter.service_monitor;
    if (state == "state-operator-metrics") monitor = &view_.spec.op.metrics.service_monitor;
    if (!monitor || !*monitor) return;
    const policy::ServiceMonitor& wish = **monitor;
    for (const auto& [key, value] : wish.additional_labels) set(object, {"metadata", "labels", key}, value);
    for (Json& endpoint : ensure(object, {"spec", "endpoints"}).get_array()) {
      if (!wish.interval.empty()) set(endpoint, {"interval"}, wish.interval);
      if (!wish.scrape_timeout.empty()) set(endpoint, {"scrapeTimeout"}, wish.scrape_timeout);
      if (wish.honor_labels) set(endpoint, {"honorLabels"}, *wish.honor_labels);
      if (!wish.relabelings.empty()) set(endpoint, {"relabelings"}, wish.relabelings);
    }
  }

  void shape_exporter_service(Json& object) const {
    const auto& service = view_.spec.dcgm_exporter.service;
    if (!service.type.empty()) set(object, {"spec", "type"}, service.type);
    if (!service.internal_traffic_policy.empty())
      set(object, {"spec", "internalTrafficPolicy"}, service.internal_traffic_policy);
  }

  Result<> add_daemonsets(State& state, const StateRule& rule, const Json& manifest) {
    if (view_.facts.gpu_nodes.empty()) {
      state.reasons.emplace_back("no node has a GPU: no DaemonSet is made");
      state.sweeps.clear();
      return {};
    }
    if (!is_driver(state))
      return add_daemonset(state, manifest, [&](Json& daemonset) { return rule.shape(view_, daemonset); });
    const bool vgpu = state.name == "state-vgpu-manager";
    if (auto certificates = vgpu ? std::nullopt : trusted_ca(view_.facts))
      state.objects.push_back(placed(*certificates));
    const auto layouts = TRY(driver_layouts(view_, str(get_string(manifest, {"metadata", "name"})),
                                            !vgpu && view_.spec.driver.use_precompiled));
    for (const DriverLayout& layout : layouts)
      TRY(add_daemonset(state, manifest, [&](Json& daemonset) {
        return vgpu ? shape_vgpu_manager(view_, daemonset, layout) : shape_driver(view_, daemonset, layout);
      }));
    return {};
  }

  Result<> add_daemonset(State& state, const Json& manifest, const std::function<Result<>(Json&)>& shape) {
    Json daemonset = placed(manifest);
    TRY(shape_common(view_, daemonset));
    shape_host_paths(view_, daemonset);
    TRY(shape_validations(view_, daemonset));
    TRY(shape(daemonset));
    shape_own_image(view_, daemonset);
    shape_metadata(view_, daemonset);
    set(daemonset, {"metadata", "annotations", kHashAnnotation}, object_hash(daemonset));
    state.objects.push_back(std::move(daemonset));
    return {};
  }

  View view_;
  const Assets& assets_;
};

}  // namespace

ObjectRef ref_of(const Json& object) {
  return {str(get_string(object, {"apiVersion"})), str(get_string(object, {"kind"})),
          str(get_string(object, {"metadata", "namespace"})), str(get_string(object, {"metadata", "name"}))};
}

std::string object_hash(const Json& object) {
  Json bare = object;
  remove(bare, {"metadata", "annotations", kHashAnnotation});
  if (get_object(bare, {"metadata", "annotations"}).empty()) remove(bare, {"metadata", "annotations"});
  return std::to_string(fnv1a32(to_canonical_text(bare)));
}

std::vector<std::string> config_map_refs(const policy::ClusterPolicySpec& spec) {
  std::set<std::string> names = {spec.driver.kernel_module_config.name};
  if (!spec.driver.use_precompiled)
    names.insert({spec.driver.repo_config.config_map_name, spec.driver.cert_config.name});
  if (spec.sandbox_workloads.enabled && spec.vgpu_manager.enabled)
    names.insert(spec.vgpu_manager.kernel_module_config.name);
  names.erase("");
  return {names.begin(), names.end()};
}

std::vector<std::string> secret_refs(const policy::ClusterPolicySpec& spec) {
  if (spec.driver.secret_env.empty()) return {};
  return {spec.driver.secret_env};
}

Plan render(const policy::ClusterPolicy& policy, const ClusterFacts& facts, const Assets& assets) {
  Plan plan;
  Renderer renderer(policy, facts, assets);
  for (const StateRule& rule : kStates) plan.states.push_back(renderer.render(rule));
  return plan;
}

const State* find_state(const Plan& plan, std::string_view name) {
  for (const State& state : plan.states)
    if (state.name == name) return &state;
  return nullptr;
}

}  // namespace gpuop::op
