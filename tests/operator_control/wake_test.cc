// Pods that wait for the container runtime are woken when the toolkit of their node has configured it.
#include "operator/wake.h"

#include "kube/informer.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kToolkit = "toolkit";

class PodCluster : public Cluster {
 public:
  PodCluster() {
    node("n1", "");
    node("n2", "");
    must(kube::await(*loop, [&](auto done) {
      const std::string text = R"({"metadata":{"name":"nvidia"},"handler":"nvidia"})";
      return client->create(kube::kRuntimeClasses, "", *parse_json(text), {}, done);
    }));
    pods.on_change([this](const auto& old, const auto& now) {
      if (now && old && kube::label(*old, kWoken).empty() && !kube::label(*now, kWoken).empty())
        ++woken[std::string(kube::name_of(*now))];
    });
    pods.start();
  }
  void pod(const std::string& name, const std::string& node, const std::string& more = "",
           const std::string& labels = "") {
    const std::string text = R"({"metadata":{"name":")" + name + R"(","labels":{)" + labels +
                             R"(}},"spec":{"nodeName":")" + node + "\"" + more +
                             R"(,"containers":[{"name":"c","image":"i"}]}})";
    must(kube::await(
        *loop, [&](auto done) { return client->create(kube::kPods, kNs, *parse_json(text), {}, done); }));
    settle();
  }
  void operand(const std::string& name, const std::string& node) {
    pod(name, node, R"(,"runtimeClassName":"nvidia")");
  }
  void toolkit(const std::string& name, const std::string& node, bool tells = true) {
    pod(name, node, "", tells ? "\"" + std::string(kTellsRuntime) + R"(":"true")" : "");
  }
  void toolkit_runs(const std::string& name, bool ready, int restarts = 0) {
    merge(
        kube::kPods, kNs, name,
        R"({"status":{"phase":"Running","containerStatuses":[{"name":"c","image":"i","imageID":"","restartCount":)" +
            std::to_string(restarts) + R"(,"ready":)" + (ready ? "true" : "false") + "}]}}",
        "status");
    settle();
  }
  // The toolkit says something of itself.
  void event(const std::string& toolkit, std::string_view reason) {
    const std::string uid(kube::uid_of(get(kube::kPods, kNs, toolkit)));
    const std::string text =
        R"({"metadata":{"generateName":"e"},"involvedObject":{"kind":"Pod","namespace":")" +
        std::string(kNs) + R"(","uid":")" + uid + R"("},"reason":")" + std::string(reason) + "\"}";
    must(kube::await(
        *loop, [&](auto done) { return client->create(kube::kEvents, kNs, *parse_json(text), {}, done); }));
    settle();
  }
  // How often the pod was given the label; none is left.
  int wakes(const std::string& name) {
    EXPECT_EQ(kube::label(get(kube::kPods, kNs, name), kWoken), "");
    return woken[name];
  }
  std::map<std::string, int> woken;
  kube::Informer pods{*client, kube::kPods, {}};
};

TEST(operator_control, pods_that_wait_for_the_runtime_are_woken_once_when_the_toolkit_is_ready) {
  PodCluster cluster;
  cluster.operand("plugin", "n1");
  cluster.operand("elsewhere", "n2");
  cluster.operand("runs", "n1");
  cluster.merge(kube::kPods, kNs, "runs", R"({"status":{"phase":"Running"}})", "status");
  cluster.operand("starts", "n1");
  cluster.merge(kube::kPods, kNs, "starts",
                R"({"status":{"conditions":[{"type":"PodReadyToStartContainers","status":"True"}]}})",
                "status");
  cluster.pod("plain", "n1");
  cluster.toolkit(kToolkit, "n1");
  cluster.toolkit_runs(kToolkit, false);
  EXPECT_EQ(cluster.wakes("plugin"), 0);
  int before = cluster.writes;
  cluster.toolkit_runs(kToolkit, true);
  EXPECT_EQ(cluster.wakes("plugin"), 1);
  EXPECT_EQ(cluster.writes - before, 3) << "the test's own and two for the only pod that waits on that node";
  for (const char* other : {"elsewhere", "runs", "starts", "plain"})
    EXPECT_EQ(cluster.wakes(other), 0) << other;

  // Later pods find the runtime configured; a toolkit that starts again is another occasion.
  cluster.operand("late", "n1");
  before = cluster.writes;
  cluster.merge(kube::kPods, kNs, kToolkit, R"({"metadata":{"labels":{"a":"b"}}})");
  cluster.settle();
  EXPECT_EQ(cluster.writes - before, 1);
  cluster.toolkit_runs(kToolkit, false, 1);
  cluster.toolkit_runs(kToolkit, true, 1);
  EXPECT_EQ(cluster.wakes("late"), 1);
  EXPECT_EQ(cluster.wakes("plugin"), 2);
}

TEST(operator_control, pods_are_woken_by_their_toolkits_event_before_the_kubelet_tells_that_it_is_ready) {
  PodCluster cluster;
  cluster.operand("plugin", "n1");
  cluster.operand("elsewhere", "n2");
  cluster.toolkit(kToolkit, "n1");
  cluster.toolkit("other", "n2", false);
  cluster.event(kToolkit, "Started");
  cluster.event("other", kRuntimeConfigured);
  EXPECT_EQ(cluster.wakes("plugin"), 0);
  cluster.event(kToolkit, kRuntimeConfigured);
  EXPECT_EQ(cluster.wakes("plugin"), 1);
  EXPECT_EQ(cluster.wakes("elsewhere"), 0) << "no toolkit of ours says anything of its node";
}

TEST(operator_control, a_toolkit_whose_readiness_tells_nothing_wakes_nobody) {
  PodCluster cluster;
  cluster.operand("plugin", "n1");
  cluster.toolkit(kToolkit, "n1", false);
  cluster.toolkit_runs(kToolkit, true);
  EXPECT_EQ(cluster.wakes("plugin"), 0);
}

TEST(operator_control, a_new_leader_wakes_whom_nobody_woke_and_takes_away_what_was_left) {
  PodCluster cluster;
  cluster.controller.reset();
  cluster.operand("plugin", "n1");
  cluster.pod("left", "n2", "", "\"" + std::string(kWoken) + R"(":"true")");
  cluster.toolkit(kToolkit, "n1");
  cluster.toolkit_runs(kToolkit, true);
  EXPECT_EQ(cluster.wakes("plugin"), 0);
  cluster.start_operator();
  cluster.settle();
  EXPECT_EQ(cluster.wakes("plugin"), 1);
  cluster.wakes("left");
}

}  // namespace
}  // namespace gpuop::op
