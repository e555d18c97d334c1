#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

using kube::kControllerRevisions;
using kube::kDaemonSets;
using kube::kNodes;
using kube::kPods;

struct DaemonCluster : SmallCluster {
  DaemonCluster() {
    kubelet = true;
    for (int i = 1; i <= 5; ++i) add_node("n" + std::to_string(i), i <= 3 ? R"({"gpu":"yes"})" : "{}");
  }
  std::int64_t status(std::string_view key) {
    return get_int(*get(kDaemonSets, "default", "d"), {"status", key}, -1);
  }
  void set_image(const std::string& image) {
    merge(kDaemonSets, "default", "d",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":")" + image + "\"}]}}}}");
    settle();
  }
};

TEST(cluster_controllers, case31_daemon_set_follows_its_nodes) {
  DaemonCluster t;
  const Duration before = t.loop->elapsed();
  t.create(kDaemonSets, "default", kDaemonSet);
  t.loop->run_until([&] { return t.status("numberAvailable") == 3; }, 10s);
  EXPECT_LT(t.loop->elapsed() - before, 10ms);  // nothing waits
  t.settle();
  for (const char* key : {"desiredNumberScheduled", "currentNumberScheduled", "numberReady",
                          "updatedNumberScheduled", "numberAvailable"}) {
    EXPECT_EQ(t.status(key), 3) << key;
  }
  const Json set = *t.get(kDaemonSets, "default", "d");
  EXPECT_EQ(get_int(set, {"status", "observedGeneration"}), get_int(set, {"metadata", "generation"}));
  EXPECT_FALSE(has(set, {"status", "numberUnavailable"}));
  const JsonArray pods = t.list(kPods, "default");
  ASSERT_EQ(pods.size(), 3u);
  const JsonArray revisions = t.list(kControllerRevisions, "default");
  ASSERT_EQ(revisions.size(), 1u);
  const std::string hash = str(kube::label(revisions[0], "controller-revision-hash"));
  EXPECT_EQ(kube::name_of(revisions[0]), "d-" + hash);
  EXPECT_EQ(get_int(revisions[0], {"revision"}), 1);
  EXPECT_EQ(get_string(revisions[0], {"data", "spec", "template", "$patch"}), "replace");
  for (const Json& pod : pods) {
    EXPECT_EQ(kube::label(pod, "controller-revision-hash"), hash);
    EXPECT_FALSE(kube::label(pod, "pod-template-generation").empty());
    EXPECT_TRUE(kube::name_of(pod).starts_with("d-"));
    EXPECT_EQ(get_string(*kube::controller_of(pod), {"kind"}), "DaemonSet");
  }
  // A node that loses the label loses its pod; one that gains it gets one.
  t.merge(kNodes, "", "n1", R"({"metadata":{"labels":{"gpu":null}}})");
  t.settle();
  EXPECT_EQ(t.status("desiredNumberScheduled"), 2);
  EXPECT_EQ(t.status("numberMisscheduled"), 0);
  EXPECT_EQ(t.count(kPods, "default"), 2);
  t.merge(kNodes, "", "n5", R"({"metadata":{"labels":{"gpu":"yes"}}})");
  t.settle();
  EXPECT_EQ(t.status("numberAvailable"), 3);
  // A pod that is deleted comes back.
  t.remove(kPods, "default", str(kube::name_of(t.list(kPods, "default")[0])));
  t.settle();
  EXPECT_EQ(t.count(kPods, "default"), 3);
  EXPECT_EQ(t.count(kControllerRevisions, "default"), 1);
}

TEST(cluster_controllers, daemon_set_without_nodes_is_rolled_out) {
  DaemonCluster t;
  Json set = SmallCluster::yaml(kDaemonSet);
  gpuop::set(set, {"spec", "template", "spec", "nodeSelector"}, *parse_json(R"({"no":"where"})"));
  t.create(kDaemonSets, "default", set);
  t.settle();
  const Json after = *t.get(kDaemonSets, "default", "d");
  EXPECT_EQ(get_int(after, {"status", "desiredNumberScheduled"}, -1), 0);
  EXPECT_EQ(get_int(after, {"status", "observedGeneration"}), 1);
  EXPECT_FALSE(has(after, {"status", "numberAvailable"}));
  EXPECT_FALSE(has(after, {"status", "updatedNumberScheduled"}));
}

TEST(cluster_controllers, case32_on_delete_leaves_old_pods) {
  DaemonCluster t;
  Json set = SmallCluster::yaml(kDaemonSet);
  gpuop::set(set, {"spec", "updateStrategy", "type"}, Json("OnDelete"));
  t.create(kDaemonSets, "default", set);
  t.settle();
  const JsonArray before = t.list(kPods, "default");
  ASSERT_EQ(before.size(), 3u);
  t.set_image("j");
  EXPECT_EQ(t.status("updatedNumberScheduled"), -1);  // omitted
  EXPECT_EQ(t.status("observedGeneration"), 2);
  EXPECT_EQ(t.count(kPods, "default"), 3);
  EXPECT_EQ(t.count(kControllerRevisions, "default"), 2);
  t.remove(kPods, "default", str(kube::name_of(before[0])));
  t.settle();
  EXPECT_EQ(t.status("updatedNumberScheduled"), 1);
  const std::string old_hash = str(kube::label(before[0], "controller-revision-hash"));
  EXPECT_EQ(t.count(kPods, "default", "controller-revision-hash=" + old_hash), 2);
  // Back to the first template: its revision becomes the newest again.
  t.set_image("i");
  EXPECT_EQ(t.count(kControllerRevisions, "default"), 2);
  EXPECT_EQ(get_int(*t.get(kControllerRevisions, "default", "d-" + old_hash), {"revision"}), 3);
  EXPECT_EQ(t.status("updatedNumberScheduled"), 2);
}

TEST(cluster_controllers, case33_rolling_update_keeps_its_budget) {
  for (const auto& [budget, most] : {std::pair{"\"50%\"", 2}, {"1", 1}}) {
    DaemonCluster t;
    Json set = SmallCluster::yaml(kDaemonSet);
    gpuop::set(set, {"spec", "updateStrategy"},
               *parse_json(R"({"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":)" +
                           std::string(budget) + "}}"));
    t.create(kDaemonSets, "default", set);
    t.settle();
    ASSERT_EQ(t.status("numberAvailable"), 3);
    int worst = 0;
    t.pods.on_change([&](const auto&, const auto&) {
      int ready = 0;
      t.pods.for_each([&](const auto& pod) {
        const Json* condition = kube::condition(*pod, "Ready");
        const bool leaving = has(*pod, {"metadata", "deletionTimestamp"});
        ready += !leaving && condition != nullptr && get_string(*condition, {"status"}) == "True";
      });
      worst = std::max(worst, 3 - ready);
    });
    t.settle();
    worst = 0;
    t.set_image("j");
    t.settle(1s);
    EXPECT_EQ(t.status("updatedNumberScheduled"), 3);
    EXPECT_EQ(t.status("numberAvailable"), 3);
    EXPECT_GE(worst, 1);
    EXPECT_LE(worst, most);
  }
}

TEST(cluster_controllers, rolling_update_waits_for_pods_that_do_not_become_ready) {
  DaemonCluster t;
  t.create(kDaemonSets, "default", kDaemonSet);
  t.settle();
  t.kubelet = false;
  t.set_image("j");
  // One old pod was told to go; its kubelet is busy.
  int leaving = 0;
  for (const Json& pod : t.list(kPods, "default")) leaving += has(pod, {"metadata", "deletionTimestamp"});
  EXPECT_EQ(leaving, 1);
  t.loop->run_for(40s);
  leaving = 0;
  for (const Json& pod : t.list(kPods, "default")) leaving += has(pod, {"metadata", "deletionTimestamp"});
  EXPECT_EQ(leaving, 1);
}

TEST(cluster_controllers, rolling_update_with_a_surge_never_takes_a_node_down) {
  DaemonCluster t;
  Json set = SmallCluster::yaml(kDaemonSet);
  gpuop::set(set, {"spec", "updateStrategy"},
             *parse_json(R"({"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}})"));
  t.create(kDaemonSets, "default", set);
  t.settle();
  int least = 3;
  t.pods.on_change([&](const auto&, const auto&) {
    std::set<std::string> nodes;
    t.pods.for_each([&](const auto& pod) {
      const Json* condition = kube::condition(*pod, "Ready");
      if (!has(*pod, {"metadata", "deletionTimestamp"}) && condition != nullptr &&
          get_string(*condition, {"status"}) == "True") {
        nodes.insert(str(get_string(*pod, {"spec", "nodeName"})));
      }
    });
    least = std::min<int>(least, static_cast<int>(nodes.size()));
  });
  t.settle();
  least = 3;
  t.set_image("j");
  t.settle(1s);
  EXPECT_EQ(t.status("updatedNumberScheduled"), 3);
  EXPECT_EQ(least, 3);
  EXPECT_EQ(t.count(kPods, "default"), 3);
}

TEST(cluster_controllers, daemon_pods_that_end_come_back_more_and_more_slowly) {
  DaemonCluster t;
  t.create(kDaemonSets, "default", kDaemonSet);
  t.settle();
  std::vector<Duration> made;
  std::set<std::string> known;
  t.pods.on_change([&](const auto&, const auto& now) {
    if (!now || get_string(*now, {"spec", "nodeName"}) != "n1") return;
    if (get_string(*now, {"status", "phase"}) == "Running") t.set_pod_status(*now, R"({"phase":"Failed"})");
    if (known.insert(str(kube::uid_of(*now))).second) made.push_back(t.loop->elapsed());
  });
  t.loop->run_for(1min);
  ASSERT_GE(made.size(), 5u);
  EXPECT_LT(made.size(), 10u);
  EXPECT_GE(made[4] - made[3], 2 * (made[3] - made[2]) - 100ms);
}

TEST(cluster_controllers, daemon_pods_ignore_a_cordon_and_other_nodes_taints) {
  DaemonCluster t;
  t.merge(kNodes, "", "n1", R"({"spec":{"unschedulable":true}})");
  t.merge(kNodes, "", "n2", R"({"spec":{"taints":[{"key":"k","value":"v","effect":"NoSchedule"}]}})");
  t.create(kDaemonSets, "default", kDaemonSet);
  t.settle();
  EXPECT_EQ(t.status("desiredNumberScheduled"), 2);
  EXPECT_EQ(t.status("numberAvailable"), 2);
  // A pod that runs stays when its node gets a NoSchedule taint, and goes with NoExecute.
  t.merge(kNodes, "", "n3", R"({"spec":{"taints":[{"key":"k","value":"v","effect":"NoSchedule"}]}})");
  t.settle();
  EXPECT_EQ(t.status("desiredNumberScheduled"), 1);
  EXPECT_EQ(t.status("numberMisscheduled"), 1);
  EXPECT_EQ(t.count(kPods, "default"), 2);
  t.merge(kNodes, "", "n3", R"({"spec":{"taints":[{"key":"k","value":"v","effect":"NoExecute"}]}})");
  t.settle();
  EXPECT_EQ(t.count(kPods, "default"), 1);
}

}  // namespace
}  // namespace gpuop::cluster::test
