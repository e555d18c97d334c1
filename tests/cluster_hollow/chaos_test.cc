// Chaos, a slice: whatever goes wrong for a while, a fleet ends with the same objects as one where nothing
// did. The whole of it: ./run campaign chaos.
#include <gtest/gtest.h>

#include "cluster/hollow/known_names.h"
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
  FaultNames names;
  for (const ChaosNode& node : chaos_nodes()) names.nodes.push_back({node.name, node.gpus});
  names.resources = known_resources(install());
  names.containers = known_containers(assets(), install());
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
