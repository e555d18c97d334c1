// Real helm and our chart on simulated nodes: hooks run where pods run, and nothing of it is left at the end.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop {
namespace {

const std::string kGpuctl = BUILD_ROOT "/bin/gpuctl";
const std::string kFleet = SOURCE_ROOT "/tests/e2e/bare.yaml";

// A fleet without GPUs, from which everything that the demo installs has been taken again.
class HelmOnFleet : public ::testing::Test {
 protected:
  void SetUp() override {
    kubectl_ = env_or("GPUOP_KUBECTL",
                      env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache") + "/gpu-operator/kubectl/kubectl");
    helm_ = fs::path(kubectl_).replace_filename("helm").string();
    if (!file_exists(helm_)) {
      if (env_or("CI") == "true") FAIL() << "helm is not there: tests/tools/fetch-kubectl";
      GTEST_SKIP() << "helm is not there: tests/tools/fetch-kubectl";
    }
    run({kGpuctl, "demo", "--fleet", kFleet, "--timeout", "1s", "--keep", "--state-dir", state()});
    ASSERT_TRUE(file_exists(kubeconfig()));
    kubectl("delete clusterpolicies --all --timeout=30s");
    kubectl("delete namespace gpu-operator --timeout=60s");
    kubectl("delete clusterrole,clusterrolebinding gpu-operator --timeout=30s");
    kubectl(
        "delete crd clusterpolicies.nvidia.com nvidiadrivers.nvidia.com gpuclusters.nvidia.com "
        "nodefeatures.nfd.k8s-sigs.io nodefeaturerules.nfd.k8s-sigs.io nodefeaturegroups.nfd.k8s-sigs.io "
        "--timeout=30s");
  }
  void TearDown() override { run({kGpuctl, "demo", "--stop", "--state-dir", state()}); }

  std::string state() const { return (dir_.path() / "fleet").string(); }
  std::string kubeconfig() const { return state() + "/kubeconfig"; }
  ExitState run(std::vector<std::string> argv) const {
    Command command{std::move(argv),
                    {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                     "HOME=" + dir_.path().string(), "TMPDIR=" + env_or("TMPDIR", "/tmp")}};
    command.merge_output = true;
    auto result = run_command(command, 2min);
    return result ? std::move(*result) : ExitState{.code = -1, .out = result.error().text()};
  }
  ExitState with(const std::string& program, std::string_view arguments) const {
    std::vector<std::string> argv{program, "--kubeconfig", kubeconfig()};
    for (std::string& word : split_fields(arguments)) argv.push_back(std::move(word));
    return run(std::move(argv));
  }
  ExitState kubectl(std::string_view arguments) const { return with(kubectl_, arguments); }
  ExitState helm(const std::string& arguments) const {
    return with(helm_, arguments + " -n gpu-operator --wait --timeout 90s");
  }

  TempDir dir_;
  std::string kubectl_, helm_;
};

TEST_F(HelmOnFleet, our_chart_is_installed_upgraded_rolled_back_and_uninstalled) {
  const std::string chart = SOURCE_ROOT "/deploy/chart";
  const ExitState installed = helm("install g " + chart + " --create-namespace");
  ASSERT_EQ(installed.code, 0) << installed.out;
  const auto plugin = [&] {
    return kubectl("get clusterpolicy cluster-policy -o jsonpath={.spec.devicePlugin.enabled}").out;
  };
  EXPECT_EQ(plugin(), "true");
  const ExitState upgraded =
      helm("upgrade g " + chart + " --set devicePlugin.enabled=false --set operator.cleanupCRD=true");
  ASSERT_EQ(upgraded.code, 0) << upgraded.out;
  EXPECT_EQ(plugin(), "false");
  const std::string events =
      kubectl("get events -n gpu-operator -o custom-columns=O:.involvedObject.name,R:.reason").out;
  EXPECT_NE(events.find("gpu-operator-upgrade-crd"), std::string::npos) << events;
  const ExitState back = helm("rollback g 1");
  ASSERT_EQ(back.code, 0) << back.out;
  EXPECT_EQ(plugin(), "true");
  ASSERT_EQ(helm("upgrade g " + chart + " --set operator.cleanupCRD=true").code, 0);
  const ExitState removed = helm("uninstall g");
  ASSERT_EQ(removed.code, 0) << removed.out;
  // The clean-up ran in a pod: the kinds are gone.
  EXPECT_EQ(kubectl("get crd clusterpolicies.nvidia.com --ignore-not-found -o name").out, "");
  EXPECT_EQ(kubectl("get deployments,jobs -n gpu-operator -o name").out, "");
}

}  // namespace
}  // namespace gpuop
