// Every field of a ClusterPolicy (operator.md §1.3): what nobody's test sets is found here, and so is a field
// that does nothing. What each does exactly is in transformations.txt; here, what the operands have in
// common.
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"
#include "operator/node_labels.h"
#include "operator/pod.h"
#include "policy/crds.h"
#include "policy/schema.h"
#include "render_fixture.h"

namespace gpuop::op {
namespace {

// Without the texts of ConfigMaps, which no field changes.
const Assets& assets() {
  static const Assets kLoaded = [] {
    Assets out = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
    for (auto& [state, manifests] : out.states)
      for (Manifest& manifest : manifests)
        if (get_string(manifest.object, {"kind"}) == "ConfigMap") remove(manifest.object, {"data"});
    return out;
  }();
  return kLoaded;
}

// Everything is on, so that every field has its operand.
Json make_everything(const std::string& mode) {
  Json object = case_object("01-defaults");
  const Json more =
      parse_yaml_one(R"({sandboxWorkloads: {enabled: true, mode: )" + mode + R"(, defaultWorkload: vm-vgpu},
      vgpuManager: {enabled: true, repository: r, image: vgpu-manager, version: "570.1"},
      driver: {rdma: {enabled: true}, upgradePolicy: {autoUpgrade: true},
               licensingConfig: {configMapName: lic}, startupProbe: null},
      gds: {enabled: true}, gdrcopy: {enabled: true}, dcgm: {enabled: true}, nodeStatusExporter: {enabled: true},
      devicePlugin: {config: {name: cfg}}, dcgmExporter: {hpcJobMapping: {enabled: true}},
      operator: {metrics: {serviceMonitor: {enabled: true}}},
      fleet: {startupTaint: {enabled: true}, dedicatedTaint: {enabled: true}}})",
                     "more")
          .value()
          .value;
  for (const auto& [block, fields] : more.as_object())
    for (const auto& [field, value] : fields.as_object())
      set(object, {"spec", std::string_view(block), std::string_view(field)}, value);
  return object;
}

const Json& everything(const std::string& mode) {
  static const Json kKubevirt = make_everything("kubevirt"), kKata = make_everything("kata");
  return mode == "kata" ? kKata : kKubevirt;
}

ClusterFacts facts() {
  ClusterFacts out = facts_of_cases();
  out.has_service_monitors = out.has_prometheus_rules = true;
  for (const char* name : {"probe", "other"}) {
    out.config_maps[name] = {"nvidia.conf"};
    out.config_map_hashes[name] = name;
    out.secrets.insert(name);
  }
  return out;
}

// What comes of a policy: objects, and what decides labels and taints of nodes. nullopt: it is refused.
std::optional<std::string> outcome(Json object) {
  set(object, {"metadata", "uid"}, "u");
  const auto policy = policy::parse_cluster_policy(object);
  if (!policy || !policy::check(policy->spec)) return std::nullopt;
  const LabelRules rules = label_rules(policy->spec);
  ClusterFacts with = facts();
  with.own_taints = own_taints(rules.taints);
  std::string all = rules.default_workload + rules.sandbox_mode + rules.mig_default + rules.taints.startup +
                    rules.taints.dedicated;
  for (bool flag : {rules.sandbox, rules.mig_manager, rules.auto_upgrade, policy->spec.psa.enabled})
    all += flag ? "+" : "-";
  for (const State& state : render(*policy, with, assets()).states) {
    all += state.enabled ? "on" : "off";
    if (state.error) all += state.error->text();
    for (const Json& object_of_state : state.objects) all += to_text(object_of_state);
  }
  return all;
}

// What stands beside a field of a list's items, or of some blocks.
JsonObject item_of(const std::string& part) {
  static const std::map<std::string, std::string> kItems = {
      {"env", R"({"name":"N","value":"v"})"},
      {"tolerations", R"({"key":"k","operator":"Exists"})"},
      {"relabelings", R"({"action":"keep"})"},
      {"sysctls", R"({"name":"n","value":"v"})"},
      {"appArmorProfile", R"({"type":"Localhost"})"},
      {"seccompProfile", R"({"type":"Localhost"})"},
      {"runtimeClasses", R"({"name":"n","artifacts":{"url":"u"}})"}};
  const auto found = kItems.find(part);
  return found == kItems.end() ? JsonObject{} : parse_json(found->second)->as_object();
}

std::vector<Json> values_for(const std::string& field) {
  static const std::map<std::string, std::vector<Json>> kEnums = {{"updateStrategy", {"OnDelete"}},
                                                                  {"kernelModuleType", {"open"}},
                                                                  {"defaultWorkload", {"vm-passthrough"}},
                                                                  {"mode", {"kata", "kubevirt"}},
                                                                  {"strategy", {"mixed"}},
                                                                  {"defaultMode", {"devtools"}},
                                                                  {"type", {"NodePort", "probe"}},
                                                                  {"internalTrafficPolicy", {"Local"}},
                                                                  {"action", {"drop"}},
                                                                  {"operator", {"Equal"}},
                                                                  {"effect", {"NoExecute"}},
                                                                  {"maxUnavailable", {"7"}},
                                                                  {"interval", {"7s"}},
                                                                  {"scrapeTimeout", {"7s"}},
                                                                  {"default", {"", "probe", true}},
                                                                  {"imagePullPolicy", {"Never"}}};
  const auto found = kEnums.find(field);
  if (found != kEnums.end()) return found->second;
  return {true, false, "probe", 7};
}

// The policy with the field at `path` ("dcgm.env[].name") set to `value`, and beside it what its list needs.
Json with_field(Json object, const std::string& path, const Json& value, bool lists_only) {
  Json* here = find_mutable(object, {"spec"});
  const auto parts = split(path, '.');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string key = parts[i];
    const bool list = key.ends_with("[]"), map = key.ends_with("{}"), last = i + 1 == parts.size();
    if (list || map) key.resize(key.size() - 2);
    Json& member = ensure(*here, {key});
    if (!last && list) {
      member = JsonArray{item_of(key)};
      here = &member.as_array()[0];
      continue;
    }
    if (!last) {
      if (!member.is_object()) member = item_of(key);
      here = &member;
      continue;
    }
    if (lists_only) {
      if (member.is_null()) here->as_object().erase(key);
    } else if (list) {
      member = JsonArray{value};
    } else if (map) {
      member = JsonObject{{"probe", value}};
    } else {
      member = value;
    }
  }
  return object;
}

// Whether some value of the field makes anything else of the policy.
bool matters(const std::string& path) {
  const std::string field = path.substr(path.rfind('.') + 1);
  const bool of_kata = path.starts_with("kataSandboxDevicePlugin") || path.starts_with("ccManager");
  Json base = everything(of_kata ? "kata" : "kubevirt");
  if (path == "driver.upgradePolicy.autoUpgrade") set(base, {"spec", "sandboxWorkloads", "enabled"}, false);
  const Json without = with_field(base, path, nullptr, true);
  static std::map<std::string, std::optional<std::string>> seen;  // by policy
  const std::string key = to_text(without);
  if (!seen.contains(key)) seen[key] = outcome(without);
  const auto& before = seen[key];
  EXPECT_TRUE(before) << path;
  bool taken = false;
  for (const Json& value : values_for(field)) {
    const auto after = outcome(with_field(base, path, value, false));
    taken = taken || after;
    if (after && after != before) return true;
  }
  EXPECT_TRUE(taken) << path << ": no value is taken";
  return false;
}

// Fields that do nothing, and why.
const std::map<std::string, std::string>& idle() {
  static const std::map<std::string, std::string> kIdle = {
      {"cdi.default", "deprecated"},
      {"dcgm.hostPort", "deprecated"},
      {"driver.useOpenKernelModules", "deprecated"},
      {"operator.annotations{}", "accepted, not used"},
      {"operator.labels{}", "accepted, not used"},
      {"operator.defaultRuntime", "deprecated"},
      {"operator.initContainer.*", "deprecated"},
      {"operator.metrics.serviceMonitor.enabled", "as upstream: logged only"},
      {"psp.enabled", "deprecated"},
      {"kataManager.*", "deprecated"},
      {"toolkit.args[]", "accepted, not applied, as upstream"},
      {"gds.args[]", "accepted, not applied, as upstream"},
      {"gdrcopy.args[]", "accepted, not applied, as upstream"},
      {"driver.upgradePolicy.drain.*", "of driver upgrades, which are not there yet"},
      {"driver.upgradePolicy.maxParallelUpgrades", "of driver upgrades"},
      {"driver.upgradePolicy.maxUnavailable", "of driver upgrades"},
      {"driver.upgradePolicy.podDeletion.*", "of driver upgrades"},
      {"driver.upgradePolicy.waitForCompletion.*", "of driver upgrades"},
      {"operator.use_ocp_driver_toolkit", "of OpenShift: transformations.txt"},
  };
  return kIdle;
}

bool is_idle(const std::string& path, std::set<std::string>& used) {
  for (const auto& [name, why] : idle()) {
    if (path != name && !(name.ends_with('*') && path.starts_with(name.substr(0, name.size() - 1)))) continue;
    used.insert(name);
    return true;
  }
  return false;
}

TEST(operator_fields, each_does_something_or_has_its_reason_for_doing_nothing) {
  std::vector<std::string> paths;
  policy::list_paths(policy::cluster_policy_spec_schema(), "", paths);
  ASSERT_GT(paths.size(), 380u);
  std::set<std::string> used;
  for (std::string path : paths) {
    if (path.starts_with('.')) path.erase(0, 1);
    const bool listed = is_idle(path, used);
    EXPECT_EQ(matters(path), !listed) << path;
  }
  EXPECT_EQ(used.size(), idle().size()) << "a reason for a field that is none";
}

// --- what the operands have in common ---

struct Operand {
  std::string block, daemonset, container;
  bool args = true;
  std::string os;  // behind the version
};

const std::vector<Operand>& operands(const std::string& mode) {
  static const std::vector<Operand> kKubevirt = {
      {"driver", "nvidia-driver-daemonset", "nvidia-driver-ctr", true, "-ubuntu22.04"},
      {"toolkit", "nvidia-container-toolkit-daemonset", "nvidia-container-toolkit-ctr", false},
      {"validator", "nvidia-operator-validator", "nvidia-operator-validator"},
      {"devicePlugin", "nvidia-device-plugin-daemonset", "nvidia-device-plugin"},
      {"dcgm", "nvidia-dcgm", "nvidia-dcgm-ctr"},
      {"dcgmExporter", "nvidia-dcgm-exporter", "nvidia-dcgm-exporter"},
      {"gfd", "gpu-feature-discovery", "gpu-feature-discovery"},
      {"migManager", "nvidia-mig-manager", "nvidia-mig-manager"},
      {"nodeStatusExporter", "nvidia-node-status-exporter", "nvidia-node-status-exporter"},
      {"vgpuManager", "nvidia-vgpu-manager-daemonset", "nvidia-vgpu-manager-ctr", true, "-ubuntu22.04"},
      {"vgpuDeviceManager", "nvidia-vgpu-device-manager", "nvidia-vgpu-device-manager"},
      {"vfioManager", "nvidia-vfio-manager", "nvidia-vfio-manager"},
      {"sandboxDevicePlugin", "nvidia-sandbox-device-plugin-daemonset", "nvidia-sandbox-device-plugin-ctr"}};
  static const std::vector<Operand> kKata = {
      {"kataSandboxDevicePlugin", "nvidia-kata-sandbox-device-plugin-daemonset",
       "nvidia-kata-sandbox-device-plugin-ctr"},
      {"ccManager", "nvidia-cc-manager", "nvidia-cc-manager"}};
  return mode == "kata" ? kKata : kKubevirt;
}

Json common_fields(const std::string& block) {
  const std::string tail = to_lower(block);
  Json out =
      parse_json(
          R"({"imagePullPolicy":"Never","resources":{"limits":{"memory":"7Mi"},"requests":{"cpu":"7m"}},
      "env":[{"name":"PROBE","value":"p"}],"hostNetwork":true})")
          .value();
  set(out, {"repository"}, "reg.example/" + tail);
  set(out, {"image"}, "image-of-" + tail);
  set(out, {"version"}, "v7");
  set(out, {"imagePullSecrets"}, JsonArray{Json("secret-of-" + tail)});
  set(out, {"args"}, JsonArray{Json("--of=" + tail)});
  return out;
}

std::set<std::string> secrets_of(const Json& pod) {
  std::set<std::string> out;
  for (const Json& each : get_array(pod, {"imagePullSecrets"})) out.insert(str(get_string(each, {"name"})));
  return out;
}

const Json& daemonset_of(const Plan& plan, const std::string& name) {
  static const Json kNone;
  for (const State& state : plan.states)
    for (const Json& object : state.objects)
      if (get_string(object, {"kind"}) == "DaemonSet" && get_string(object, {"metadata", "name"}) == name)
        return object;
  return kNone;
}

void expect_image(const Json& pod, const Json& container, const std::string& block,
                  const std::string& os = "") {
  const std::string tail = to_lower(block);
  EXPECT_EQ(get_string(container, {"image"}), "reg.example/" + tail + "/image-of-" + tail + ":v7" + os);
  EXPECT_EQ(get_string(container, {"imagePullPolicy"}), "Never");
  EXPECT_TRUE(secrets_of(pod).contains("secret-of-" + tail));
}

void expect_operand(const Plan& plan, const Operand& operand) {
  SCOPED_TRACE(operand.block);
  const Json& daemonset = daemonset_of(plan, operand.daemonset);
  ASSERT_FALSE(daemonset.is_null());
  const Json& pod = pod_spec(daemonset);
  const Json* container = find_container(pod, operand.container);
  ASSERT_NE(container, nullptr);
  expect_image(pod, *container, operand.block, operand.os);
  EXPECT_EQ(to_text(*find(*container, {"resources"})),
            R"({"limits":{"memory":"7Mi"},"requests":{"cpu":"7m"}})");
  EXPECT_EQ(env_value(*container, "PROBE"), "p");
  const Json* args = find(*container, {"args"});
  const std::string wanted = "[\"--of=" + to_lower(operand.block) + "\"]";
  EXPECT_EQ(args && to_text(*args) == wanted, operand.args) << (args ? to_text(*args) : "");
  EXPECT_TRUE(get_bool(pod, {"hostNetwork"}));
  EXPECT_EQ(get_string(pod, {"dnsPolicy"}), "ClusterFirstWithHostNet");
}

TEST(operator_fields, every_operand_has_its_image_resources_arguments_environment_and_network) {
  for (const char* mode : {"kubevirt", "kata"}) {
    Json object = everything(mode);
    for (const Operand& operand : operands(mode)) {
      const Json fields = common_fields(operand.block);
      for (const auto& [key, value] : fields.as_object())
        set(object, {"spec", operand.block, std::string_view(key)}, value);
    }
    const Plan plan = render(parsed(object), facts(), assets());
    for (const State& state : plan.states) EXPECT_FALSE(state.error) << state.error->text();
    for (const Operand& operand : operands(mode)) expect_operand(plan, operand);
  }
}

TEST(operator_fields, managers_and_sidecars_have_their_images_secrets_and_environment) {
  Json object = everything("kubevirt");
  const std::vector<std::tuple<std::vector<std::string>, std::string, std::string>> all = {
      {{"driver", "manager"}, "nvidia-driver-daemonset", "k8s-driver-manager"},
      {{"vgpuManager", "driverManager"}, "nvidia-vgpu-manager-daemonset", "k8s-driver-manager"},
      {{"vfioManager", "driverManager"}, "nvidia-vfio-manager", "k8s-driver-manager"},
      {{"gds"}, "nvidia-driver-daemonset", "nvidia-fs-ctr"},
      {{"gdrcopy"}, "nvidia-driver-daemonset", "nvidia-gdrcopy-ctr"}};
  for (const auto& [path, daemonset, container] : all) {
    Json fields = common_fields(join(path, "-"));
    for (const char* other : {"resources", "hostNetwork", "args"}) remove(fields, {other});
    for (const auto& [key, value] : fields.as_object()) {
      if (path.size() == 1)
        set(object, {"spec", path[0], std::string_view(key)}, value);
      else
        set(object, {"spec", path[0], path[1], std::string_view(key)}, value);
    }
  }
  const Plan plan = render(parsed(object), facts(), assets());
  for (const auto& [path, daemonset, name] : all) {
    SCOPED_TRACE(join(path, "."));
    const Json& pod = pod_spec(daemonset_of(plan, daemonset));
    const Json* container = find_container(pod, name);
    ASSERT_NE(container, nullptr);
    expect_image(pod, *container, join(path, "-"), path.size() == 1 ? "-ubuntu22.04" : "");
    EXPECT_EQ(env_value(*container, "PROBE"), "p");
  }
}

}  // namespace
}  // namespace gpuop::op
