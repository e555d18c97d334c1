// Chaos, a slice: whatever goes wrong for a while, a fleet ends with the same objects as one where nothing
// did. The whole of it: ./run campaign chaos.
#include <gtest/gtest.h>

#include "cluster/faults/names.h"
#include "runs.h"

namespace gpuop::cluster::runs {
namespace {

TEST(cluster_hollow, chaos_ends_like_calm) {
  ASSERT_FALSE(calm().empty());
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const std::string why = chaos(seed);
    EXPECT_TRUE(why.empty()) << why;
  }
}

TEST(cluster_hollow, a_run_replays_byte_for_byte) {
  const FaultPlan plan = chaos_plan(7, chaos_nodes());
  const Outcome first = run(7, plan, true), second = run(7, plan, true);
  ASSERT_GT(first.events.size(), 10000u);
  EXPECT_NE(first.events.find("FAULT"), std::string::npos);
  EXPECT_TRUE(first.events == second.events);
}

TEST(cluster_hollow, plans_survive_their_text_and_their_faults_can_happen) {
  const std::vector<std::string> whole{"create", "delete", "get", "list", "patch", "update", "watch"};
  const std::vector<std::string> part{"get", "patch", "update"};
  FaultNames names;
  for (const char* name :
       {"pods", "nodes", "daemonsets", "nodefeatures", "configmaps", "leases", "clusterpolicies"})
    names.resources.push_back({.name = name, .verbs = whole});
  for (const char* name : {"pods/status", "clusterpolicies/status"})
    names.resources.push_back({.name = name, .verbs = part});
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const FaultPlan plan = chaos_plan(seed, chaos_nodes());
    const std::string text = faults_text(plan);
    const auto read = parse_faults(text, "plan.yaml");
    ASSERT_TRUE(read) << read.error().text() << "\n" << text;
    EXPECT_EQ(faults_text(*read), text);
    const auto fits = check_faults(plan, names);
    EXPECT_TRUE(fits) << fits.error().text();
  }
}

}  // namespace
}  // namespace gpuop::cluster::runs
