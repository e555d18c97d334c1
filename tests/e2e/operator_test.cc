// The operator's own program, and what gpuctl says of a cluster before an installation.
#include <gtest/gtest.h>

#include <algorithm>

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

class status_of_operator : public DemoFleet {  // NOLINT(readability-identifier-naming): the suite's name
 protected:
  void scale(int replicas) {
    const Json patch = JsonObject{{"spec", JsonObject{{"replicas", replicas}}}};
    const auto done = kube::await(loop_, [&](const auto& answered) {
      return client_->patch(kube::kDeployments, "gpu-operator", "gpu-operator", kube::Patch::kMerge, patch,
                            {}, answered);
    });
    ASSERT_TRUE(done) << done.error().message;
  }
  ExitState status(std::vector<std::string> more) {
    std::vector<std::string> argv{BUILD_ROOT "/bin/gpuctl", "status", "--kubeconfig",
                                  fleet_->kubeconfig().string()};
    argv.insert(argv.end(), more.begin(), more.end());
    return run(std::move(argv));
  }
};

TEST_F(status_of_operator, waits_for_one_that_comes) {
  bring_up("nodes:\n  - {name: gpu, gpus: {model: L4, count: 1}, driver: preinstalled}\n");
  if (HasFatalFailure()) return;
  EXPECT_EQ(status({}).code, 0);
  scale(0);
  ASSERT_TRUE(wait(
      [&] {
        const auto found = deployments_->get("gpu-operator/gpu-operator");
        return found && get_int(*found, {"status", "availableReplicas"}) == 0;
      },
      30s));
  const ExitState without = status({});
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.out.find("OPERATOR: Deployment gpu-operator is scaled to 0"), std::string::npos)
      << without.out;
  scale(1);
  const ExitState waited = status({"--wait", "25s"});
  EXPECT_EQ(waited.code, 0) << waited.out << waited.err;
  EXPECT_EQ(waited.out.find("OPERATOR:"), std::string::npos) << waited.out;
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

TEST(preflight_of_values, of_another_chart_are_checked_below_the_key) {
  TempDir dir;
  const std::string file = (dir.path() / "values.yaml").string();
  const auto check = [&](const std::string& values, std::vector<std::string> more = {}) {
    EXPECT_TRUE(write_file_atomic(file, values).has_value());
    more.insert(more.begin(), {BUILD_ROOT "/bin/gpuctl", "preflight", "--values", file});
    return run(more);
  };
  const ExitState good = check("gpu-operator:\n  enabled: true\n  driver: {enabled: false}\n");
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_NE(good.out.find("what lies below 'gpu-operator' is checked"), std::string::npos) << good.out;
  const ExitState bad = check("gpu-operator:\n  driver: {enabled: 'x'}\n");
  EXPECT_EQ(bad.code, 1) << bad.out << bad.err;
  EXPECT_NE(bad.out.find("values.yaml:2: error: gpu-operator.driver.enabled: must be"), std::string::npos)
      << bad.out;
  EXPECT_EQ(check("gpus:\n  driver: {enabled: 'x'}\n").code, 0);
  EXPECT_EQ(check("gpus:\n  driver: {enabled: 'x'}\n", {"--values-key", "gpus"}).code, 1);
  EXPECT_EQ(check("gpus:\n  driver: {enabled: 'x'}\n", {"--values-key", "gpu"}).code, 2);
}

TEST(preflight_of_values, files_that_are_none_are_told_in_one_line) {
  TempDir dir;
  const std::string file = (dir.path() / "v.yaml").string();
  const auto check = [&](std::string_view values) {
    EXPECT_TRUE(write_file_atomic(file, values).has_value());
    return run({BUILD_ROOT "/bin/gpuctl", "preflight", "--values", file});
  };
  for (const auto& [values, says] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"a: \xff\n", "line 1, column 4: the byte 0xff is not UTF-8"},
           {"driver: {version: {{ .Values.x }}}\n", "'{{' needs quotes"},
           {"- driver: {}\n", "a values file is a map of keys"},
           {"a: 1\n---\nb: 1\n", "one document"}}) {
    const ExitState ended = check(values);
    EXPECT_EQ(ended.code, 2) << values;
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
  }
  const ExitState odd = check("\"a\\nb\\e[31m\": 1\n");
  EXPECT_EQ(odd.code, 0) << odd.out;
  EXPECT_NE(odd.out.find("warning: a\\nb\\x1b[31m: "), std::string::npos) << odd.out;
  EXPECT_EQ(run({BUILD_ROOT "/bin/gpuctl", "preflight", "--values", dir.path().string()}).code, 2);
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
