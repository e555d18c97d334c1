#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

using kube::kDeployments;
using kube::kJobs;
using kube::kNodes;
using kube::kPods;
using kube::kReplicaSets;

constexpr std::string_view kDeployment = R"(
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
)";

struct WorkCluster : SmallCluster {
  WorkCluster() {
    kubelet = true;
    for (const char* name : {"n1", "n2"}) add_node(name);
  }
  std::int64_t status(std::string_view key) {
    return get_int(*get(kDeployments, "default", "web"), {"status", key}, -1);
  }
  std::string reason(std::string_view type) {
    const Json object = *get(kDeployments, "default", "web");
    const Json* condition = kube::condition(object, type);
    return condition == nullptr ? "" : str(get_string(*condition, {"reason"}));
  }
};

TEST(cluster_controllers, deployment_rolls_out_and_over) {
  WorkCluster t;
  t.create(kDeployments, "default", kDeployment);
  t.settle();
  for (const char* key : {"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"})
    EXPECT_EQ(t.status(key), 3) << key;
  EXPECT_EQ(t.status("unavailableReplicas"), -1);
  EXPECT_EQ(t.reason("Available"), "MinimumReplicasAvailable");
  EXPECT_EQ(t.reason("Progressing"), "NewReplicaSetAvailable");
  const JsonArray sets = t.list(kReplicaSets, "default");
  ASSERT_EQ(sets.size(), 1u);
  const std::string hash = str(kube::label(sets[0], "pod-template-hash"));
  EXPECT_EQ(kube::name_of(sets[0]), "web-" + hash);
  EXPECT_EQ(t.count(kPods, "default", "pod-template-hash=" + hash), 3);
  EXPECT_EQ(kube::annotation(*t.get(kDeployments, "default", "web"), "deployment.kubernetes.io/revision"),
            "1");

  int least = 3;
  t.pods.on_change([&](const auto&, const auto&) {
    int ready = 0;
    t.pods.for_each([&](const auto& pod) {
      const Json* condition = kube::condition(*pod, "Ready");
      ready += condition != nullptr && get_string(*condition, {"status"}) == "True" &&
               !has(*pod, {"metadata", "deletionTimestamp"});
    });
    least = std::min(least, ready);
  });
  t.settle();
  least = 3;
  t.merge(kDeployments, "default", "web",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}})");
  t.settle(1s);
  EXPECT_EQ(least, 3);  // 25 % of 3, rounded down, may be away: none
  EXPECT_EQ(t.status("updatedReplicas"), 3);
  EXPECT_EQ(t.count(kPods, "default", "pod-template-hash=" + hash), 0);
  EXPECT_EQ(t.count(kPods, "default"), 3);
  EXPECT_EQ(t.count(kReplicaSets, "default"), 2);
  EXPECT_EQ(kube::annotation(*t.get(kDeployments, "default", "web"), "deployment.kubernetes.io/revision"),
            "2");
  // And back: the old ReplicaSet serves again, as revision 3.
  t.merge(kDeployments, "default", "web",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}})");
  t.settle(1s);
  EXPECT_EQ(t.count(kPods, "default", "pod-template-hash=" + hash), 3);
  EXPECT_EQ(kube::annotation(*t.get(kDeployments, "default", "web"), "deployment.kubernetes.io/revision"),
            "3");
}

TEST(cluster_controllers, deployment_scales_and_recreates) {
  WorkCluster t;
  Json object = SmallCluster::yaml(kDeployment);
  set(object, {"spec", "strategy", "type"}, Json("Recreate"));
  t.create(kDeployments, "default", object);
  t.settle();
  t.merge(kDeployments, "default", "web", R"({"spec":{"replicas":5}})");
  t.settle();
  EXPECT_EQ(t.status("availableReplicas"), 5);
  t.merge(kDeployments, "default", "web", R"({"spec":{"replicas":1}})");
  t.settle();
  EXPECT_EQ(t.count(kPods, "default"), 1);
  bool mixed = false;
  t.pods.on_change([&](const auto&, const auto&) {
    std::set<std::string> hashes;
    t.pods.for_each([&](const auto& pod) { hashes.insert(str(kube::label(*pod, "pod-template-hash"))); });
    mixed = mixed || hashes.size() > 1;
  });
  t.merge(kDeployments, "default", "web",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}})");
  t.settle(1s);
  EXPECT_FALSE(mixed);
  EXPECT_EQ(t.status("updatedReplicas"), 1);
  t.remove(kDeployments, "default", "web");
  t.settle();
  EXPECT_EQ(t.count(kReplicaSets, "default") + t.count(kPods, "default"), 0);
}

TEST(cluster_controllers, deployment_that_does_not_progress_says_so) {
  WorkCluster t;
  t.kubelet = false;
  Json object = SmallCluster::yaml(kDeployment);
  set(object, {"spec", "progressDeadlineSeconds"}, Json(60));
  t.create(kDeployments, "default", object);
  t.settle();
  EXPECT_EQ(t.reason("Progressing"), "ReplicaSetUpdated");
  EXPECT_EQ(t.reason("Available"), "MinimumReplicasUnavailable");
  t.loop->run_for(61s);
  EXPECT_EQ(t.reason("Progressing"), "ProgressDeadlineExceeded");
}

constexpr std::string_view kJob = R"(
metadata: {name: j, namespace: default}
spec:
  completions: 2
  backoffLimit: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
)";

TEST(cluster_controllers, job_runs_to_its_end) {
  WorkCluster t;
  Json object = SmallCluster::yaml(kJob);
  set(object, {"spec", "ttlSecondsAfterFinished"}, Json(60));
  t.create(kJobs, "default", object);
  t.settle();
  for (int i = 0; i < 2; ++i) {
    const JsonArray pods = t.list(kPods, "default", "job-name=j");
    ASSERT_EQ(pods.size(), static_cast<std::size_t>(i + 1));
    for (const Json& pod : pods) {
      if (get_string(pod, {"status", "phase"}) == "Running")
        t.set_pod_status(pod, R"({"phase":"Succeeded"})");
    }
    t.settle();
  }
  const auto job = t.get(kJobs, "default", "j");
  ASSERT_TRUE(job);
  EXPECT_EQ(get_int(*job, {"status", "succeeded"}), 2);
  EXPECT_FALSE(has(*job, {"status", "active"}));
  EXPECT_NE(kube::condition(*job, "SuccessCriteriaMet"), nullptr);
  ASSERT_NE(kube::condition(*job, "Complete"), nullptr);
  EXPECT_FALSE(get_string(*job, {"status", "completionTime"}).empty());
  t.loop->run_for(61s);
  EXPECT_FALSE(t.get(kJobs, "default", "j"));
  EXPECT_EQ(t.count(kPods, "default"), 0);
}

TEST(cluster_controllers, job_fails_after_its_limit) {
  WorkCluster t;
  t.pods.on_change([&](const auto&, const auto& now) {
    if (now && get_string(*now, {"status", "phase"}) == "Running") {
      t.set_pod_status(
          *now, R"({"phase":"Failed","conditions":[{"type":"Ready","status":"False","lastTransitionTime":")" +
                    format_time(t.loop->now()) + "\"}]}");
    }
  });
  t.create(kJobs, "default", kJob);
  t.loop->run_for(2min);
  const auto job = t.get(kJobs, "default", "j");
  ASSERT_TRUE(job);
  const Json* failed = kube::condition(*job, "Failed");
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(get_string(*failed, {"reason"}), "BackoffLimitExceeded");
  EXPECT_EQ(get_int(*job, {"status", "failed"}), 3);
  EXPECT_EQ(t.count(kPods, "default"), 3);
}

TEST(cluster_controllers, silent_node_becomes_unknown_and_comes_back) {
  WorkCluster t;
  t.create(kNodes, "", *parse_json(R"({"metadata":{"name":"live"}})"));
  t.create(kPods, "default", R"(
metadata: {name: p}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
)");
  t.settle();
  t.loop->run_for(49s);
  Json node = *t.get(kNodes, "", "n1");
  EXPECT_EQ(get_string(*kube::condition(node, "Ready"), {"status"}), "True");
  EXPECT_TRUE(get_array(node, {"spec", "taints"}).empty());
  t.loop->run_for(2s);
  node = *t.get(kNodes, "", "n1");
  EXPECT_EQ(get_string(*kube::condition(node, "Ready"), {"status"}), "Unknown");
  EXPECT_EQ(get_string(*kube::condition(node, "Ready"), {"reason"}), "NodeStatusUnknown");
  EXPECT_EQ(get_array(node, {"spec", "taints"}).size(), 2u);
  EXPECT_EQ(get_string(*kube::condition(*t.get(kPods, "default", "p"), "Ready"), {"status"}), "False");
  t.kubelet = false;
  t.loop->run_for(298s);
  EXPECT_FALSE(has(*t.get(kPods, "default", "p"), {"metadata", "deletionTimestamp"}));
  t.loop->run_for(5s);
  EXPECT_TRUE(has(*t.get(kPods, "default", "p"), {"metadata", "deletionTimestamp"}));
  // Heartbeats again.
  t.merge(kNodes, "", "n1",
          R"({"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}})",
          "status");
  t.settle();
  EXPECT_TRUE(get_array(*t.get(kNodes, "", "n1"), {"spec", "taints"}).empty());
  // A deleted node takes its pods along.
  t.remove(kNodes, "", "n1");
  t.loop->run_for(41s);
  EXPECT_FALSE(t.get(kPods, "default", "p"));
}

TEST(cluster_controllers, leases_keep_a_node_alive) {
  WorkCluster t;
  t.create(
      kube::kLeases, "kube-node-lease",
      *parse_json(R"({"metadata":{"name":"n1"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40}})"));
  for (int i = 0; i < 10; ++i) {
    t.loop->run_for(10s);
    t.merge(kube::kLeases, "kube-node-lease", "n1",
            R"({"spec":{"renewTime":")" + format_micro_time(t.loop->now()) + "\"}}");
  }
  EXPECT_EQ(get_string(*kube::condition(*t.get(kNodes, "", "n1"), "Ready"), {"status"}), "True");
  EXPECT_EQ(get_string(*kube::condition(*t.get(kNodes, "", "n2"), "Ready"), {"status"}), "Unknown");
}

TEST(cluster_controllers, a_cordon_is_a_taint) {
  WorkCluster t;
  t.merge(kNodes, "", "n1", R"({"spec":{"unschedulable":true}})");
  t.settle();
  const Json node = *t.get(kNodes, "", "n1");
  ASSERT_EQ(get_array(node, {"spec", "taints"}).size(), 1u);
  EXPECT_EQ(get_string(get_array(node, {"spec", "taints"})[0], {"key"}), "node.kubernetes.io/unschedulable");
  t.merge(kNodes, "", "n1", R"({"spec":{"unschedulable":null}})");
  t.settle();
  EXPECT_TRUE(get_array(*t.get(kNodes, "", "n1"), {"spec", "taints"}).empty());
}

TEST(cluster_controllers, a_cut_off_controller_catches_up) {
  WorkCluster t;
  t.create(kDeployments, "default", kDeployment);
  t.settle();
  for (int i = 0; i < 3; ++i) {
    t.server.cut_watches();
    t.server.compact();
    t.merge(kDeployments, "default", "web", R"({"spec":{"replicas":)" + std::to_string(4 + i) + "}}");
    t.settle(5s);
    EXPECT_EQ(t.status("availableReplicas"), 4 + i);
    EXPECT_EQ(t.count(kPods, "default"), 4 + i);
  }
}

constexpr kube::Resource kBudgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
constexpr kube::Resource kSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};

TEST(cluster_controllers, disruption_budgets_count_healthy_pods) {
  WorkCluster t;
  t.create(kDeployments, "default", kDeployment);
  t.create(kBudgets, "default", R"(
metadata: {name: b}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
)");
  t.settle();
  Json budget = *t.get(kBudgets, "default", "b");
  EXPECT_EQ(get_int(budget, {"status", "expectedPods"}), 3);
  EXPECT_EQ(get_int(budget, {"status", "currentHealthy"}), 3);
  EXPECT_EQ(get_int(budget, {"status", "desiredHealthy"}), 2);
  EXPECT_EQ(get_int(budget, {"status", "disruptionsAllowed"}), 1);
  EXPECT_EQ(get_string(*kube::condition(budget, "DisruptionAllowed"), {"reason"}), "SufficientPods");
  for (const Json& pod : t.list(kPods, "default"))
    t.set_pod_status(pod, R"({"conditions":[{"type":"Ready","status":"False"}]})");
  t.settle();
  budget = *t.get(kBudgets, "default", "b");
  EXPECT_EQ(get_int(budget, {"status", "currentHealthy"}, -1), 0);
  EXPECT_EQ(get_int(budget, {"status", "disruptionsAllowed"}, -1), 0);
  EXPECT_EQ(get_string(*kube::condition(budget, "DisruptionAllowed"), {"status"}), "False");
}

TEST(cluster_controllers, endpoint_slices_follow_pods) {
  WorkCluster t;
  t.create(kDeployments, "default", kDeployment);
  t.create(kube::kServices, "default", R"(
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
)");
  t.settle();
  const auto slices = [&] { return t.list(kSlices, "default", "kubernetes.io/service-name=web"); };
  ASSERT_EQ(slices().size(), 1u);
  EXPECT_TRUE(find(slices()[0], {"endpoints"})->is_null());
  const Json pod = t.list(kPods, "default")[0];
  t.set_pod_status(pod, R"({"podIP":"10.1.2.3"})");
  t.settle();
  ASSERT_EQ(slices().size(), 1u);
  const Json slice = slices()[0];
  ASSERT_EQ(get_array(slice, {"endpoints"}).size(), 1u);
  const Json& endpoint = get_array(slice, {"endpoints"})[0];
  EXPECT_EQ(to_text(*find(endpoint, {"addresses"})), R"(["10.1.2.3"])");
  EXPECT_TRUE(get_bool(endpoint, {"conditions", "ready"}));
  EXPECT_EQ(get_int(get_array(slice, {"ports"})[0], {"port"}), 8080);
  t.remove(kube::kServices, "default", "web");
  t.settle();
  EXPECT_TRUE(slices().empty());
}

}  // namespace
}  // namespace gpuop::cluster::test
