#include "hardware/mig.h"

#include <gtest/gtest.h>

namespace gpuop::hardware {
namespace {

TEST(hardware, mig_minors_are_read_strictly) {
  auto minors = parse_mig_minors(
      "config 1\nmonitor 2\ngpu0/gi0/access x\ngpu0/gi1/anything 9\ngpu1/gi2/access 30\ngpu1/gi2/ci0/access "
      "31\n"
      "gpu1/gi2/ci0 32\ngpu1/gi3/access 40 extra\n");
  EXPECT_EQ(minors.config(), 1u);
  EXPECT_EQ(minors.monitor(), 2u);
  EXPECT_EQ(minors.gpu_instance(1, 2), 30u);
  EXPECT_EQ(minors.compute_instance(1, 2, 0), 31u);
  EXPECT_EQ(minors.gpu_instance(0, 0), std::nullopt);
  EXPECT_EQ(minors.minors.size(), 4u);
  EXPECT_EQ(minors.bad_lines.size(), 4u);
}

TEST(hardware, mig_profile_texts) {
  constexpr std::uint64_t kA100 = 42949672960;
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(0), 1, 4864, kA100), "1g.5gb");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(7), 1, 4864, kA100), "1g.5gb+me");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(9), 1, 9856, kA100), "1g.10gb");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(1), 2, 9856, kA100), "2g.10gb");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(1), 1, 9856, kA100), "1c.2g.10gb");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(2), 3, 19968, kA100), "3g.20gb");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(4), 7, 40192, kA100), "7g.40gb");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(0xA), 1, 4864, kA100), "1g.5gb+gfx");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(0xD), 1, 4864, kA100), "1g.5gb-me");
  EXPECT_EQ(mig_profile_text(*gpu_instance_kind(0xF), 1, 4864, kA100), "1g.5gb+me.all");
  EXPECT_FALSE(gpu_instance_kind(0x12).has_value());
}

}  // namespace
}  // namespace gpuop::hardware
