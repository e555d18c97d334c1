// Hollow fleets: the way from bare to schedulable without a process, and its replay.
#include <chrono>
#include <fstream>

#include "world.h"

namespace gpuop::cluster::test {
namespace {

TEST(cluster_hollow, three_nodes_become_schedulable) {
  auto fleet = HollowFleet::create(options_of(kThree));
  ASSERT_TRUE(fleet) << fleet.error().text();
  const auto began = std::chrono::steady_clock::now();
  const bool ready = (*fleet)->loop().run_until([&] { return (*fleet)->ready(); }, 10min);
  std::printf(
      "ready after %.3f s of the clock, %.2f s of real time; %llu requests, %llu of the operator, %llu "
      "events\n",
      std::chrono::duration<double>((*fleet)->events().elapsed()).count(),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
      static_cast<unsigned long long>((*fleet)->requests()),
      static_cast<unsigned long long>((*fleet)->requests_of("gpu-operator")),
      static_cast<unsigned long long>((*fleet)->events().lines()));
  if (!ready) std::ofstream("/tmp/hollow.events") << (*fleet)->events().text() << (*fleet)->normalised();
  ASSERT_TRUE(ready) << (*fleet)->first_broken_link() << "\n" << fleet::render((*fleet)->chain());
  const auto chain = (*fleet)->chain();
  ASSERT_EQ(chain.nodes.size(), 3u);
  EXPECT_EQ(chain.nodes[0].product, "8 × NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(chain.nodes[0].allocatable.at("nvidia.com/gpu"), 8);
  EXPECT_EQ(chain.nodes[2].allocatable.at("nvidia.com/gpu"), 2);
}

}  // namespace
}  // namespace gpuop::cluster::test
