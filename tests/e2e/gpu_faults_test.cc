// GPUs that fail and come back on a fleet with real processes, and what gpuctl says of it.
#include "base/process.h"
#include "demo_fleet.h"

namespace gpuop {
namespace {

const std::string kGpuctl = BUILD_ROOT "/bin/gpuctl";
constexpr const char* kOneNode =
    "nodes: [{name: gpu, gpus: {model: A100-SXM4-80GB, count: 2}, driver: preinstalled}, {name: cpu}]";

class gpu_faults : public DemoFleet {
 protected:
  ExitState gpuctl(std::vector<std::string> words) {
    words.insert(words.begin(), kGpuctl);
    Command command{std::move(words), {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}};
    auto done = run_command(command, 20s);
    EXPECT_TRUE(done) << done.error().text();
    return done ? std::move(*done) : ExitState{};
  }
  void fault(const std::string& gpu, std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"sim", "fault", "--node", "gpu", "--state-dir", state_.string(), "--gpu", gpu});
    const auto done = gpuctl(std::move(words));
    ASSERT_EQ(done.code, 0) << done.err;
  }
  ExitState status() { return gpuctl({"status", "--kubeconfig", fleet_->kubeconfig().string()}); }
  std::int64_t allocatable() const {
    for (const auto& node : chain().nodes) {
      if (node.name != "gpu") continue;
      const auto found = node.allocatable.find("nvidia.com/gpu");
      return found == node.allocatable.end() ? 0 : found->second;
    }
    return -1;
  }
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(gpu_faults, are_named_and_end_with_the_reset) {
  bring_up(kOneNode);
  ASSERT_FALSE(HasFatalFailure());
  auto said = status();
  EXPECT_EQ(said.code, 0) << said.out;
  EXPECT_FALSE(contains(said.out, "!")) << said.out;

  fault("1", {"xid", "48"});
  ASSERT_TRUE(wait([&] { return allocatable() == 1; }, 20s)) << logs();
  said = status();
  EXPECT_EQ(said.code, 0) << said.out;
  EXPECT_TRUE(contains(said.out, "nvidia.com/gpu: 1 of 2 allocatable") && contains(said.out, ": XID 48"))
      << said.out;
  fault("1", {"recover"});
  ASSERT_TRUE(wait([&] { return allocatable() == 2; }, 20s)) << render(chain()) << logs();
  EXPECT_FALSE(contains(status().out, "XID")) << "what is over is not told";

  // Nothing left to schedule: the policy is not ready, and says where.
  fault("all", {"lost"});
  ASSERT_TRUE(wait([&] { return chain().policy_state == "notReady"; }, 20s)) << render(chain()) << logs();
  EXPECT_TRUE(contains(chain().message, "nvidia.com/gpu: 0 of 2 allocatable")) << chain().message;
  said = status();
  EXPECT_EQ(said.code, 1) << said.out;
  EXPECT_TRUE(contains(said.out, ": XID 79")) << said.out;

  // A plugin that starts while none answers gets them when they do.
  auto processes = cluster::list_fleet_processes(state_);
  ASSERT_TRUE(processes);
  for (const auto& info : *processes) {
    if (info.container.find("nvidia-device-plugin-daemonset") != std::string::npos &&
        info.role == "container" && info.container.ends_with("/nvidia-device-plugin"))
      ::kill(info.pid, SIGKILL);
  }
  ASSERT_TRUE(wait([&] { return contains(status().out, "not offered: GPU 0"); }, 40s))
      << status().out << logs();
  fault("all", {"recover"});
  ASSERT_TRUE(wait([&] { return allocatable() == 2 && chain().ready(); }, 60s)) << render(chain()) << logs();
}

TEST_F(gpu_faults, an_operator_that_was_scaled_down_is_named) {
  bring_up(kOneNode);
  ASSERT_FALSE(HasFatalFailure());
  const Json none = JsonObject{{"spec", JsonObject{{"replicas", 0}}}};
  const auto scaled = kube::await(loop_, [&](auto done) {
    return client_->patch(kube::kDeployments, "gpu-operator", "gpu-operator", kube::Patch::kMerge, none, {},
                          done);
  });
  ASSERT_TRUE(scaled) << scaled.error().message;
  const auto said = status();
  EXPECT_EQ(said.code, 1);
  EXPECT_TRUE(contains(said.out, "OPERATOR: Deployment gpu-operator is scaled to 0")) << said.out;
}

}  // namespace
}  // namespace gpuop
