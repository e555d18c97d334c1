// Kinds that the API server need not have and that come, go and are listed while the operator runs
// (operator.md §3.1, §7.1).
#include <gtest/gtest.h>

#include "operator/cache.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

TEST(operator_control, kinds_that_come_while_the_operator_runs_are_used_and_cost_one_question) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"dcgmExporter":{"serviceMonitor":{"enabled":true}}})");
  cluster.settle();
  cluster.all_available();
  ASSERT_EQ(cluster.state("p"), "ready");
  cluster.define(kube::kServiceMonitors);
  cluster.settle();
  EXPECT_EQ(cluster.names(kube::kServiceMonitors, kNs),
            (std::vector<std::string>{"gpu-operator", "nvidia-dcgm-exporter"}));
  EXPECT_EQ(cluster.state("p"), "ready");
  // And go again.
  cluster.remove(kube::kCustomResourceDefinitions, "", "servicemonitors.monitoring.coreos.com");
  cluster.settle();
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes);
  EXPECT_EQ(cluster.state("p"), "ready");
}

// Whatever else brings a node back: its own event came in the meantime, and no other does.
TEST(operator_control, a_node_whose_turn_comes_while_a_kind_is_not_listed_yet_is_looked_at_once_it_is) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p");
  cluster.settle();
  cluster.all_available();
  bool failing = true;
  cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (!failing || !request.path.ends_with("/servicemonitors")) return std::nullopt;
    return HttpResponse::json(503, R"({"kind":"Status","code":503,"reason":"ServiceUnavailable"})");
  };
  cluster.define(kube::kServiceMonitors);
  cluster.settle();
  ASSERT_FALSE(cluster.controller->synced());
  cluster.node("n2", kGpu);
  cluster.loop->run_for(1min);
  EXPECT_EQ(cluster.labels("n2")["nvidia.com/gpu.present"], "") << "nothing is done on half a view";
  failing = false;
  cluster.loop->run_for(1min);
  EXPECT_EQ(cluster.labels("n2")["nvidia.com/gpu.deploy.device-plugin"], "true");
}

TEST(operator_control, a_kind_that_the_server_lists_later_than_its_definition_is_asked_for_again) {
  Cluster cluster;
  cluster.node("n1", kGpu);
  cluster.policy("p", R"({"dcgmExporter":{"serviceMonitor":{"enabled":true}}})");
  cluster.settle();
  cluster.all_available();
  int asked = 0, late = 2;
  cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.path != "/apis") return std::nullopt;
    ++asked;
    if (late-- <= 0) return std::nullopt;
    return HttpResponse::json(200,
                              R"({"kind":"APIGroupList","groups":[{"name":"nvidia.com"},{"name":"apps"}]})");
  };
  cluster.define(kube::kServiceMonitors);
  cluster.loop->run_for(10s);
  EXPECT_EQ(cluster.names(kube::kServiceMonitors, kNs),
            (std::vector<std::string>{"gpu-operator", "nvidia-dcgm-exporter"}));
  EXPECT_EQ(asked, 3);
  // One that is never listed is not asked for for ever.
  late = 1000;
  cluster.remove(kube::kCustomResourceDefinitions, "", "servicemonitors.monitoring.coreos.com");
  cluster.settle();
  asked = 0;
  cluster.define(kube::kServiceMonitors);
  cluster.loop->run_for(10min);
  EXPECT_EQ(asked, 6);
}

}  // namespace
}  // namespace gpuop::op
