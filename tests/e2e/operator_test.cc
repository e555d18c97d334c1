// The operator's own program, and what gpuctl says of a cluster before an installation.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "demo_fleet.h"

namespace gpuop {
namespace {

ExitState run(std::vector<std::string> argv) {
  auto result = run_command({.argv = std::move(argv), .env = {}}, 30s);
  return result ? std::move(*result) : ExitState{.code = -1, .err = result.error().text()};
}

// operator.md, acceptance case 41.
TEST(operator_process, case41_without_its_namespace_it_ends_and_names_the_variable) {
  const ExitState ended = run({BUILD_ROOT "/bin/gpu-operator", "--kubeconfig", "/nonexistent"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE((ended.out + ended.err).find("OPERATOR_NAMESPACE"), std::string::npos) << ended.out << ended.err;
}

TEST(preflight_of_values, refuses_what_would_end_the_device_plugin) {
  TempDir dir;
  const std::string file = (dir.path() / "values.yaml").string();
  const auto check = [&](const std::string& values) {
    EXPECT_TRUE(write_file_atomic(file, values).has_value());
    return run({BUILD_ROOT "/bin/gpuctl", "preflight", "--values", file});
  };
  const std::string start = "devicePlugin:\n  config:\n    name: plug\n    create: true\n";
  EXPECT_EQ(check(start + "    data: {any: 'version: v1'}\n").code, 0);
  const ExitState bad = check(start + "    data: {any: 'sharing: 3'}\n");
  EXPECT_EQ(bad.code, 1) << bad.out << bad.err;
  EXPECT_NE(bad.out.find("values.yaml:5: error: devicePlugin.config.data.any: "), std::string::npos)
      << bad.out;
}

using preflight = DemoFleet;

TEST_F(preflight, says_of_a_cluster_what_speaks_against_it) {
  bring_up();
  const std::string kubeconfig = fleet_->kubeconfig().string();
  const auto check = [&](const std::string& values) {
    const fs::path file = dir_.path() / "values.yaml";
    EXPECT_TRUE(write_file_atomic(file, values).has_value());
    return run({BUILD_ROOT "/bin/gpuctl", "preflight", "--cluster", "--kubeconfig", kubeconfig, "--values",
                file.string()});
  };
  const ExitState good = check("driver: {version: 580.105.08}\n");
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  const ExitState bad = check("driver: {manager: {image: k8s-driver-manager, version: v0.6.0}}\n");
  EXPECT_EQ(bad.code, 1) << bad.out << bad.err;
  EXPECT_NE(bad.out.find("cluster: error: driver-manager: "), std::string::npos) << bad.out;
  EXPECT_EQ(run({BUILD_ROOT "/bin/gpuctl", "preflight", "--cluster", "--kubeconfig", "/nonexistent"}).code,
            2);
}

}  // namespace
}  // namespace gpuop
