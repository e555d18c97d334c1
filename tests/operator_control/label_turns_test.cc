// When a node's labels are decided: by events that concern them, and not by others (operator.md §3.5, §4.2).
#include "operator/label_turns.h"

#include "operator/node_labels.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

TEST(label_turns, one_is_taken_once) {
  LabelTurns turns;
  EXPECT_FALSE(turns.take("n", 5));
  turns.add("n");
  EXPECT_TRUE(turns.take("n", 5));
  EXPECT_FALSE(turns.take("n", 5));
  EXPECT_FALSE(turns.seen("n", 6, 0s)) << "an event by itself is none";
}

TEST(label_turns, what_was_written_is_looked_at_once_more_when_it_is_seen) {
  LabelTurns turns;
  turns.add("n");
  ASSERT_TRUE(turns.take("n", 5));
  turns.written("n", 8, 5);
  turns.add("n");
  EXPECT_FALSE(turns.take("n", 5)) << "what is known is older than what we wrote";
  EXPECT_FALSE(turns.seen("n", 7, 0s)) << "somebody else's, that came before ours";
  EXPECT_FALSE(turns.take("n", 7));
  EXPECT_TRUE(turns.seen("n", 9, 0s));
  EXPECT_TRUE(turns.take("n", 9));
  EXPECT_FALSE(turns.seen("n", 10, 0s));
  turns.written("n", 12, 12);
  EXPECT_FALSE(turns.seen("n", 13, 0s)) << "it was seen before its answer came";
}

TEST(label_turns, what_failed_comes_again_and_without_an_answer_every_event_counts_for_a_while) {
  LabelTurns turns;
  turns.failed("n", false, 0s);
  EXPECT_TRUE(turns.take("n", 5));
  EXPECT_FALSE(turns.seen("n", 6, 1s));
  turns.failed("n", true, 0s);
  EXPECT_TRUE(turns.take("n", 5));
  EXPECT_TRUE(turns.seen("n", 6, 1s));
  EXPECT_TRUE(turns.seen("n", 7, kUnsure - 1s));
  EXPECT_FALSE(turns.seen("n", 8, kUnsure));
  turns.forget("n");
  EXPECT_FALSE(turns.take("n", 8));
}

constexpr const char* kExporter = "nvidia.com/gpu.deploy.dcgm-exporter";

struct Labelled : Cluster {
  Labelled() {
    policy("p", R"({"sandboxWorkloads":{"enabled":true}})");
    node("n1", kGpu);
    node("n2", kGpu);
    settle();
    all_available();
    loop->run_for(1min);
  }
  bool there() { return labels("n1").contains(kExporter); }
  void take_away() {
    label("n1", "\"" + std::string(kExporter) + "\":null");
    settle();
  }
};

TEST(operator_control, a_deploy_label_that_is_taken_away_by_hand_triggers_nothing) {
  Labelled cluster;
  ASSERT_TRUE(cluster.there());
  const int before = cluster.writes;
  cluster.take_away();
  cluster.label("n1",
                R"("nvidia.com/gpu.deploy.dcgm":"","nvidia.com/gpu.memory":"81920","example.com/a":"b")");
  cluster.merge(kube::kNodes, "", "n1",
                R"({"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady",
                    "lastHeartbeatTime":"2026-01-01T00:05:00Z"}]}})",
                "status");
  cluster.devices("n1", R"("nvidia.com/gpu":"8")", R"("nvidia.com/gpu":"7")");
  cluster.label("n2", R"("nvidia.com/gpu.workload.config":"container")");
  cluster.pod("nvidia-dcgm-exporter", "n1", R"({"phase":"Pending"})");
  cluster.loop->run_for(10min);
  EXPECT_FALSE(cluster.there());
  EXPECT_EQ(cluster.labels("n1").at("nvidia.com/gpu.deploy.dcgm"), "");
  EXPECT_GT(cluster.writes, before);
}

TEST(operator_control, a_deploy_label_that_is_gone_comes_back_with_what_concerns_the_nodes_labels) {
  Labelled cluster;
  const std::pair<const char*, const char*> events[] = {
      {"present", R"("nvidia.com/gpu.present":null)"},
      {"operands off and on", R"("nvidia.com/gpu.deploy.operands":"false")"},
      {"workload", R"("nvidia.com/gpu.workload.config":"container")"},
      {"MIG capability", R"("nvidia.com/mig.capable":"true")"},
      {"OSTREE", R"("feature.node.kubernetes.io/system-os_release.OSTREE_VERSION":"419.96")"},
      {"owner", R"("nvidia.com/gpu-operator.driver.owner":"d")"},
      {"GPU label", R"("feature.node.kubernetes.io/pci-0302_10de.present":"true",
                       "feature.node.kubernetes.io/pci-10de.present":null)"},
  };
  for (const auto& [what, labels] : events) {
    cluster.take_away();
    cluster.loop->run_for(5min);
    EXPECT_FALSE(cluster.there()) << what;
    cluster.label("n1", labels);
    if (std::string_view(what) == "GPU label") cluster.label("n1", R"("nvidia.com/gpu.present":"false")");
    cluster.settle();
    cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":null)");
    cluster.settle();
    EXPECT_TRUE(cluster.there()) << what;
  }
  cluster.take_away();
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"dcgmExporter":{"args":["-x"]}}})");
  cluster.settle();
  EXPECT_TRUE(cluster.there()) << "the policy";
  cluster.take_away();
  cluster.controller.reset();
  cluster.start_operator();
  cluster.settle();
  EXPECT_TRUE(cluster.there()) << "a start of the operator";
  cluster.take_away();
  cluster.remove(kube::kNodes, "", "n1");
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_TRUE(cluster.there()) << "a node that registers again";
}

TEST(operator_control, readiness_sees_at_once_that_a_deploy_label_is_gone) {
  Labelled cluster;
  ASSERT_EQ(cluster.state("p"), "ready");
  cluster.label("n1", R"("nvidia.com/gpu.deploy.device-plugin":null)");
  cluster.devices("n1", R"("nvidia.com/gpu":"8")", R"("nvidia.com/gpu":"0")");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1").count("nvidia.com/gpu.deploy.device-plugin"), 0u);
  EXPECT_EQ(cluster.state("p"), "ready") << "nobody wants a plugin there";
}

bool is_labelling(const HttpRequest& request) {
  return request.method == "PATCH" && request.path.ends_with("/nodes/n1") &&
         request.body.find("gpu.deploy") != std::string::npos;
}

// Each of these is the last word of nobody: the labels that the events asked for come.
TEST(operator_control, labelling_that_failed_or_was_overtaken_is_done) {
  for (const int code : {409, 500, 503}) {
    Labelled cluster;
    int left = 3;
    cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (!is_labelling(request) || request.body.find("operands") != std::string::npos || left-- <= 0)
        return std::nullopt;
      return Cluster::status_answer(code, code == 409 ? "Conflict" : "InternalError", "no");
    };
    cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":"false")");
    cluster.loop->run_for(30s);
    EXPECT_LT(left, 0) << code;
    EXPECT_FALSE(cluster.there()) << code;
    left = 3;
    cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":null)");
    cluster.loop->run_for(30s);
    EXPECT_TRUE(cluster.there()) << code;
  }
}

// The operator's patch is on its way when the user takes back what it was for.
TEST(operator_control, labels_follow_the_last_word_whatever_a_patch_on_its_way_does) {
  for (const bool answered : {true, false}) {
    Labelled cluster;
    int overtaken = 0;
    const auto user_flips = [&](const char* to) {
      cluster.label("n1", R"("nvidia.com/gpu.deploy.operands":)" + std::string(to));
    };
    // The first patch of the operator comes about only after the user's next one, with or without an answer.
    std::optional<HttpRequest> late;
    cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (!is_labelling(request) || request.body.find("operands") != std::string::npos || overtaken++ > 0)
        return std::nullopt;
      late = request;
      return answered ? std::nullopt
                      : std::optional(Cluster::status_answer(504, "Timeout", "no answer came in time"));
    };
    user_flips("\"false\"");
    cluster.loop->run_until([&] { return late.has_value(); }, 10s);
    ASSERT_TRUE(late);
    user_flips("null");
    if (!answered) {
      cluster.loop->run_for(5s);
      const Json body = *parse_json(late->body);
      Cluster::must(kube::await(*cluster.loop, [&](auto done) {
        return cluster.client->patch(kube::kNodes, "", "n1", kube::Patch::kMerge, body, {}, std::move(done));
      }));
    }
    cluster.loop->run_for(1min);
    EXPECT_TRUE(cluster.there()) << answered;
    EXPECT_TRUE(cluster.labels("n1").contains("nvidia.com/gpu.deploy.driver")) << answered;
  }
}

}  // namespace
}  // namespace gpuop::op
