#include "cluster/controllers/fit.h"
#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

using kube::kNodes;
using kube::kPods;

Json pod_wanting(const std::string& name, const std::string& resources, const std::string& more = "") {
  return *parse_json(R"({"metadata":{"name":")" + name +
                     R"("},"spec":{"containers":[{"name":"c","image":"i","resources":)" + resources + "}]" +
                     more + "}}");
}

TEST(cluster_controllers, case34_extended_resources) {
  SmallCluster t;
  for (const char* name : {"n1", "n2", "n3"}) t.add_node(name, "{}", std::string(name) == "n3" ? "" : "1");
  t.create(kPods, "default", pod_wanting("two", R"({"limits":{"nvidia.com/gpu":2}})"));
  t.settle();
  Json two = *t.get(kPods, "default", "two");
  EXPECT_EQ(get_string(two, {"spec", "nodeName"}), "");
  EXPECT_EQ(get_string(two, {"status", "phase"}), "Pending");
  const Json* condition = kube::condition(two, "PodScheduled");
  ASSERT_NE(condition, nullptr);
  EXPECT_EQ(get_string(*condition, {"status"}), "False");
  EXPECT_EQ(get_string(*condition, {"reason"}), "Unschedulable");
  EXPECT_EQ(get_string(*condition, {"message"}),
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. no new claims to deallocate, "
            "preemption: 0/3 nodes are available: 3 "
            "Preemption "
            "is not helpful for scheduling.");
  // Limit only: the request is copied. One each fits twice, not three times.
  for (const char* name : {"a", "b", "c"})
    t.create(kPods, "default", pod_wanting(name, R"({"limits":{"nvidia.com/gpu":1}})"));
  t.settle();
  int bound = 0;
  for (const Json& pod : t.list(kPods, "default")) {
    bound += !get_string(pod, {"spec", "nodeName"}).empty();
    EXPECT_TRUE(has(get_array(pod, {"spec", "containers"})[0], {"resources", "requests", "nvidia.com/gpu"}));
  }
  EXPECT_EQ(bound, 2);
  const Json half = pod_wanting("half", R"({"limits":{"nvidia.com/gpu":"0.5"}})");
  const auto refused =
      kube::await(*t.loop, [&](auto done) { return t.user.create(kPods, "default", half, {}, done); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 422);
  // Room on a node wakes the pod that waits, at once.
  const Duration before = t.loop->elapsed();
  t.merge(kNodes, "", "n3", R"({"status":{"allocatable":{"nvidia.com/gpu":"3"}}})", "status");
  t.loop->run_until(
      [&] { return !get_string(*t.get(kPods, "default", "two"), {"spec", "nodeName"}).empty(); }, 5s);
  two = *t.get(kPods, "default", "two");
  EXPECT_EQ(get_string(two, {"spec", "nodeName"}), "n3");
  EXPECT_LT(t.loop->elapsed() - before, 10ms);
  EXPECT_EQ(get_string(*kube::condition(two, "PodScheduled"), {"status"}), "True");
  t.settle();
  int scheduled = 0, failed = 0;
  for (const Json& event : t.list(kube::kEvents, "default")) {
    scheduled += get_string(event, {"reason"}) == "Scheduled";
    failed += get_string(event, {"reason"}) == "FailedScheduling";
  }
  EXPECT_EQ(scheduled, 4);
  EXPECT_GE(failed, 2);
}

TEST(cluster_controllers, scheduler_names_every_reason) {
  SmallCluster t;
  t.add_node("a");
  t.add_node("b", R"({"zone":"x"})");
  t.add_node("c", R"({"zone":"x"})");
  t.merge(kNodes, "", "b", R"({"spec":{"taints":[{"key":"k","value":"v","effect":"NoSchedule"}]}})");
  t.create(kPods, "default",
           pod_wanting("p", R"({"requests":{"cpu":"5"}})", R"(,"nodeSelector":{"zone":"x"})"));
  t.settle();
  EXPECT_EQ(
      get_string(*kube::condition(*t.get(kPods, "default", "p"), "PodScheduled"), {"message"}),
      "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 "
      "node(s) "
      "had untolerated taint {k: v}. no new claims to deallocate, preemption: 0/3 nodes are available: 3 "
      "Preemption is not helpful for "
      "scheduling.");
  // A cordon, and a node whose ports are taken.
  t.merge(kNodes, "", "c", R"({"spec":{"unschedulable":true}})");
  t.settle();
  EXPECT_NE(get_string(*kube::condition(*t.get(kPods, "default", "p"), "PodScheduled"), {"message"})
                .find("1 node(s) were unschedulable"),
            std::string_view::npos);
}

TEST(cluster_controllers, scheduler_spreads_and_frees) {
  SmallCluster t;
  t.kubelet = true;
  t.add_node("a");
  t.add_node("b");
  for (int i = 0; i < 8; ++i)
    t.create(kPods, "default", pod_wanting("p" + std::to_string(i), R"({"requests":{"cpu":"1"}})"));
  t.settle();
  std::map<std::string, int> on;
  for (const Json& pod : t.list(kPods, "default")) ++on[str(get_string(pod, {"spec", "nodeName"}))];
  EXPECT_EQ(on["a"], 4);
  EXPECT_EQ(on["b"], 4);
  t.create(kPods, "default", pod_wanting("late", R"({"requests":{"cpu":"1"}})"));
  t.settle();
  EXPECT_NE(get_string(*kube::condition(*t.get(kPods, "default", "late"), "PodScheduled"), {"message"})
                .find("2 No preemption victims found for incoming pod"),
            std::string_view::npos);
  t.set_pod_status(*t.get(kPods, "default", "p0"), R"({"phase":"Succeeded"})");
  t.settle();
  EXPECT_NE(get_string(*t.get(kPods, "default", "late"), {"spec", "nodeName"}), "");
}

TEST(cluster_controllers, pods_without_nodes_wait_for_the_first) {
  SmallCluster t;
  t.create(kPods, "default", pod_wanting("p", "{}"));
  t.settle();
  EXPECT_EQ(get_string(*kube::condition(*t.get(kPods, "default", "p"), "PodScheduled"), {"message"}),
            "no nodes available to schedule pods");
  t.add_node("a");
  t.settle();
  EXPECT_EQ(get_string(*t.get(kPods, "default", "p"), {"spec", "nodeName"}), "a");
}

TEST(cluster_controllers, pod_requests_count_init_containers) {
  const Json pod = *parse_json(R"({"spec":{"overhead":{"cpu":"100m"},
    "containers":[{"resources":{"requests":{"cpu":"1"}}},{"resources":{"limits":{"cpu":"500m"}}}],
    "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"200m"}}},{"resources":{"requests":{"cpu":"3"}}}]}})");
  EXPECT_EQ(static_cast<long long>(pod_requests(pod)["cpu"]), 3300);
}

TEST(cluster_controllers, host_ports_are_taken_once) {
  SmallCluster t;
  t.add_node("a");
  for (const char* name : {"p", "q"}) {
    t.create(
        kPods, "default",
        *parse_json(
            R"({"metadata":{"name":")" + std::string(name) +
            R"("},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":9400,"hostPort":9400}]}]}})"));
  }
  t.settle();
  EXPECT_EQ(get_string(*t.get(kPods, "default", "p"), {"spec", "nodeName"}), "a");
  EXPECT_NE(get_string(*kube::condition(*t.get(kPods, "default", "q"), "PodScheduled"), {"message"})
                .find("didn't have free ports"),
            std::string_view::npos);
}

}  // namespace
}  // namespace gpuop::cluster::test
