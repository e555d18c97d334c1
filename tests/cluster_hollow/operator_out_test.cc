// A hollow fleet whose operator is shut out of the API, and what is said of it and of GPUs when nobody can
// ask the cluster any more.
#include <gtest/gtest.h>

#include "runs.h"

namespace gpuop::cluster::runs {
namespace {

std::unique_ptr<HollowFleet> make(std::string_view faults) {
  HollowFleetOptions options = options_of(kThree);
  options.events = [](std::string_view) {};
  auto plan = parse_faults(faults, "faults.yaml");
  EXPECT_TRUE(plan) << plan.error().text();
  if (plan) options.faults = std::move(*plan);
  auto fleet = HollowFleet::create(std::move(options));
  EXPECT_TRUE(fleet) << fleet.error().text();
  return fleet ? std::move(*fleet) : nullptr;
}

TEST(cluster_hollow, an_operator_that_is_shut_out_for_good_leaves_nothing_ready_or_stable) {
  auto fleet = make(R"(faults:
  - {at: 40s, api: error, where: {component: gpu-operator}}
  - {at: 90s, node: l4, event: reboot}
)");
  ASSERT_TRUE(fleet);
  fleet->loop().run_for(39s);
  ASSERT_TRUE(fleet->ready()) << fleet->first_broken_link();
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->stable(); }, 10min));
  EXPECT_FALSE(fleet->ready());
  EXPECT_FALSE(fleet->chain().ready());
  EXPECT_TRUE(fleet->first_broken_link().starts_with("operator: ")) << fleet->first_broken_link();
  ASSERT_EQ(fleet->endless_faults().size(), 1u);
  EXPECT_EQ(fleet->endless_faults()[0], "faults.yaml:2: fault 'fault 1': has no end, and is still on");
}

// An operator that comes back leads again.
TEST(cluster_hollow, an_operator_that_was_shut_out_for_a_while_is_waited_for) {
  auto fleet = make("faults:\n  - {at: 40s, api: error, for: 2m, where: {component: gpu-operator}}\n");
  ASSERT_TRUE(fleet);
  fleet->loop().run_for(110s);
  EXPECT_FALSE(fleet->ready());
  EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 30min)) << fleet->first_broken_link();
  EXPECT_EQ(fleet->chain().operator_fault, "");
  EXPECT_TRUE(fleet->endless_faults().empty());
}

// What nodes wait for follows from it, and nobody can ask the cluster.
TEST(cluster_hollow, a_shut_out_operator_comes_before_what_waits_for_it) {
  auto fleet = make("faults:\n  - {at: 5s, api: error, where: {component: gpu-operator}}\n");
  ASSERT_TRUE(fleet);
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min));
  EXPECT_TRUE(fleet->first_broken_link().starts_with("operator: ")) << fleet->first_broken_link();
  const std::string table = fleet::render(fleet->chain());
  EXPECT_TRUE(table.starts_with("OPERATOR: ")) << table;
  for (const std::string& text : {table, fleet->first_broken_link()})
    for (const char* command : {"kubectl ", "nvidia-smi", " its log"})
      EXPECT_EQ(text.find(command), std::string::npos) << text;
}

}  // namespace
}  // namespace gpuop::cluster::runs
