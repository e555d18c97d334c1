// The master of node feature discovery against the embedded API server: what is told last is what a node's
// labels say, and what failed is done again.
#include "features/master.h"

#include "test_cluster.h"

namespace gpuop::features {
namespace {

constexpr const char* kLabel = "feature.node.kubernetes.io/kernel";

struct FeatureMaster : op::Cluster {
  FeatureMaster() : Cluster(false), master(*loop, *client, {.ns = op::kNs}) {
    define(kube::kNodeFeatures);
    node("n1", "");
    create(kube::kNodeFeatures, op::kNs,
           R"({"metadata":{"name":"n1","labels":{"nfd.node.kubernetes.io/node-name":"n1"}},
               "spec":{"labels":{"kernel":"0"}}})");
    refuse = [this](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (blind && request.method == "GET" && request.path == "/api/v1/nodes")
        return status_answer(503, "ServiceUnavailable", "no");
      if (request.method == "PATCH" && request.path == "/api/v1/nodes/n1") ++patches;
      if (request.method == "DELETE" && failures > 0 &&
          request.path.find("/nodefeatures/") != std::string::npos) {
        --failures;
        return status_answer(500, "InternalError", "no");
      }
      return std::nullopt;
    };
    master.start_watching();
    master.lead();
    settle();
  }
  void report(int kernel) {
    merge(kube::kNodeFeatures, op::kNs, "n1",
          R"({"spec":{"labels":{"kernel":")" + std::to_string(kernel) + R"("}}})");
  }
  std::string kernel() { return str(kube::label(get(kube::kNodes, "", "n1"), kLabel)); }

  Master master;
  bool blind = false;
  int failures = 0, patches = 0;
};

TEST(feature_master, the_last_report_is_what_a_node_says) {
  FeatureMaster c;
  ASSERT_EQ(c.kernel(), "0");
  for (int i = 1; i <= 20; ++i) c.report(i);
  c.settle();
  EXPECT_EQ(c.kernel(), "20");
  EXPECT_LE(c.patches, 21);
}

// Its own write of a moment ago is not in the cache yet: the next one says so, and comes again.
TEST(feature_master, a_write_that_the_cache_has_not_seen_is_not_lost) {
  FeatureMaster c;
  c.blind = true;
  c.server.cut_watches();
  c.settle();
  c.report(1);
  c.settle();
  ASSERT_EQ(c.kernel(), "1");
  c.report(2);
  c.settle();
  c.blind = false;
  c.loop->run_for(1min);
  EXPECT_EQ(c.kernel(), "2");
}

TEST(feature_master, features_of_a_node_that_is_gone_are_taken_away_until_they_are) {
  FeatureMaster c;
  c.failures = 3;
  c.remove(kube::kNodes, "", "n1");
  c.loop->run_for(10s);
  EXPECT_EQ(c.failures, 0);
  EXPECT_TRUE(c.names(kube::kNodeFeatures, op::kNs).empty());
}

// The kind itself is taken away, and with it every report: labels stay, the policy says why, and all goes on
// when it is back.
TEST(feature_master, labels_stay_without_the_kind_and_follow_when_it_is_back) {
  FeatureMaster c;
  c.start_operator();
  c.policy("p");
  c.settle();
  ASSERT_EQ(c.kernel(), "0");
  const auto advice = [&] { return str(get_string(c.condition("p", "Advice"), {"message"})); };
  EXPECT_EQ(advice().find("nodefeatures"), std::string::npos) << advice();
  const std::string definition = "nodefeatures.nfd.k8s-sigs.io";
  const Json kind = c.get(kube::kCustomResourceDefinitions, "", definition);
  c.remove(kube::kCustomResourceDefinitions, "", definition);
  c.loop->run_for(10s);
  EXPECT_NE(advice().find("nodefeatures.nfd.k8s-sigs.io is not in the cluster"), std::string::npos)
      << advice();
  c.loop->run_for(20min);
  EXPECT_EQ(c.kernel(), "0");
  Json again = kind;
  for (const char* key : {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"})
    remove(again, {"metadata", key});
  remove(again, {"status"});
  c.create(kube::kCustomResourceDefinitions, "", to_text(again));
  c.loop->run_for(1s);
  c.create(kube::kNodeFeatures, op::kNs,
           R"({"metadata":{"name":"n1","labels":{"nfd.node.kubernetes.io/node-name":"n1"}},
               "spec":{"labels":{"kernel":"7"}}})");
  c.loop->run_for(1min);
  EXPECT_EQ(c.kernel(), "7");
  EXPECT_EQ(advice().find("nodefeatures"), std::string::npos) << advice();
}

}  // namespace
}  // namespace gpuop::features
