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

std::vector<std::string> warnings_of(const HollowFleet& fleet, const std::string& name) {
  for (const auto& node : fleet.chain().nodes)
    if (node.name == name) return node.warnings;
  return {};
}

bool has_part(const std::vector<std::string>& texts, const std::string& part) {
  return std::ranges::any_of(texts, [&](const auto& text) { return text.find(part) != std::string::npos; });
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

TEST(cluster_hollow, a_gpu_that_fails_is_named_with_its_uuid_and_a_cure) {
  auto fleet = make(R"(faults:
  - {at: 60s, node: a100, event: gpu-lost, gpu: 3}
  - {at: 61s, node: a100, event: ecc, gpu: 5}
  - {at: 62s, node: l4, event: xid, xid: 119, gpu: 1}
  - {at: 62s, node: l4, event: xid, xid: 31, gpu: 0}
)");
  ASSERT_TRUE(fleet);
  fleet->loop().run_for(59s);
  ASSERT_TRUE(fleet->ready()) << fleet->first_broken_link();
  EXPECT_TRUE(warnings_of(*fleet, "a100").empty());
  fleet->loop().run_for(30s);
  const auto a100 = warnings_of(*fleet, "a100");
  EXPECT_TRUE(has_part(a100, "nvidia.com/gpu: 6 of 8 allocatable"));
  EXPECT_TRUE(has_part(a100, "GPU 3 (GPU-")) << join(a100, "\n");
  EXPECT_TRUE(has_part(a100, "): XID 79, the GPU has fallen off the bus; drain and reboot the node"))
      << join(a100, "\n");
  EXPECT_TRUE(has_part(a100, "GPU 5 (GPU-")) << join(a100, "\n");
  EXPECT_TRUE(has_part(a100, "): XID 48, two bits of its memory are wrong; ")) << join(a100, "\n");
  const auto l4 = warnings_of(*fleet, "l4");
  EXPECT_TRUE(has_part(l4, "GPU 1 (GPU-")) << join(l4, "\n");
  EXPECT_TRUE(has_part(l4, "): XID 119, its firmware (GSP) does not answer; ")) << join(l4, "\n");
  EXPECT_FALSE(has_part(l4, "GPU 0")) << "an application's fault is no GPU's: " << join(l4, "\n");
}

// A plugin that starts then offers what answers, and says what does not.
TEST(cluster_hollow, a_gpu_that_was_lost_before_its_plugin_started_is_named) {
  auto fleet = make(R"(faults:
  - {at: 60s, node: a100, event: gpu-lost, gpu: 3}
  - {at: 70s, node: a100, event: plugin-crash}
)");
  ASSERT_TRUE(fleet);
  fleet->loop().run_for(3min);
  EXPECT_TRUE(has_part(warnings_of(*fleet, "a100"), "not offered: GPU 3: GPU is lost"))
      << join(warnings_of(*fleet, "a100"), "\n");
}

}  // namespace
}  // namespace gpuop::cluster::runs
