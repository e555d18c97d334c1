// What an uninstallation leaves on nodes: nothing of the operator's, everything of others'.
#include "operator/cleanup.h"

#include <gtest/gtest.h>

#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kOthers =
    R"(,"mine":"1","nvidia.com/gpu.deploy.dcgm":"false","nvidia.com/gpu.workload.config":"container",
       "nvidia.com/mig.config":"all-1g.10gb","feature.node.kubernetes.io/own":"x")";

Json bare(Json node) {
  for (const char* part : {"resourceVersion", "managedFields", "generation"})
    remove(node, {"metadata", part});
  if (get_object(node, {"metadata", "annotations"}).empty()) remove(node, {"metadata", "annotations"});
  if (get_array(node, {"spec", "taints"}).empty()) remove(node, {"spec", "taints"});
  return node;
}

TEST(operator_cleanup, a_node_is_as_it_was_before_the_operator_came) {
  Cluster cluster(false);
  cluster.node("n1", std::string(kGpu) + kOthers);
  cluster.node("cpu", R"("a":"b")");
  cluster.merge(
      kube::kNodes, "", "n1",
      R"({"metadata":{"annotations":{"mine":"2"}},"spec":{"taints":[{"key":"mine","effect":"NoSchedule"}]}})");
  cluster.merge(kube::kNodes, "", "n1", R"({"status":{"conditions":[{"type":"Ready","status":"True"}]}})",
                "status");
  const Json before = bare(cluster.get(kube::kNodes, "", "n1"));
  cluster.start_operator();
  cluster.policy("p", R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"595.91.07",
                          "upgradePolicy":{"autoUpgrade":true}},
                          "fleet":{"startupTaint":{"enabled":true},"dedicatedTaint":{"enabled":true}}})");
  cluster.loop->run_for(10s);
  const Json during = cluster.get(kube::kNodes, "", "n1");
  EXPECT_EQ(get_array(during, {"spec", "taints"}).size(), 3u);
  EXPECT_TRUE(kube::condition(during, "GPUReady"));
  EXPECT_EQ(kube::annotation(during, "nvidia.com/gpu-driver-upgrade-enabled"), "true");
  cluster.label("n1", R"("nvidia.com/gpu.deploy.device-plugin":"paused-for-driver-upgrade",
                          "nvidia.com/gpu.deploy.driver":"pre-installed")");

  // While the policy is there, its operands are.
  cluster.controller.reset();
  const auto kept = cleanup_nodes(*cluster.loop, *cluster.client, {.ns = kNs});
  ASSERT_TRUE(kept) << kept.error().text();
  EXPECT_FALSE(*kept);
  EXPECT_EQ(kube::label(cluster.get(kube::kNodes, "", "n1"), "nvidia.com/gpu.present"), "true");

  cluster.remove(kube::kClusterPolicies, "", "p");
  const auto done = cleanup_nodes(*cluster.loop, *cluster.client, {.ns = kNs});
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_TRUE(*done);
  EXPECT_EQ(to_text(bare(cluster.get(kube::kNodes, "", "n1"))), to_text(before));
  const int writes = cluster.writes;
  ASSERT_TRUE(cleanup_nodes(*cluster.loop, *cluster.client, {.ns = kNs}));
  EXPECT_EQ(cluster.writes, writes) << "nothing is left to do";
}

TEST(operator_cleanup, feature_labels_go_where_feature_discovery_is_ours) {
  const Json node = *parse_json(R"({"metadata":{"name":"n","resourceVersion":"1",
      "labels":{"feature.node.kubernetes.io/cpu-model":"x","feature.node.kubernetes.io/own":"y","nvidia.com/gpu.product":"L4","other/label":"z"},
      "annotations":{"nfd.node.kubernetes.io/feature-labels":"cpu-model,nvidia.com/gpu.product","nfd.node.kubernetes.io/worker.version":"1","a":"b"}}})");
  EXPECT_EQ(to_text(decide_cleanup(node, false).patch), "{}");
  Json after = node;
  kube::merge_apply(after, decide_cleanup(node, true).patch);
  EXPECT_EQ(to_text(*find(after, {"metadata", "labels"})),
            R"({"feature.node.kubernetes.io/own":"y","other/label":"z"})");
  EXPECT_EQ(to_text(*find(after, {"metadata", "annotations"})), R"({"a":"b"})");
}

TEST(operator_cleanup, it_waits_for_the_operator_s_end) {
  Cluster cluster(false);
  cluster.node("n1", R"("nvidia.com/gpu.present":"true")");
  cluster.pod("gpu-operator", "n1", Cluster::kRunning);
  const CleanupOptions options{.ns = kNs, .wait_for_operator = true, .limit = 1min};
  const auto late = cleanup_nodes(*cluster.loop, *cluster.client, options);
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().text().find("still run"), std::string::npos) << late.error().text();
  const Handle end = cluster.loop->after(5s, [&] {
    kube::DeleteOptions now;
    now.grace_seconds = 0;
    cluster.client->remove(kube::kPods, kNs, "gpu-operator-n1", now, [](auto) {}).detach();
  });
  const auto done = cleanup_nodes(*cluster.loop, *cluster.client, options);
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_TRUE(*done);
  EXPECT_EQ(kube::label(cluster.get(kube::kNodes, "", "n1"), "nvidia.com/gpu.present"), "");
}

}  // namespace
}  // namespace gpuop::op
