// The ClusterPolicy controller against the embedded API server, on a virtual clock. Acceptance cases of
// operator.md by number; kubelets and DaemonSet controllers are played by hand, so that each step is seen.
#include <gtest/gtest.h>

#include "base/files.h"
#include "cluster/apiserver/api_server.h"
#include "kube/client.h"
#include "kube/object.h"
#include "operator/controller.h"
#include "operator/namespace_labels.h"
#include "operator/node_labels.h"
#include "operator/readiness.h"
#include "operator/status.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

TEST(operator_control, case11_the_oldest_policy_is_active_and_the_others_are_told) {
  Cluster cluster;
  cluster.policy("z");
  cluster.loop->run_for(2s);
  cluster.policy("b");
  cluster.settle();
  EXPECT_EQ(cluster.state("b"), "ignored");
  EXPECT_NE(get_string(cluster.condition("b", "Ready"), {"message"}).find("'z'"), std::string_view::npos);
  EXPECT_EQ(get_string(cluster.condition("b", "Ready"), {"reason"}), "Ignored");
  EXPECT_EQ(cluster.state("z"), "ready");
  cluster.remove(kube::kClusterPolicies, "", "z");
  cluster.settle();
  EXPECT_EQ(cluster.state("b"), "ready");
}

TEST(operator_control, case12_contradictions_are_refused_on_every_reconcile) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  const Json before = cluster.get(kube::kDaemonSets, kNs, "nvidia-device-plugin-daemonset");
  ASSERT_FALSE(before.is_null());
  cluster.merge(kube::kClusterPolicies, "", "p",
                R"({"spec":{"cdi":{"enabled":false,"nriPluginEnabled":true}}})");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "notReady");
  const Json error = cluster.condition("p", "Error");
  EXPECT_EQ(get_string(error, {"reason"}), "ReconcileFailed");
  EXPECT_NE(get_string(error, {"message"}).find("the NRI Plugin cannot be enabled when CDI is disabled"),
            std::string_view::npos);
  EXPECT_EQ(get_string(cluster.get(kube::kDaemonSets, kNs, "nvidia-device-plugin-daemonset"),
                       {"metadata", "resourceVersion"}),
            get_string(before, {"metadata", "resourceVersion"}));
}

TEST(operator_control, case13_case14_ready_without_gpu_nodes_and_deployed_with_the_first) {
  Cluster cluster;
  cluster.policy("p");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "ready");
  EXPECT_EQ(get_string(cluster.condition("p", "Ready"), {"reason"}), "NFDLabelsMissing");
  EXPECT_TRUE(cluster.names(kube::kDaemonSets, kNs).empty());
  EXPECT_EQ(cluster.names(kube::kRuntimeClasses, ""),
            (std::vector<std::string>{"nvidia", "nvidia-cdi", "nvidia-legacy"}));
  cluster.node("cpu", R"("feature.node.kubernetes.io/kernel-version.full":"6.8.0")");
  cluster.settle();
  EXPECT_EQ(get_string(cluster.condition("p", "Ready"), {"reason"}), "NoGPUNodes");
  cluster.node("gpu", kGpu);
  cluster.settle();
  EXPECT_EQ(cluster.labels("gpu").at("nvidia.com/gpu.present"), "true");
  EXPECT_FALSE(cluster.names(kube::kDaemonSets, kNs).empty());
  EXPECT_EQ(cluster.state("p"), "notReady");
  cluster.all_available();
  EXPECT_EQ(cluster.state("p"), "ready");
  EXPECT_EQ(get_string(cluster.condition("p", "Ready"), {"reason"}), "Reconciled");
}

TEST(operator_control, case15_container_labels_and_mig) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.settle();
  const auto labels = cluster.labels("n1");
  EXPECT_EQ(labels.size(), 10u);
  EXPECT_FALSE(labels.contains("nvidia.com/gpu.deploy.mig-manager"));
  cluster.label("n1", R"("nvidia.com/mig.capable":"true")");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.mig-manager"), "true");
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/mig.config"), "all-disabled");
}

TEST(operator_control, case16_values_of_others_are_kept) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node(
      "n1",
      std::string(kGpu) +
          R"(,"nvidia.com/gpu.deploy.device-plugin":"paused-for-driver-upgrade","nvidia.com/gpu.deploy.dcgm":"")");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.device-plugin"), "paused-for-driver-upgrade");
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.dcgm"), "true");
}

TEST(operator_control, case17_operands_switched_off_on_a_node) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":"false")");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1"),
            (std::map<std::string, std::string>{{"nvidia.com/gpu.deploy.operands", "false"},
                                                {"nvidia.com/gpu.present", "true"}}));
  cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":null)");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.driver"), "true");
}

TEST(operator_control, case18_sandbox_workloads) {
  LabelRules rules;
  rules.sandbox = true;
  rules.default_workload = "vm-passthrough";
  rules.sandbox_mode = "kata";
  JsonObject labels{{"feature.node.kubernetes.io/pci-10de.present", "true"}};
  const auto change = decide_node(labels, {}, rules, std::nullopt);
  std::vector<std::string> keys;
  for (const auto& [key, value] : change.labels) keys.push_back(key);
  const std::string prefix = "nvidia.com/gpu.deploy.";
  EXPECT_EQ(keys,
            (std::vector<std::string>{prefix + "cc-manager", prefix + "client", prefix + "kata-manager",
                                      prefix + "kata-sandbox-device-plugin", prefix + "sandbox-validator",
                                      prefix + "vfio-manager", "nvidia.com/gpu.present"}));
  labels["nvidia.com/gpu.workload.config"] = "foo";
  const auto warned = decide_node(labels, {}, rules, std::nullopt);
  ASSERT_EQ(warned.warnings.size(), 1u);
  EXPECT_NE(warned.warnings[0].find("'foo'"), std::string::npos);
  EXPECT_EQ(warned.labels, change.labels);
}

TEST(operator_control, case19_a_blinking_gpu_label_changes_nothing) {
  Cluster cluster;
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.label("n1", R"("feature.node.kubernetes.io/pci-10de.present":null)");
  cluster.loop->run_for(20s);
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.driver"), "true");
  cluster.label("n1", R"("feature.node.kubernetes.io/pci-10de.present":"true")");
  cluster.loop->run_for(120s);
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.driver"), "true");
  cluster.label(
      "n1",
      R"("feature.node.kubernetes.io/pci-10de.present":null,"nvidia.com/gpu-driver-upgrade-state":"upgrade-done")");
  cluster.loop->run_for(70s);
  EXPECT_EQ(cluster.labels("n1"), (std::map<std::string, std::string>{{"nvidia.com/gpu.present", "false"}}));
}

TEST(operator_control, case23_case24_daemonset_readiness) {
  const Json rolling = *parse_json(
      R"({"metadata":{"name":"d","uid":"u","generation":5},"spec":{"updateStrategy":{"type":"RollingUpdate"}},
    "status":{"observedGeneration":4,"desiredNumberScheduled":2,"numberAvailable":2,"updatedNumberScheduled":2}})");
  EXPECT_FALSE(daemonset_ready(&rolling, {}, {}).ready);
  const Json on_delete = *parse_json(
      R"({"metadata":{"name":"d","uid":"u","generation":1},"spec":{"updateStrategy":{"type":"OnDelete"}},
    "status":{"observedGeneration":1,"desiredNumberScheduled":2,"numberAvailable":2}})");
  const auto make = [](const std::string& text) { return std::make_shared<const Json>(*parse_json(text)); };
  const auto revision = [&](const std::string& hash, int number) {
    return make(R"({"metadata":{"name":"d-)" + hash +
                R"(","ownerReferences":[{"kind":"DaemonSet","uid":"u","controller":true}]},"revision":)" +
                std::to_string(number) + "}");
  };
  const auto pod = [&](const std::string& name, const std::string& hash) {
    return make(R"({"metadata":{"name":")" + name + R"(","labels":{"controller-revision-hash":")" + hash +
                R"("},"ownerReferences":[{"kind":"DaemonSet","uid":"u","controller":true}]},
                "status":{"phase":"Running","containerStatuses":[{"name":"c","ready":true}]}})");
  };
  EXPECT_TRUE(
      daemonset_ready(&on_delete, {pod("a", "h2"), pod("b", "h2")}, {revision("h1", 1), revision("h2", 2)})
          .ready);
  const auto old =
      daemonset_ready(&on_delete, {pod("a", "h2"), pod("b", "h1")}, {revision("h1", 1), revision("h2", 2)});
  EXPECT_FALSE(old.ready);
  EXPECT_NE(old.reason.find("pod b"), std::string::npos);
  const Outcome outcome =
      outcome_of({{"state-driver", true, false, "", ""}, {"state-dcgm", false, false, "", ""}}, {true, 1});
  EXPECT_EQ(outcome.message, "ClusterPolicy is not ready; states not ready: [state-driver]");
}

TEST(operator_control, case11_of_equal_age_the_first_by_name_is_active) {
  const auto make = [](const char* name) {
    return std::make_shared<const Json>(
        *parse_json(std::string(R"({"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","name":")") +
                    name + R"("}})"));
  };
  EXPECT_EQ(active_policy({make("b"), make("a")}), "a");
}

TEST(operator_control, a_template_that_makes_no_other_driver_leaves_its_pods_current) {
  const auto make = [](const std::string& text) { return std::make_shared<const Json>(*parse_json(text)); };
  const Json live = *parse_json(
      R"({"metadata":{"name":"d","uid":"u","generation":2},"spec":{"updateStrategy":{"type":"OnDelete"}},
    "status":{"observedGeneration":2,"desiredNumberScheduled":1,"numberAvailable":1}})");
  const auto revision = [&](const std::string& hash, int number, const std::string& digest,
                            const std::string& modules) {
    Json out =
        *parse_json(R"({"metadata":{"ownerReferences":[{"kind":"DaemonSet","uid":"u","controller":true}]}})");
    set(out, {"metadata", "name"}, "d-" + hash);
    set(out, {"revision"}, number);
    set(out, {"data", "spec", "template", "metadata", "annotations", kModuleConfig}, modules);
    set(out, {"data", "spec", "template", "spec", "initContainers"},
        JsonArray{
            JsonObject{{"env", JsonArray{JsonObject{{"name", "DRIVER_CONFIG_DIGEST"}, {"value", digest}}}}}});
    return std::make_shared<const Json>(out);
  };
  const auto pod = make(
      R"({"metadata":{"name":"p","labels":{"controller-revision-hash":"h1"},
          "ownerReferences":[{"kind":"DaemonSet","uid":"u","controller":true}]},"status":{"phase":"Running"}})");
  const auto ready = [&](const std::string& digest, const std::string& modules, bool same) {
    return daemonset_ready(&live, {pod}, {revision("h1", 1, "7", "a"), revision("h2", 2, digest, modules)},
                           same)
        .ready;
  };
  EXPECT_TRUE(ready("7", "a", true));
  EXPECT_FALSE(ready("7", "a", false)) << "a ClusterPolicy's driver is as its revision says";
  EXPECT_FALSE(ready("8", "a", true));
  EXPECT_FALSE(ready("7", "b", true));
}

TEST(operand_manifests_control, case35_the_content_of_module_parameters_rolls_pods_from_its_first_change_on) {
  Cluster cluster;
  const Json config = *parse_json(R"({"metadata":{"name":"mods"},"data":{"nvidia.conf":"NVreg_A=1"}})");
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kConfigMaps, kNs, config, {}, done);
  }));
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"580.105.08",
                          "kernelModuleConfig":{"name":"mods"}}})");
  cluster.settle();
  const auto driver = [&] { return cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset"); };
  const auto told = [&] {
    return str(get_string(driver(), {"spec", "template", "metadata", "annotations", kModuleConfig}));
  };
  const auto digest = [&] {
    const std::string text = to_text(driver());
    return text.substr(text.find("DRIVER_CONFIG_DIGEST"), 60);
  };
  ASSERT_FALSE(driver().is_null()) << to_text(cluster.condition("p", "Error"));
  EXPECT_EQ(told(), "");
  const std::string before = digest();
  cluster.merge(kube::kConfigMaps, kNs, "mods", R"({"data":{"nvidia.conf":"NVreg_A=2"}})");
  cluster.settle();
  const std::string second = told();
  EXPECT_NE(second, "");
  EXPECT_EQ(digest(), before);
  // Back again is another change.
  cluster.merge(kube::kConfigMaps, kNs, "mods", R"({"data":{"nvidia.conf":"NVreg_A=1"}})");
  cluster.settle();
  EXPECT_NE(told(), "");
  EXPECT_NE(told(), second);
  cluster.loop->run_for(10s);  // words that waited
  const int writes = cluster.writes;
  cluster.controller.reset();
  cluster.start_operator();
  cluster.settle();
  EXPECT_EQ(cluster.writes, writes);
}

TEST(operator_control, nodes_of_another_runtime_are_named) {
  Cluster cluster;
  for (const auto& [name, version] :
       {std::pair{"c", "containerd://2.0.0"}, std::pair{"d", "cri-o://1.33.0"}}) {
    cluster.node(name, kGpu);
    Json patch = JsonObject{};
    set(patch, {"status", "nodeInfo", "containerRuntimeVersion"}, version);
    cluster.merge(kube::kNodes, "", name, to_text(patch), "status");
  }
  cluster.policy("p");
  cluster.settle();
  std::string warned;
  for (const auto& name : cluster.names(kube::kEvents, "default"))
    warned += str(get_string(cluster.get(kube::kEvents, "default", name), {"message"})) + " ";
  EXPECT_NE(warned.find("not configured: d"), std::string::npos) << warned;
}

TEST(operator_control, case03_an_unresolvable_image_stops_its_state_only) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"dcgm":{"enabled":true,"repository":"x","image":"dcgm"}})");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "notReady");
  const Json error = cluster.condition("p", "Error");
  EXPECT_EQ(get_string(error, {"reason"}), "ReconcileFailed");
  EXPECT_TRUE(get_string(error, {"message"}).starts_with("Failed to reconcile state-dcgm:"))
      << to_text(error);
  // Independent states go on.
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "nvidia-device-plugin-daemonset").is_null());
}

TEST(operator_control, quiet_cluster_costs_nothing) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  ASSERT_EQ(cluster.state("p"), "ready");
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes);
}

TEST(operator_control, a_node_whose_gpus_are_not_allocatable_keeps_the_policy_from_ready) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.node("n2", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.daemonsets_available();
  EXPECT_EQ(cluster.state("p"), "notReady");
  cluster.all_available();
  ASSERT_EQ(cluster.state("p"), "ready");

  // The plugin runs, its devices are unhealthy.
  cluster.devices("n2", R"("nvidia.com/gpu":"8")", R"("nvidia.com/gpu":"0")");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "notReady");
  const Json error = cluster.condition("p", "Error");
  EXPECT_EQ(get_string(error, {"reason"}), "OperandNotReady");
  EXPECT_EQ(
      get_string(error, {"message"}),
      "ClusterPolicy is not ready; states not ready: [state-device-plugin]; state-device-plugin: node "
      "n2: plugin: nvidia.com/gpu: 0 of 8 allocatable; run nvidia-smi on the node, and read what the device "
      "plugin says: kubectl -n gpu-operator logs nvidia-device-plugin-daemonset-n2");

  // One of several resources is enough; so is a node whose plugin nobody wants.
  cluster.devices("n2", R"("nvidia.com/mig-1g.10gb":"7")", R"("nvidia.com/mig-1g.10gb":"7")");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "ready");
  cluster.devices("n2", R"("nvidia.com/mig-1g.10gb":"7")", R"("nvidia.com/mig-1g.10gb":"0")");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "notReady");
  cluster.label("n2", R"("nvidia.com/gpu.deploy.device-plugin":"false")");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "ready");
}

TEST(operator_control, without_a_device_plugin_nothing_need_be_allocatable) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"devicePlugin":{"enabled":false}})");
  cluster.settle();
  cluster.daemonsets_available();
  EXPECT_EQ(cluster.state("p"), "ready");
}

TEST(operator_control, one_flipped_label_costs_one_request) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  const int before = cluster.writes;
  cluster.label("n1",
                R"("nvidia.com/gpu.deploy.dcgm-exporter":null,"nvidia.com/gpu.workload.config":"container")");
  cluster.settle();
  // The test's own patch and the operator's repair.
  EXPECT_EQ(cluster.writes - before, 2);
}

TEST(operator_control, first_install_costs_one_request_an_object_and_at_most_thirty_more) {
  Cluster cluster(false);
  cluster.node("n1", kGpu);
  cluster.policy("p");
  const int before = cluster.requests;
  cluster.start_operator();
  cluster.settle();
  std::size_t objects = 0;
  for (const auto* type : {&kube::kDaemonSets, &kube::kServiceAccounts, &kube::kRoles, &kube::kRoleBindings,
                           &kube::kConfigMaps, &kube::kServices}) {
    objects += cluster.names(*type, kNs).size();
  }
  for (const auto* type : {&kube::kClusterRoles, &kube::kClusterRoleBindings, &kube::kRuntimeClasses}) {
    for (const auto& name : cluster.names(*type, "")) objects += name.starts_with("nvidia");
  }
  const int listed = 9;
  EXPECT_GT(objects, 30u);
  // Watches are requests too: two at most for each of the watched types.
  EXPECT_LE(cluster.requests - before - listed, static_cast<int>(objects) + 30 + 2 * 14);
}

TEST(operator_control, deleted_and_edited_objects_come_back) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.remove(kube::kServiceAccounts, kNs, "nvidia-device-plugin");
  cluster.remove(kube::kDaemonSets, kNs, "nvidia-device-plugin-daemonset");
  cluster.merge(kube::kRuntimeClasses, "", "nvidia", R"({"metadata":{"ownerReferences":null}})");
  cluster.settle();
  EXPECT_FALSE(cluster.get(kube::kServiceAccounts, kNs, "nvidia-device-plugin").is_null());
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "nvidia-device-plugin-daemonset").is_null());
  EXPECT_EQ(
      get_array(cluster.get(kube::kRuntimeClasses, "", "nvidia"), {"metadata", "ownerReferences"}).size(),
      1u);
}

TEST(operator_control, a_disabled_state_is_taken_away) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  ASSERT_FALSE(cluster.get(kube::kDaemonSets, kNs, "gpu-feature-discovery").is_null());
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"gfd":{"enabled":false}}})");
  cluster.settle();
  EXPECT_TRUE(cluster.get(kube::kDaemonSets, kNs, "gpu-feature-discovery").is_null());
  EXPECT_TRUE(cluster.get(kube::kServiceAccounts, kNs, "nvidia-gpu-feature-discovery").is_null());
}

TEST(operator_control, restart_writes_nothing_when_all_is_as_it_should_be) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  cluster.controller.reset();
  const int before = cluster.writes;
  cluster.start_operator();
  cluster.settle();
  EXPECT_EQ(cluster.writes - before, 0);
}

TEST(operator_control, passes_are_counted_as_upstream_counts_them) {
  Cluster cluster;
  const auto count = [&](const std::string& name) {
    const std::string text = cluster.metrics.text(), key = "\ngpu_operator_" + name + " ";
    const auto at = text.find(key);
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -9.0 : std::strtod(text.c_str() + at + key.size(), nullptr);
  };
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(count("reconciliation_status"), -1) << "no policy";
  cluster.policy("p");
  cluster.settle();
  // Not ready counts as failed, but is no error.
  EXPECT_EQ(count("reconciliation_status"), 0);
  EXPECT_EQ(count("reconciliation_failed_total"), count("reconciliation_total"));
  EXPECT_GE(count("reconciliation_failed_total"), 1);
  EXPECT_EQ(count("reconciliation_errors_total"), 0);
  EXPECT_EQ(count("reconciliation_last_success_ts_seconds"), 0);
  cluster.all_available();
  const double failed = count("reconciliation_failed_total");
  EXPECT_EQ(count("reconciliation_status"), 1);
  EXPECT_GT(count("reconciliation_total"), failed);
  EXPECT_GT(count("reconciliation_last_success_ts_seconds"), 1.7e9);
  EXPECT_EQ(count("gpu_nodes_total"), 1);
  EXPECT_EQ(count("reconciliation_has_nfd_labels"), 1);
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"gfd":{"repository":"x"}}})");
  cluster.settle();
  EXPECT_GE(count("reconciliation_errors_total"), 1);
  EXPECT_GT(count("reconciliation_failed_total"), failed);
  EXPECT_EQ(count("reconciliation_status"), 0);
  cluster.merge(kube::kClusterPolicies, "", "p",
                R"({"spec":{"cdi":{"enabled":false,"nriPluginEnabled":true}}})");
  cluster.settle();
  EXPECT_EQ(count("reconciliation_status"), -1) << "nothing of it can be tried";
}

TEST(operator_control, ready_and_error_are_opposites_and_say_why) {
  Cluster cluster;
  const auto words = [&](const char* type, const char* field) {
    return str(get_string(cluster.condition("p", type), {field}));
  };
  const auto good = [&] {
    EXPECT_EQ(words("Ready", "status") + words("Error", "status"), "TrueFalse");
    EXPECT_EQ(words("Error", "reason"), "Ready");
    EXPECT_EQ(words("Error", "message"), "");
  };
  cluster.policy("p");
  cluster.settle();
  good();
  EXPECT_NE(words("Ready", "message").find("no operand is deployed"), std::string::npos);
  cluster.node("cpu", R"("feature.node.kubernetes.io/kernel-version.full":"6.8.0")");
  cluster.settle();
  good();
  EXPECT_NE(words("Ready", "message").find("No node with an NVIDIA GPU"), std::string::npos);
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(words("Ready", "status") + words("Error", "status"), "FalseTrue");
  EXPECT_EQ(words("Ready", "reason"), "Error");
  EXPECT_EQ(words("Ready", "message"), "");
  EXPECT_EQ(words("Error", "reason"), "OperandNotReady");
  cluster.all_available();
  good();
  EXPECT_EQ(get_string(cluster.get(kube::kClusterPolicies, "", "p"), {"status", "namespace"}), kNs);
}

// A state's DaemonSet that waits is not hidden by an object of the state that is not wanted.
TEST(operator_control, what_is_switched_off_hides_nothing_that_waits) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"dcgmExporter":{"serviceMonitor":{"enabled":false},"enablePodLabels":false}})");
  cluster.settle();
  cluster.all_available();
  ASSERT_EQ(cluster.state("p"), "ready");
  cluster.merge(kube::kDaemonSets, kNs, "nvidia-dcgm-exporter",
                R"({"status":{"numberUnavailable":1,"numberAvailable":0}})", "status");
  cluster.loop->run_for(10s);
  EXPECT_NE(get_string(cluster.condition("p", "Error"), {"message"})
                .find("states not ready: [state-dcgm-exporter]"),
            std::string_view::npos)
      << to_text(cluster.condition("p", "Error"));
}

TEST(operator_control, a_service_keeps_its_address_when_it_is_replaced) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  const auto service = [&] { return cluster.get(kube::kServices, kNs, "nvidia-dcgm-exporter"); };
  const std::string address(get_string(service(), {"spec", "clusterIP"}));
  ASSERT_NE(address, "");
  cluster.merge(kube::kClusterPolicies, "", "p",
                R"({"spec":{"dcgmExporter":{"service":{"type":"NodePort"}}}})");
  cluster.settle();
  EXPECT_EQ(get_string(service(), {"spec", "type"}), "NodePort");
  EXPECT_EQ(get_string(service(), {"spec", "clusterIP"}), address);
}

// New keys of what a policy names are seen when they come, not at the next unrelated event.
TEST(operator_control, config_maps_and_secrets_that_a_policy_names_are_watched) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"580.105.08",
                          "secretEnv":"s","repoConfig":{"configMapName":"repo"}}})");
  cluster.settle();
  const auto error = [&] { return str(get_string(cluster.condition("p", "Error"), {"message"})); };
  const auto driver = [&] { return to_text(cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset")); };
  EXPECT_NE(error().find("Secret 's' does not exist"), std::string::npos) << error();
  cluster.create(kube::kSecrets, kNs, R"({"metadata":{"name":"s"}})");
  cluster.settle();
  EXPECT_NE(error().find("ConfigMap 'repo' does not exist"), std::string::npos) << error();
  cluster.create(kube::kConfigMaps, kNs, R"({"metadata":{"name":"repo"},"data":{"a.list":""}})");
  cluster.settle();
  EXPECT_NE(driver().find("/etc/apt/sources.list.d/a.list"), std::string::npos) << error();
  cluster.merge(kube::kConfigMaps, kNs, "repo", R"({"data":{"b.list":""}})");
  cluster.settle();
  EXPECT_NE(driver().find("/etc/apt/sources.list.d/b.list"), std::string::npos);
}

TEST(operator_control, psa_labels_the_namespace_once) {
  Cluster cluster;
  cluster.policy("p");
  cluster.settle();
  const auto label = [&](const char* mode) {
    return std::string(kube::label(cluster.get(kube::kNamespaces, "", kNs),
                                   std::string("pod-security.kubernetes.io/") + mode));
  };
  EXPECT_EQ(label("enforce"), "");
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"psa":{"enabled":true}}})");
  cluster.settle();
  for (const char* mode : {"enforce", "audit", "warn"}) EXPECT_EQ(label(mode), "privileged") << mode;
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes);
  // OpenShift's own rules.
  const Json ours = *parse_json(R"({"metadata":{"name":"nvidia-gpu-operator"}})");
  EXPECT_EQ(to_text(namespace_patch(ours, false, true)),
            R"({"metadata":{"labels":{"openshift.io/cluster-monitoring":"true"}}})");
  EXPECT_EQ(to_text(namespace_patch(*parse_json(R"({"metadata":{"name":"other"}})"), true, true)), "{}");
}

TEST(operator_control, key_patterns_of_gpu_labels) {
  const auto has = [](const char* key) {
    return has_gpu_feature(JsonObject{{std::string("feature.node.kubernetes.io/") + key, "true"}});
  };
  EXPECT_TRUE(has("pci-10de.present"));
  EXPECT_TRUE(has("pci-0302_10de.present"));
  EXPECT_TRUE(has("pci-1200_10de.present"));
  EXPECT_TRUE(has("pci-10de_2330.present"));
  EXPECT_TRUE(has("pci-0302_10de_2330_10de_16c1.present"));
  EXPECT_FALSE(has("pci-0680_10de.present"));
  EXPECT_FALSE(has("pci-15b3.present"));
  EXPECT_FALSE(has("pci-10de.sriov.capable"));
  EXPECT_FALSE(has_gpu_feature(JsonObject{{"feature.node.kubernetes.io/pci-10de.present", "false"}}));
}

TEST(operator_control, a_gpu_cluster_and_a_policy_exclude_each_other) {
  Cluster cluster;
  cluster.policy("p");
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "ready");
  const Json object = *parse_json(
      R"({"apiVersion":"nvidia.com/v1alpha1","kind":"GPUCluster","metadata":{"name":"gpu-cluster"},
      "spec":{"draDriver":{"repository":"r","image":"i","version":"1"}}})");
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kGpuClusters, "", object, {}, done);
  }));
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_EQ(cluster.state("p"), "notReady");
  EXPECT_EQ(get_string(cluster.condition("p", "Error"), {"reason"}), "ReconcileFailed");
  EXPECT_NE(get_string(cluster.condition("p", "Error"), {"message"}).find("'gpu-cluster'"),
            std::string_view::npos);
  EXPECT_TRUE(cluster.labels("n1").empty()) << "no label while both are there";
  auto error = [&] {
    const Json live = cluster.get(kube::kGpuClusters, "", "gpu-cluster");
    const Json* found = kube::condition(live, "Error");
    return found ? str(get_string(*found, {"reason"})) + ": " + str(get_string(*found, {"message"})) : "";
  };
  EXPECT_TRUE(error().starts_with("PrerequisiteNotMet: ClusterPolicy 'p'")) << error();
  cluster.remove(kube::kGpuClusters, "", "gpu-cluster");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1")["nvidia.com/gpu.present"], "true");
  EXPECT_NE(get_string(cluster.condition("p", "Error"), {"reason"}), "ReconcileFailed");
  cluster.remove(kube::kClusterPolicies, "", "p");
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kGpuClusters, "", object, {}, done);
  }));
  cluster.settle();
  EXPECT_TRUE(error().starts_with("OperandNotReady: ")) << error();
  const Json bad = *parse_json(
      R"({"apiVersion":"nvidia.com/v1alpha1","kind":"GPUCluster","metadata":{"name":"foo"},"spec":{"draDriver":{}}})");
  const auto refused = kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kGpuClusters, "", bad, {}, done);
  });
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("GPUCluster is a singleton, metadata.name must be 'gpu-cluster'"),
            std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace gpuop::op
