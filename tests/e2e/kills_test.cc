// Whatever is killed, at whatever moment, the fleet comes back to the state that it was in.
#include <signal.h>

#include <random>

#include "demo_fleet.h"

namespace gpuop {
namespace {

class e2e : public DemoFleet {};

TEST_F(e2e, fifty_kills_end_in_the_same_ready_state) {
  bring_up();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(wait([&] { return settled(); }, 20s));
  const auto before = picture();
  std::mt19937 random(20260729);
  std::map<std::string, int> killed;
  for (int i = 0; i < 50; ++i) {
    auto processes = cluster::list_fleet_processes(state_);
    ASSERT_TRUE(processes) << processes.error().text();
    std::erase_if(*processes,
                  [](const auto& info) { return info.role == "supervisor" || info.role == "control-plane"; });
    ASSERT_FALSE(processes->empty());
    const auto& victim = (*processes)[random() % processes->size()];
    ::kill(victim.pid, SIGKILL);
    ++killed[victim.role];
    loop_.run_for(std::chrono::milliseconds(10 + random() % 300));
    ASSERT_FALSE(ended_) << "the supervisor ended" << logs();
  }
  EXPECT_GT(killed["container"], 0);
  EXPECT_GT(killed["shim"], 0);
  EXPECT_GT(killed["runtime"] + killed["kubelet"], 0);
  EXPECT_TRUE(wait([&] { return chain().ready() && settled() && picture() == before; }, 400s))
      << render(chain()) << waiting() << logs();
}

// The runtime injects what CDI files say and nothing else.
TEST_F(e2e, a_pod_without_its_cdi_file_fails_and_says_so) {
  bring_up("nodes: [{name: gpu, gpus: {model: A100-SXM4-80GB, count: 1}, driver: preinstalled}]");
  ASSERT_FALSE(HasFatalFailure());
  fs::path cdi = root_of("gpu") / "var/run/cdi";
  auto names = list_dir(cdi);
  ASSERT_TRUE(names && !names->empty());
  std::map<std::string, std::string> kept;
  for (const std::string& name : *names) {
    kept[name] = *read_file(cdi / name);
    ASSERT_TRUE(remove_file(cdi / name));
  }
  Json pod = *parse_json(
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"wants-gpu","namespace":"gpu-operator"},)"
      R"("spec":{"restartPolicy":"Never","containers":[{"name":"c","image":")" +
      std::string(kImage) +
      R"(","command":["nvidia-smi","-L"],"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}})");
  auto made = kube::await(
      loop_, [&](auto done) { return client_->create(kube::kPods, "gpu-operator", pod, {}, done); });
  ASSERT_TRUE(made) << made.error().message;
  auto text = [&] {
    auto live = pods_->get("gpu-operator/wants-gpu");
    return live ? to_text(*find(*live, {"status"})) : std::string();
  };
  EXPECT_TRUE(wait([&] { return text().find("unresolvable CDI devices") != std::string::npos; }, 20s))
      << text();
  for (const auto& [name, content] : kept) ASSERT_TRUE(write_file_atomic(cdi / name, content));
  EXPECT_TRUE(wait([&] { return text().find("\"phase\":\"Succeeded\"") != std::string::npos; }, 60s))
      << text() << logs();
}

}  // namespace
}  // namespace gpuop
