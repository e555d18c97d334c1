// What an API server refuses or leaves out: the right that is missing, the webhook or the quota in the way, a
// stale definition, kinds that are not there. Each is named, and everything else goes on.
#include <gtest/gtest.h>

#include "operator/refusals.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kUser = "system:serviceaccount:gpu-operator:gpu-operator";

std::string error_of(Cluster& cluster) {
  const Json error = cluster.condition("p", "Error");
  return std::string(get_string(error, {"reason"})) + ": " + std::string(get_string(error, {"message"}));
}
bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(operator_refusals, a_missing_right_to_create_is_named_with_its_rule_and_the_rest_goes_on) {
  Cluster cluster;
  cluster.refuse = [](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.method != "POST" || !request.path.ends_with("/configmaps")) return std::nullopt;
    return Cluster::status_answer(
        403, "Forbidden",
        std::string("configmaps is forbidden: User \"") + kUser +
            R"(" cannot create resource "configmaps" in API group "" in the namespace "gpu-operator")");
  };
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  const std::string error = error_of(cluster);
  EXPECT_TRUE(error.starts_with("ReconcileFailed: Failed to reconcile state-")) << error;
  EXPECT_TRUE(contains(error, "create ConfigMap '")) << error;
  EXPECT_TRUE(
      contains(error, std::string("give ") + kUser +
                          " this right in a Role of namespace 'gpu-operator': apiGroups: [\"\"], resources: "
                          "[\"configmaps\"], verbs: [\"create\"]"))
      << error;
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "gpu-feature-discovery").is_null())
      << "needs no ConfigMap";
  cluster.refuse = nullptr;
  cluster.loop->run_for(10s);
  EXPECT_FALSE(contains(error_of(cluster), "ReconcileFailed")) << "it is tried again";
}

TEST(operator_refusals, a_missing_right_to_watch_is_named_although_no_pass_can_start) {
  Cluster cluster(false);
  cluster.policy("p");
  cluster.refuse = [](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (!contains(request.path, "/runtimeclasses")) return std::nullopt;
    return Cluster::status_answer(
        403, "Forbidden",
        std::string("runtimeclasses.node.k8s.io is forbidden: User \"") + kUser +
            "\" cannot list resource \"runtimeclasses\" in API group \"node.k8s.io\" at "
            "the cluster scope");
  };
  cluster.start_operator();
  cluster.loop->run_for(15s);
  EXPECT_TRUE(contains(error_of(cluster),
                       "in a ClusterRole: apiGroups: [\"node.k8s.io\"], resources: "
                       "[\"runtimeclasses\"], verbs: [\"list\"]"))
      << error_of(cluster);
  cluster.refuse = nullptr;
  cluster.loop->run_for(5min);
  EXPECT_EQ(cluster.state("p"), "ready");
}

TEST(operator_refusals, a_missing_right_on_nodes_is_named) {
  Cluster cluster;
  bool status_only = false;
  cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.method != "PATCH" || !contains(request.path, "/nodes/n1")) return std::nullopt;
    const bool status = request.path.ends_with("/status");
    if (status != status_only || (status && !contains(request.body, "GPUReady"))) return std::nullopt;
    return Cluster::status_answer(403, "Forbidden",
                                  std::string("nodes \"n1\" is forbidden: User \"") + kUser +
                                      "\" cannot patch resource \"" + (status ? "nodes/status" : "nodes") +
                                      "\" in API group \"\" at the cluster scope");
  };
  cluster.policy("p");
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_TRUE(contains(error_of(cluster), "resources: [\"nodes\"], verbs: [\"patch\"]")) << error_of(cluster);
  status_only = true;
  cluster.loop->run_for(1min);
  EXPECT_FALSE(contains(error_of(cluster), "ReconcileFailed")) << error_of(cluster);
  cluster.all_available();
  EXPECT_EQ(cluster.state("p"), "ready") << "a condition is not worth failing for";
  EXPECT_TRUE(contains(std::string(get_string(cluster.condition("p", "Advice"), {"message"})),
                       "resources: [\"nodes/status\"], verbs: [\"patch\"]"))
      << to_text(cluster.condition("p", "Advice"));
}

TEST(operator_refusals, a_webhook_or_a_quota_that_refuses_one_object_is_named_and_the_others_go_on) {
  for (const auto& [message, cure] : std::vector<std::pair<std::string, std::string>>{
           {"admission webhook \"images.example.com\" denied the request: image not signed",
            "exempt the operator's namespace from webhook 'images.example.com'"},
           {"daemonsets.apps \"nvidia-dcgm-exporter\" is forbidden: exceeded quota: small, requested: "
            "count/daemonsets.apps=1, used: count/daemonsets.apps=5, limited: count/daemonsets.apps=5",
            "raise ResourceQuota 'small'"}}) {
    Cluster cluster;
    cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.method != "POST" || !request.path.ends_with("/daemonsets") ||
          !contains(request.body, "\"nvidia-dcgm-exporter\""))
        return std::nullopt;
      return Cluster::status_answer(403, "Forbidden", message);
    };
    cluster.node("n1", kGpu);
    cluster.policy("p");
    cluster.settle();
    const std::string error = error_of(cluster);
    EXPECT_TRUE(
        contains(error, "Failed to reconcile state-dcgm-exporter: create DaemonSet 'nvidia-dcgm-exporter'"))
        << error;
    EXPECT_TRUE(contains(error, cure)) << error;
    EXPECT_TRUE(cluster.get(kube::kDaemonSets, kNs, "nvidia-dcgm-exporter").is_null());
    EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "gpu-feature-discovery").is_null());
    EXPECT_FALSE(cluster.get(kube::kServices, kNs, "nvidia-dcgm-exporter").is_null()) << "of the same state";
  }
}

TEST(operator_refusals, a_definition_that_drops_our_fields_is_named) {
  Cluster cluster(false);
  Json old = policy::crds().front();
  for (auto& version : find_mutable(old, {"spec", "versions"})->get_array()) {
    remove(version, {"schema", "openAPIV3Schema", "properties", "spec", "properties", "fleet"});
    remove(version,
           {"schema", "openAPIV3Schema", "properties", "status", "properties", "observedGeneration"});
  }
  cluster.merge(kube::kCustomResourceDefinitions, "", "clusterpolicies.nvidia.com", to_text(old));
  cluster.loop->run_for(1s);
  cluster.policy("p", R"({"fleet":{"startupTaint":{"enabled":true}}})");
  cluster.start_operator();
  cluster.settle();
  const Json condition = cluster.condition("p", "FieldsIgnored");
  EXPECT_EQ(get_string(condition, {"reason"}), "StaleDefinition");
  EXPECT_TRUE(contains(std::string(get_string(condition, {"message"})),
                       "drops spec.fleet, status.observedGeneration"))
      << to_text(condition);
  EXPECT_EQ(cluster.state("p"), "ready");
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes);
  // Brought up to date, it is asked for again with the policy's next change.
  cluster.merge(kube::kCustomResourceDefinitions, "", "clusterpolicies.nvidia.com",
                to_text(policy::crds().front()));
  cluster.loop->run_for(1s);
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"fleet":{"startupTaint":{"enabled":true}}}})");
  cluster.settle();
  EXPECT_TRUE(cluster.condition("p", "FieldsIgnored").is_null())
      << to_text(cluster.condition("p", "FieldsIgnored"));
}

TEST(operator_refusals, without_service_monitors_and_openshift_s_kinds_all_is_well) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"dcgmExporter":{"serviceMonitor":{"enabled":true}},
                          "operator":{"metrics":{"serviceMonitor":{"enabled":true}}}})");
  cluster.settle();
  cluster.all_available();
  EXPECT_EQ(cluster.state("p"), "ready");
}

TEST(operator_refusals, an_environment_that_would_ruin_nodes_is_not_carried_out_and_odd_settings_are_told) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"toolkit":{"env":[{"name":"CONTAINERD_RUNTIME_CLASS","value":"runc"}]},
                          "devicePlugin":{"env":[{"name":"DEVICE_LIST_STRATEGY","value":"envvar"}]}})");
  cluster.settle();
  const std::string error = error_of(cluster);
  EXPECT_TRUE(contains(error,
                       "Failed to reconcile state-container-toolkit: spec.toolkit.env "
                       "CONTAINERD_RUNTIME_CLASS: 'runc': would replace the node's own runtime handler"))
      << error;
  EXPECT_TRUE(cluster.get(kube::kDaemonSets, kNs, "nvidia-container-toolkit-daemonset").is_null());
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "nvidia-device-plugin-daemonset").is_null());
  const Json advice = cluster.condition("p", "Advice");
  EXPECT_EQ(get_string(advice, {"reason"}), "SettingsToReview");
  EXPECT_TRUE(contains(std::string(get_string(advice, {"message"})),
                       "spec.devicePlugin.env DEVICE_LIST_STRATEGY: 'envvar': "))
      << to_text(advice);
  cluster.merge(kube::kClusterPolicies, "", "p",
                R"({"spec":{"toolkit":{"env":null},"devicePlugin":{"env":null}}})");
  cluster.settle();
  EXPECT_TRUE(cluster.condition("p", "Advice").is_null());
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "nvidia-container-toolkit-daemonset").is_null());
}

TEST(operator_refusals, what_does_not_go_together_is_a_condition_a_metric_and_an_event_and_blocks_nothing) {
  Cluster cluster;
  cluster.node("n1", std::string(kGpu) + R"(,"nvidia.com/gpu.product":"Tesla-V100-SXM2-16GB")");
  cluster.policy("p",
                 R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"595.91.07"}})");
  cluster.settle();
  Json compatible = cluster.condition("p", "Compatible");
  EXPECT_EQ(get_string(compatible, {"status"}), "False");
  EXPECT_EQ(get_string(compatible, {"reason"}), "VersionMatrix");
  EXPECT_TRUE(
      contains(std::string(get_string(compatible, {"message"})), "driver-old-gpu: node n1: branch 580"))
      << to_text(compatible);
  EXPECT_TRUE(contains(cluster.metrics.text(), "gpu_operator_compatibility_findings{severity=\"error\"} 1"));
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset").is_null());
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"driver":{"version":"580.105.08"}}})");
  cluster.settle();
  compatible = cluster.condition("p", "Compatible");
  EXPECT_EQ(get_string(compatible, {"status"}), "True") << to_text(compatible);
}

TEST(operator_refusals, what_does_not_go_together_is_not_deployed_where_that_is_asked_for) {
  Cluster cluster(false);
  cluster.node("n1", std::string(kGpu) + R"(,"nvidia.com/gpu.product":"Tesla-V100-SXM2-16GB")");
  cluster.policy("p",
                 R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"595.91.07"}})");
  cluster.more_env["COMPATIBILITY_ENFORCE"] = "true";
  cluster.start_operator();
  cluster.settle();
  const std::string error = error_of(cluster);
  EXPECT_TRUE(error.starts_with("ReconcileFailed: incompatible, and COMPATIBILITY_ENFORCE is true: "))
      << error;
  EXPECT_TRUE(contains(error, "driver-old-gpu")) << error;
  EXPECT_TRUE(cluster.names(kube::kDaemonSets, kNs).empty());
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"driver":{"version":"580.105.08"}}})");
  cluster.settle();
  EXPECT_FALSE(cluster.names(kube::kDaemonSets, kNs).empty());
}

TEST(operator_refusals, a_server_without_a_proper_version_is_named) {
  Cluster cluster(false);
  std::string version = "latest";
  cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.path != "/version") return std::nullopt;
    return HttpResponse::json(200, R"({"gitVersion":")" + version + R"("})");
  };
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.start_operator();
  cluster.settle();
  EXPECT_TRUE(contains(error_of(cluster), "read the API server's version: 'latest': must be a version"))
      << error_of(cluster);
  version = "v1.33.1+k3s1";
  cluster.loop->run_for(10s);
  EXPECT_FALSE(contains(error_of(cluster), "ReconcileFailed")) << error_of(cluster);
}

TEST(operator_refusals, sentences_that_nobody_knows_get_no_cure) {
  EXPECT_EQ(cure_of_refusal("out of cheese"), "");
  EXPECT_EQ(cure_of_refusal("x is forbidden: User \"u\" has odd luck"), "");
}

// A start, or a takeover of a policy that was ready, meets a server that is not quite there.
TEST(operator_refusals, a_failure_that_passes_is_in_the_condition_and_no_event) {
  const auto after = [](Duration span) {
    Cluster cluster;
    cluster.node("n1", kGpu);
    cluster.policy("p");
    cluster.settle();
    cluster.all_available();
    cluster.loop->run_for(10s);
    EXPECT_EQ(cluster.state("p"), "ready");
    cluster.controller.reset();
    cluster.refuse = [](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (request.path != "/version") return std::nullopt;
      return Cluster::status_answer(500, "InternalError", "etcd is away");
    };
    cluster.start_operator();
    cluster.loop->run_for(span);
    EXPECT_TRUE(error_of(cluster).starts_with("ReconcileFailed: read the API server's version: "))
        << error_of(cluster);
    cluster.refuse = nullptr;
    cluster.loop->run_for(1min);
    EXPECT_EQ(cluster.state("p"), "ready");
    return cluster.events("Warning");
  };
  EXPECT_EQ(after(3s), std::vector<std::string>());
  const auto lasting = after(15s);
  ASSERT_EQ(lasting.size(), 1u);
  EXPECT_TRUE(lasting[0].starts_with("ClusterPolicy p ReconcileFailed: ")) << lasting[0];
}

}  // namespace
}  // namespace gpuop::op
