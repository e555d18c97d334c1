// What an object's status says in the end is what was last wished, whatever overlaps, fails or is not seen
// yet.
#include "operator/status_writer.h"

#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kPatch = "/apis/nvidia.com/v1/clusterpolicies/p/status";

struct Writer : Cluster {
  Writer() : Cluster(false), cache(*client, kNs), events(*client, "test"), writer(*client, cache, events) {
    policy("p");
    cache.start([] {});
    refuse = [this](const HttpRequest& request) -> std::optional<HttpResponse> {
      if (blind && request.path == "/apis/nvidia.com/v1/clusterpolicies")
        return status_answer(503, "ServiceUnavailable", "no");
      if (request.method != "PATCH" || request.path != kPatch) return std::nullopt;
      ++patches;
      if (failures == 0) return std::nullopt;
      --failures;
      return status_answer(500, "InternalError", "no");
    };
    loop->run_until([this] { return cache.synced(); }, 1s);
  }
  // It says that it is ready, and nothing is under way.
  void be_good();
  // From now on the cache sees no change of the policy.
  void close_its_eyes() {
    blind = true;
    server.cut_watches();
    settle();
  }
  void wish(const Outcome& outcome) {
    writer.write(kube::kClusterPolicies, *cache.of(kube::kClusterPolicies).get("p"), outcome, {});
  }
  std::string said() {
    const Json ready = condition("p", "Ready"), error = condition("p", "Error");
    return get_string(ready, {"status"}) == "True" ? str(get_string(ready, {"reason"}))
                                                   : str(get_string(error, {"message"}));
  }

  ClusterCache cache;
  kube::EventRecorder events;
  StatusWriter writer;
  bool blind = false;
  int failures = 0, patches = 0;
};

const Outcome& good() {
  static const Outcome kGood = outcome_of({}, {.has_feature_labels = true, .gpu_nodes = 1});
  return kGood;
}

void Writer::be_good() {
  wish(good());
  settle();
  ASSERT_EQ(said(), "Reconciled");
}

TEST(operator_status, a_wish_that_comes_while_another_is_written_is_written_after_it) {
  Writer w;
  w.be_good();
  w.wish(failed_outcome("first"));
  EXPECT_TRUE(w.loop->run_until([&] { return w.patches == 2; }, 1s));
  // The cache still says what is wished now.
  w.wish(failed_outcome("second"));
  w.wish(good());
  w.settle();
  EXPECT_EQ(w.said(), "Reconciled");
  EXPECT_EQ(w.patches, 3) << "the second was never written";
}

TEST(operator_status, what_the_cache_has_not_seen_yet_counts) {
  Writer w;
  w.be_good();
  w.close_its_eyes();
  w.wish(failed_outcome("bad"));
  w.settle();
  EXPECT_EQ(w.said(), "bad");
  w.wish(failed_outcome("bad"));
  w.settle();
  EXPECT_EQ(w.patches, 2) << "nothing new";
  w.wish(good());
  w.settle();
  EXPECT_EQ(w.said(), "Reconciled");
}

TEST(operator_status, a_write_that_failed_comes_again) {
  Writer w;
  w.failures = 5;
  w.wish(failed_outcome("bad"));
  w.loop->run_for(10s);
  EXPECT_EQ(w.said(), "bad");
  EXPECT_EQ(w.patches, 6);
  w.loop->run_for(1h);
  EXPECT_EQ(w.patches, 6);
}

TEST(operator_status, a_write_whose_answer_was_lost_may_have_been_carried_out) {
  Writer w;
  w.be_good();
  const Json before = w.get(kube::kClusterPolicies, "", "p");
  w.close_its_eyes();
  w.failures = 1;
  w.wish(failed_outcome("bad"));
  EXPECT_TRUE(w.loop->run_until([&] { return w.failures == 0; }, 1s));
  w.merge(kube::kClusterPolicies, "", "p",
          to_text(JsonObject{{"status", status_of(before, failed_outcome("bad"), {}, kNs, w.loop->now())}}),
          "status");
  ASSERT_EQ(w.said(), "bad");
  w.wish(good());
  w.settle();
  EXPECT_EQ(w.said(), "Reconciled");
}

TEST(operator_status, nobody_is_told_of_one_that_is_gone) {
  Writer w;
  w.failures = 1000000;
  w.wish(failed_outcome("bad"));
  w.settle();
  w.remove(kube::kClusterPolicies, "", "p");
  w.policy("p");
  w.settle();
  const int patches = w.patches;
  w.loop->run_for(1min);
  EXPECT_EQ(w.patches, patches) << "another policy of that name has its own outcome";
}

}  // namespace
}  // namespace gpuop::op
