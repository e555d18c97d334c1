// Many nodes on the virtual clock: what a change costs must follow what changed.
#include <chrono>

#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

TEST(cluster_controllers, a_daemon_set_on_100_nodes) {
  SmallCluster t;
  t.kubelet = true;
  for (int i = 0; i < 100; ++i) t.add_node("n" + std::to_string(i), R"({"gpu":"yes"})");
  const auto began = std::chrono::steady_clock::now();
  t.create(kube::kDaemonSets, "default", kDaemonSet);
  t.loop->run_until(
      [&] {
        return get_int(*t.get(kube::kDaemonSets, "default", "d"), {"status", "numberAvailable"}) == 100;
      },
      30s);
  EXPECT_EQ(get_int(*t.get(kube::kDaemonSets, "default", "d"), {"status", "numberAvailable"}), 100);
  std::printf("100 pods: %.2f s of real time, %.3f s on the clock\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
              std::chrono::duration<double>(t.loop->elapsed()).count());
}

}  // namespace
}  // namespace gpuop::cluster::test
