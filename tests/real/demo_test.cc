// The demo on the real control plane: its operator, operands and node simulator are the same programs as on
// the embedded one, and only the API server, the scheduler and the controllers are Kubernetes' own.
#include <gtest/gtest.h>

#include "base/files.h"
#include "cluster_fixture.h"

namespace gpuop::real {
namespace {

TEST(real, demo_comes_up_on_the_real_control_plane_and_leaves_it_as_it_was) {
  const std::string kubeconfig = env_or("GPUOP_REAL_BARE_KUBECONFIG");
  ASSERT_NE(kubeconfig, "");
  const auto demo = run({BUILD_ROOT "/bin/gpuctl", "demo", "--kubeconfig", kubeconfig, "--state-dir",
                         (fs::path(folder()) / "fleet").string(), "--timeout", "2m"},
                        5min);
  EXPECT_EQ(demo.code, 0) << demo.out << demo.err;
  for (const char* part :
       {"a100: READY", "h200: READY", "l4: READY", "Pod one-gpu (asks for one whole GPU): Succeeded on node",
        "Pod shared-gpu (asks for a share of a GPU): Succeeded on node l4", "Test PASSED",
        "Insufficient nvidia.com/gpu", "ClusterPolicy cluster-policy: ready"}) {
    EXPECT_TRUE(contains(demo.out, part)) << "missing: " << part << "\n" << demo.out << demo.err;
  }
  for (const char* what : {"nodes", "crd", "namespace/gpu-operator", "clusterrole/gpu-operator"}) {
    const auto left = run({env_or("GPUOP_KUBECTL", "kubectl"), "--kubeconfig", kubeconfig, "get", what,
                           "--ignore-not-found", "-o", "name"},
                          30s);
    EXPECT_EQ(left.out, "") << left.err;
  }
}

}  // namespace
}  // namespace gpuop::real
