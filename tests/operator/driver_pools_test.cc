// NVIDIADriver: ownership of nodes, pools, names, refusals (operator.md §1.4).
#include "operator/driver_pools.h"

#include <gtest/gtest.h>

#include "operator/pod.h"
#include "render_fixture.h"

namespace gpuop::op {
namespace {

policy::NvidiaDriver driver(const std::string& name, const std::string& spec = "{}") {
  Json object =
      *parse_json(R"({"apiVersion":"nvidia.com/v1alpha1","kind":"NVIDIADriver","metadata":{"name":")" + name +
                  R"(","uid":"00000000-0000-0000-0000-000000000001"},"spec":{"driverType":"gpu",)"
                  R"("repository":"nvcr.io/nvidia","image":"driver","version":"580.105.08"}})");
  const Json more = parse_yaml_one(spec, "spec").value().value;
  for (const auto& [key, value] : more.as_object()) set(object, {"spec", key}, value);
  auto parsed = policy::parse_nvidia_driver(object);
  if (!parsed) throw std::runtime_error(parsed.error().text());
  return *parsed;
}

DriverNode node(const std::string& name, const std::string& labels = "") {
  JsonObject all = parse_yaml_one(
                       "{feature.node.kubernetes.io/system-os_release.ID: ubuntu, "
                       "feature.node.kubernetes.io/system-os_release.VERSION_ID: '24.04', "
                       "feature.node.kubernetes.io/kernel-version.full: 6.8.0-60-generic, "
                       "nvidia.com/gpu.present: 'true'" +
                           (labels.empty() ? "" : ", " + labels) + "}",
                       "labels")
                       .value()
                       .value.as_object();
  return {name, all};
}

ClusterFacts facts() {
  ClusterFacts out = facts_of_cases();
  out.config_maps.clear();
  return out;
}

State rendered(const policy::NvidiaDriver& which, const std::vector<DriverNode>& nodes,
               const ClusterFacts& with) {
  static const Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  std::vector<std::string> warnings;
  return render_driver(which, driver_pools(which.spec, nodes, with.openshift(), warnings), with, assets, "/");
}

const Json& daemonset(const State& state) {
  static const Json none;
  for (const Json& object : state.objects)
    if (get_string(object, {"kind"}) == "DaemonSet") return object;
  return none;
}

TEST(operator_drivers, case08_names_of_daemonsets) {
  std::vector<std::string> warnings;
  const auto plain = driver("default", "{default: true}");
  EXPECT_EQ(pool_name(plain, driver_pools(plain.spec, {node("a")}, false, warnings).at(0)),
            "nvidia-gpu-driver-ubuntu24.04-75c99d747d");
  const auto precompiled = driver("default", "{default: true, usePrecompiled: true}");
  EXPECT_EQ(pool_name(precompiled, driver_pools(precompiled.spec, {node("a")}, false, warnings).at(0)),
            "nvidia-gpu-driver-ubuntu24.04-97f86bcd");
  const auto host = driver("x", "{driverType: vgpu-host-manager}");
  const DriverPool pool = driver_pools(host.spec, {node("a")}, false, warnings).at(0);
  EXPECT_LE(pool_name(host, pool).size(), 63u);
  EXPECT_EQ(pool_account(host, pool), "nvidia-vgpu-manager-x-ubuntu24.04");
}

TEST(operator_drivers, case32_two_that_select_one_node_are_refused_until_one_gives_way) {
  const auto a = driver("a", "{nodeSelector: {pool: x}}");
  const auto b = driver("b", "{nodeSelector: {zone: y}}");
  const auto other = driver("other", "{default: true}");
  const std::vector<DriverNode> nodes = {node("n1", "pool: x, zone: y"), node("n2", "pool: x"), node("n3")};
  const DriverOwnership both = decide_ownership({b, a, other}, nodes);
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(both.refused.contains(name)) << name;
    EXPECT_EQ(both.refused.at(name).reason, "ConflictingNodeSelector");
    EXPECT_NE(both.refused.at(name).message.find("n1"), std::string::npos);
    EXPECT_NE(both.refused.at(name).message.find("a, b"), std::string::npos);
  }
  EXPECT_FALSE(both.owner.contains("n1")) << "no label moves";
  EXPECT_FALSE(both.owner.contains("n2"));
  EXPECT_EQ(both.owner.at("n3"), "other") << "the others go on";
  const DriverOwnership fixed = decide_ownership({driver("b", "{nodeSelector: {zone: z}}"), a, other}, nodes);
  EXPECT_TRUE(fixed.refused.empty());
  EXPECT_EQ(fixed.owner.at("n1"), "a");
  EXPECT_EQ(fixed.owner.at("n3"), "other");
}

TEST(operator_drivers, ownership_rules) {
  const auto all = driver("all", "{default: true}");
  const auto one = driver("one", "{nodeSelector: {pool: x}}");
  const std::vector<DriverNode> nodes = {node("n1", "pool: x"), node("n2")};
  EXPECT_EQ(decide_ownership({all, one}, nodes).owner,
            (std::map<std::string, std::string>{{"n1", "one"}, {"n2", "all"}}));
  EXPECT_EQ(decide_ownership({one}, nodes).owner.at("n2"), "") << "a label that is there goes";
  const auto defaults = decide_ownership({all, driver("more", "{default: true}"), one}, nodes);
  EXPECT_EQ(defaults.refused.size(), 3u);
  EXPECT_NE(defaults.refused.at("one").message.find("all, more"), std::string::npos);
  EXPECT_TRUE(defaults.owner.empty());
  const auto reserved =
      decide_ownership({driver("r", "{nodeSelector: {nvidia.com/gpu-operator.driver.owner: r}}")},
                       {node("n1", "nvidia.com/gpu-operator.driver.owner: r")});
  EXPECT_EQ(reserved.refused.at("r").reason, "ReconcileFailed");
  EXPECT_FALSE(reserved.owner.contains("n1")) << "fail closed: its label stays";
}

TEST(operator_drivers, pools_by_operating_system_and_kernel) {
  std::vector<std::string> warnings;
  const auto plain = driver("d");
  auto rhel = [](const std::string& name, const std::string& version) {
    DriverNode out = node(name);
    out.labels["feature.node.kubernetes.io/system-os_release.ID"] = "rhel";
    out.labels["feature.node.kubernetes.io/system-os_release.VERSION_ID"] = version;
    return out;
  };
  const auto pools =
      driver_pools(plain.spec, {node("a"), rhel("b", "9.4"), rhel("c", "9.6")}, false, warnings);
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].os_tag, "rhel9");
  EXPECT_EQ(pools[0].selector.at("feature.node.kubernetes.io/system-os_release.VERSION_ID.major"), "9");
  EXPECT_EQ(pools[1].os_tag, "ubuntu24.04");
  DriverNode bare = node("bare");
  bare.labels.erase("feature.node.kubernetes.io/system-os_release.ID");
  EXPECT_TRUE(driver_pools(plain.spec, {bare}, false, warnings).empty());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("bare"), std::string::npos);
  EXPECT_TRUE(rendered(plain, {}, facts()).objects.empty()) << "no pool, no object";
}

TEST(operator_drivers, case34_a_config_map_that_is_missing_is_named) {
  const State state = rendered(driver("d", "{repoConfig: {name: missing}}"), {node("a")}, facts());
  ASSERT_TRUE(state.error);
  EXPECT_NE(state.error->text().find("'missing'"), std::string::npos) << state.error->text();
  EXPECT_NE(state.error->text().find("'gpu-operator'"), std::string::npos);
  EXPECT_TRUE(state.objects.empty());
}

TEST(operator_drivers, what_cannot_work_is_refused) {
  auto error = [](const std::string& spec) {
    const State state = rendered(driver("d", spec), {node("a")}, facts());
    return state.error ? state.error->text() : "";
  };
  EXPECT_NE(error("{usePrecompiled: true, gds: {enabled: true, repository: r, image: i, version: '1'}}")
                .find("spec.gds"),
            std::string::npos);
  const std::string gds = "gds: {enabled: true, repository: r, image: nvidia-fs, version: 2.26.6}";
  EXPECT_NE(error("{" + gds + ", kernelModuleType: proprietary}").find("spec.kernelModuleType"),
            std::string::npos);
  EXPECT_EQ(error("{" + gds + ", kernelModuleType: auto}"), "") << "branch 580: auto means open";
  EXPECT_NE(error("{" + gds + ", version: 550.54.15}").find("spec.kernelModuleType"), std::string::npos);
  EXPECT_EQ(error("{" + gds + ", kernelModuleType: open, version: 550.54.15}"), "");
  EXPECT_NE(error("{secretEnv: s}").find("Secret 's'"), std::string::npos);
  EXPECT_NE(error("{usePrecompiled: true, version: 'sha256:ab'}").find("spec.version: a digest"),
            std::string::npos);
  EXPECT_NE(error("{usePrecompiled: true, repository: '', version: '', image: 'r/driver@sha256:ab'}")
                .find("spec.image: a digest"),
            std::string::npos);
  EXPECT_NE(error("{repository: '', version: '', image: 'r/driver:a b'}").find("is not an image reference"),
            std::string::npos);
}

TEST(operator_drivers, a_resource_shapes_its_pods) {
  const auto which =
      driver("d", R"({nodeSelector: {pool: x}, priorityClassName: high, labels: {app: mine, team: ml,
      app.kubernetes.io/name: mine}, tolerations: [{key: k, operator: Exists}], args: [--x], env: [{name: A, value: b}],
      nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}, rdma: {enabled: true}})");
  const State state = rendered(which, {node("a", "pool: x")}, facts());
  ASSERT_FALSE(state.error) << state.error->text();
  const Json& set = daemonset(state);
  const Json& pod = pod_spec(set);
  EXPECT_EQ(get_string(pod, {"nodeSelector", "pool"}), "x");
  EXPECT_EQ(get_string(pod, {"nodeSelector", "nvidia.com/gpu-operator.driver.owner"}), "d");
  EXPECT_EQ(get_string(pod, {"priorityClassName"}), "high");
  EXPECT_EQ(get_array(pod, {"tolerations"}).size(), 2u);
  EXPECT_TRUE(has(pod, {"affinity", "nodeAffinity"}));
  EXPECT_EQ(get_string(set, {"spec", "template", "metadata", "labels", "team"}), "ml");
  EXPECT_FALSE(has(set, {"metadata", "labels", "team"}));
  EXPECT_EQ(get_string(set, {"metadata", "labels", "app"}), get_string(set, {"metadata", "name"}));
  EXPECT_FALSE(has(set, {"metadata", "labels", "app.kubernetes.io/name"}));
  const Json& main = *find_container(pod, "nvidia-driver-ctr");
  EXPECT_EQ(to_text(*find(main, {"args"})), R"(["init","--x"])");
  EXPECT_EQ(env_value(main, "A"), "b");
  EXPECT_EQ(env_value(main, "GPU_DIRECT_RDMA_ENABLED"), "true");
  EXPECT_EQ(env_value(*find_container(pod, "nvidia-peermem-ctr"), "NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_EQ(env_value(main, "DRIVER_CONFIG_DIGEST"),
            env_value(*find_container(pod, "k8s-driver-manager"), "DRIVER_CONFIG_DIGEST"));
}

std::string digest_of_driver(const State& state) {
  return env_value(*find_container(pod_spec(daemonset(state)), "nvidia-driver-ctr"), "DRIVER_CONFIG_DIGEST");
}

TEST(operator_drivers, case09_case10_digests_of_whole_resources) {
  const std::string version = "version: 595.91.07";
  EXPECT_EQ(digest_of_driver(rendered(driver("d", "{" + version + "}"), {node("a")}, facts())), "2591032175");
  EXPECT_EQ(digest_of_driver(rendered(driver("d", "{" + version + R"(, kernelModuleType: open,
      env: [{name: B, value: ''}, {name: A, value: '1'}]})"),
                                      {node("a")}, facts())),
            "3255330262");
}

// An operator of another version brings another driver manager; that alone loads no driver again.
TEST(operator_drivers, a_driver_manager_stays_as_long_as_the_driver_does) {
  const auto image = [](const State& state) {
    return str(get_string(*find_container(pod_spec(daemonset(state)), "k8s-driver-manager"), {"image"}));
  };
  const State before = rendered(driver("d"), {node("a")}, facts());
  const std::string old = image(before), name = str(get_string(daemonset(before), {"metadata", "name"}));
  ClusterFacts now = facts();
  now.env["DRIVER_MANAGER_IMAGE"] = "r/driver-manager:next";
  EXPECT_EQ(image(rendered(driver("d"), {node("a")}, now)), "r/driver-manager:next") << "a new one";
  now.driver_managers[name] = {old, digest_of_driver(before)};
  const State same = rendered(driver("d"), {node("a")}, now);
  EXPECT_EQ(to_text(daemonset(same)), to_text(daemonset(before)));
  EXPECT_EQ(image(rendered(driver("d", "{priorityClassName: other}"), {node("a")}, now)), old);
  // Another driver comes with the manager of now.
  EXPECT_EQ(image(rendered(driver("d", "{version: 580.126.20}"), {node("a")}, now)), "r/driver-manager:next");
  // Who names an image has it.
  EXPECT_EQ(
      image(rendered(driver("d", "{manager: {repository: r, image: m, version: '1'}}"), {node("a")}, now)),
      "r/m:1");
}

TEST(operator_drivers, what_was_taken_over_keeps_its_anti_affinity) {
  const auto managers = [](const State& state) {
    return to_text(*find(pod_spec(daemonset(state)), {"affinity", "podAntiAffinity"}));
  };
  const State ours = rendered(driver("d"), {node("a")}, facts());
  EXPECT_TRUE(managers(ours).contains("nvidia-vgpu-host-manager")) << managers(ours);
  ClusterFacts upstream = facts();
  upstream.taken_over = {str(get_string(daemonset(ours), {"metadata", "name"}))};
  const State theirs = rendered(driver("d"), {node("a")}, upstream);
  EXPECT_TRUE(managers(theirs).contains(R"(["nvidia-driver","nvidia-vgpu-manager"])")) << managers(theirs);
}

TEST(operator_drivers, precompiled_drivers_are_looked_at_after_five_seconds) {
  const auto delay = [](const std::string& spec) {
    const State state = rendered(driver("d", spec), {node("a")}, facts());
    return get_int(*find_container(pod_spec(daemonset(state)), "nvidia-driver-ctr"),
                   {"startupProbe", "initialDelaySeconds"});
  };
  EXPECT_EQ(delay("{}"), 60);
  EXPECT_EQ(delay("{usePrecompiled: true}"), 5);
  EXPECT_EQ(delay("{usePrecompiled: true, startupProbe: {initialDelaySeconds: 9}}"), 9);
}

TEST(operator_drivers, upstream_s_gaps_are_closed) {
  DriverNode suse = node("s");
  suse.labels["feature.node.kubernetes.io/system-os_release.ID"] = "sles";
  suse.labels["feature.node.kubernetes.io/system-os_release.VERSION_ID"] = "15.6";
  const State modules = rendered(driver("d", "{usePrecompiled: true}"), {suse}, facts());
  ASSERT_FALSE(modules.error) << modules.error->text();
  EXPECT_NE(to_text(daemonset(modules)).find("/run/host/lib/modules"), std::string::npos);
  const State gds = rendered(driver("d", R"({kernelModuleType: open, imagePullSecrets: [d],
      gds: {enabled: true, repository: r, image: i, version: '2.20', imagePullPolicy: Always, imagePullSecrets: [g]},
      manager: {imagePullSecrets: [m]}})"),
                             {node("a")}, facts());
  ASSERT_FALSE(gds.error) << gds.error->text();
  const Json& pod = pod_spec(daemonset(gds));
  EXPECT_EQ(get_string(*find_container(pod, "nvidia-fs-ctr"), {"imagePullPolicy"}), "Always");
  EXPECT_EQ(to_text(*find(pod, {"imagePullSecrets"})), R"([{"name":"d"},{"name":"m"},{"name":"g"}])");
}

TEST(operator_drivers, a_vgpu_host_manager_is_no_driver_for_containers) {
  const State state = rendered(driver("v", "{driverType: vgpu-host-manager}"), {node("a")}, facts());
  ASSERT_FALSE(state.error) << state.error->text();
  const Json& set = daemonset(state);
  const Json& pod = pod_spec(set);
  EXPECT_EQ(get_string(set, {"spec", "template", "metadata", "labels", "app.kubernetes.io/component"}),
            "nvidia-vgpu-host-manager");
  EXPECT_EQ(get_string(pod, {"nodeSelector", "nvidia.com/gpu.deploy.vgpu-manager"}), "true");
  EXPECT_FALSE(has(pod, {"nodeSelector", "nvidia.com/gpu.deploy.driver"}));
  EXPECT_EQ(get_int(pod, {"terminationGracePeriodSeconds"}), 120);
  EXPECT_FALSE(has(*find_container(pod, "nvidia-driver-ctr"), {"startupProbe"}));
}

}  // namespace
}  // namespace gpuop::op
