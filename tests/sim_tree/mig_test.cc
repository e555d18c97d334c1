// Partitioning (mig-vgpu-sandbox.md §2.4): the tables of placements that the specification lists.
#include <gtest/gtest.h>

#include <memory>

#include "driver_root.h"
#include "sim/profile.h"
#include "sim/state/mig.h"

namespace gpuop::sim {
namespace {

std::unique_ptr<Gpu> board(const std::string& model) {
  auto profile = load_profile(built_sim() / "profiles", model);
  EXPECT_TRUE(profile) << profile.error().text();
  auto gpu = std::make_unique<Gpu>();
  gpu->board = *make_board(*profile, 1, 0, 1, 1);
  gpu->live.mig_current = 1;
  return gpu;
}

// Starts given to profiles (by slices; 1 double memory is 12), -1 for refused.
std::vector<int> starts(Gpu& gpu, const std::vector<int>& order) {
  std::vector<int> out;
  for (int slices : order) {
    std::uint32_t profile = slices == 1   ? 0
                            : slices == 2 ? 1
                            : slices == 3 ? 2
                            : slices == 4 ? 3
                            : slices == 7 ? 4
                                          : 9;
    const GiProfile* row = find_gi_profile(gpu.board, profile);
    int made = -1;
    int code = create_gi(gpu, row->id, kNone, &made);
    out.push_back(code == 0 ? static_cast<int>(gpu.live.gis[made].start) : -1);
    EXPECT_TRUE(code == 0 || code == 23) << code;
  }
  return out;
}

TEST(sim_tree, mig_default_placements_are_the_published_ones) {
  using Case = std::pair<std::vector<int>, std::vector<int>>;
  const Case cases[] = {
      {{3, 2, 1, 1}, {4, 0, 2, 3}},
      {{3, 3}, {4, 0}},
      {{2, 2, 2, 1}, {4, 0, 2, 6}},
      {{4, 2, 1}, {0, 4, 6}},
      {{4, 1, 1, 1}, {0, 6, 4, 5}},
      {{1, 1, 1, 1, 1, 1, 1}, {6, 4, 5, 0, 1, 2, 3}},
      {{12, 12, 12, 12}, {6, 4, 0, 2}},
      {{1, 1, 2, 3}, {6, 4, 0, -1}},
      {{2, 1, 1, 1, 1, 1}, {4, 6, 0, 1, 2, 3}},
  };
  for (const auto& [order, want] : cases) {
    auto gpu = board("A100");
    EXPECT_EQ(starts(*gpu, order), want) << testing::PrintToString(order);
  }
}

TEST(sim_tree, mig_ids_are_heap_indices) {
  auto gpu = board("H200");
  int made = -1;
  auto id = [&](std::uint32_t profile_id, std::uint32_t start) {
    EXPECT_EQ(create_gi(*gpu, profile_id, start, &made), 0);
    return gpu->live.gis[made].id;
  };
  EXPECT_EQ(id(9, 0), 1u);
  EXPECT_EQ(id(14, 4), 5u);
  EXPECT_EQ(id(19, 6), 13u);
  EXPECT_EQ(destroy_gi(*gpu, 9), 6);
  auto whole = board("A100");
  ASSERT_EQ(create_gi(*whole, 0, kNone, &made), 0);
  EXPECT_EQ(whole->live.gis[made].id, 0u);
  EXPECT_EQ(remaining_gis(*whole, 19), 0u);
}

TEST(sim_tree, mig_refuses_a_second_media_instance_and_wrong_starts) {
  auto gpu = board("A100");
  int made = -1;
  EXPECT_EQ(remaining_gis(*gpu, 19), 7u);
  ASSERT_EQ(create_gi(*gpu, 20, kNone, &made), 0);
  EXPECT_EQ(create_gi(*gpu, 20, kNone, &made), 23);
  EXPECT_EQ(create_gi(*gpu, 9, 2, &made), 2);
  EXPECT_EQ(create_gi(*gpu, 77, kNone, &made), 2);
}

TEST(sim_tree, mig_compute_instances_fill_from_the_start) {
  auto state = std::make_unique<State>();
  state->gpu_count = 1;
  state->gpus[0] = *board("A100");
  int gi = -1, ci = -1;
  ASSERT_EQ(create_gi(state->gpus[0], 9, kNone, &gi), 0);
  EXPECT_EQ(remaining_cis(state->gpus[0], gi, 0), 3u);
  ASSERT_EQ(create_ci(*state, 0, gi, 0, kNone, &ci), 0);
  std::string first = state->gpus[0].live.gis[gi].cis[ci].uuid;
  ASSERT_EQ(create_ci(*state, 0, gi, 1, kNone, &ci), 0);
  EXPECT_EQ(state->gpus[0].live.gis[gi].cis[ci].start, 1u);
  EXPECT_NE(first, state->gpus[0].live.gis[gi].cis[ci].uuid);
  EXPECT_EQ(first.size(), 40u);
  EXPECT_EQ(create_ci(*state, 0, gi, 0, kNone, &ci), 23);
  EXPECT_EQ(create_ci(*state, 0, gi, 3, kNone, &ci), 2);
  EXPECT_EQ(destroy_gi(state->gpus[0], gi), 19);
}

}  // namespace
}  // namespace gpuop::sim
