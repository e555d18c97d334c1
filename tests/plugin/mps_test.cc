#include "plugin/mps.h"

#include "plugin/mps_daemon.h"
#include "tests/node_fixture.h"

namespace gpuop::plugin {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

sharing::Settings mps_settings(int replicas, const char* extra = "") {
  sharing::SettingsInputs inputs;
  inputs.file = *sharing::parse_config_file(
      "sharing: {mps: {" + std::string(extra) +
          "resources: [{name: gpu, replicas: " + std::to_string(replicas) + "}]}}",
      "f");
  return *sharing::resolve_settings(sharing::Program::kPlugin, inputs);
}

Facts gpus(int count, int major, std::optional<std::uint64_t> memory) {
  Facts facts;
  facts.platform = Platform::kNvml;
  for (int i = 0; i < count; ++i) {
    hardware::Gpu gpu;
    gpu.index = static_cast<unsigned>(i);
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.compute_capability = {major, 0};
    gpu.memory_bytes = memory;
    facts.inventory.gpus.push_back(gpu);
  }
  return facts;
}

// The whole service against the fake control program.
inline constexpr char kA100[] = "A100-SXM4-80GB";

class device_plugin_mps : public NodeFixture<kA100, 4> {
 protected:
  Result<> start(const char* config) {
    static_cast<void>(write_file_atomic(dir_.path() / "config.yaml", config));
    MpsServiceOptions options;
    options.inputs.env = {{"CONFIG_FILE", dir_.path() / "config.yaml"}, {"DRIVER_ROOT_CTR_PATH", driver()}};
    options.root = dir_.path() / "mps";
    options.control = driver() / "usr/bin/nvidia-cuda-mps-control";
    options.retry = 20ms;
    static_cast<void>(make_dirs(options.root));
    service_ =
        std::make_unique<MpsService>(loop_, options, [this](const Error& error) { fatal_ = error.text(); });
    return service_->start();
  }
  std::string ask(const char* resource, const char* command) {
    Command run;
    run.argv = {driver() / "usr/bin/nvidia-cuda-mps-control"};
    run.env = {"CUDA_MPS_PIPE_DIRECTORY=" + (dir_.path() / "mps" / resource / "pipe").string()};
    run.input = std::string(command) + "\n";
    auto state = run_command(run, 5s);
    return state && state->ok() ? state->out : "no daemon";
  }
  std::vector<std::uint32_t> modes() {
    std::vector<std::uint32_t> out;
    const sim::State* state = state_.read();
    for (std::uint32_t i = 0; i < state->gpu_count; ++i) out.push_back(state->gpus[i].live.compute_mode);
    return out;
  }
  fs::path mps(const char* name) const { return dir_.path() / "mps" / name; }

  TempDir dir_;
  Loop loop_;
  std::unique_ptr<MpsService> service_;
  std::string fatal_;
};

constexpr const char* kShared = "sharing: {mps: {resources: [{name: gpu, replicas: 3}]}}";

TEST_F(device_plugin_mps, daemon_starts_and_stops) {
  ASSERT_TRUE(start(kShared));
  ASSERT_TRUE(service_->ready());
  EXPECT_TRUE(file_exists(mps(".ready")));
  EXPECT_TRUE(file_exists(mps("nvidia.com/gpu/.started")));
  EXPECT_EQ(ask("nvidia.com/gpu", "get_default_active_thread_percentage"), "33.0\n");
  EXPECT_EQ(modes(), (std::vector<std::uint32_t>{3, 3, 3, 3}));
  // A changed configuration stops the daemon and starts the one of the new name.
  ASSERT_TRUE(
      write_file_atomic(dir_.path() / "config.yaml",
                        "sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"));
  service_->reload();
  EXPECT_EQ(ask("nvidia.com/gpu", "get_server_list"), "no daemon");
  EXPECT_EQ(ask("nvidia.com/gpu.shared", "get_default_active_thread_percentage"), "50.0\n");
  service_.reset();
  EXPECT_EQ(ask("nvidia.com/gpu.shared", "get_server_list"), "no daemon");
  EXPECT_FALSE(file_exists(mps(".ready")));
  EXPECT_FALSE(file_exists(mps("nvidia.com/gpu.shared/.started")));
  EXPECT_FALSE(file_exists(mps("nvidia.com/gpu.shared/log")));
  EXPECT_EQ(modes(), (std::vector<std::uint32_t>{0, 0, 0, 0}));
}

TEST_F(device_plugin_mps, nothing_to_share_is_ready_too) {
  ASSERT_TRUE(start("version: v1"));
  EXPECT_TRUE(file_exists(mps(".ready")));
  EXPECT_EQ(modes(), (std::vector<std::uint32_t>{0, 0, 0, 0}));
}

TEST_F(device_plugin_mps, start_that_fails_is_tried_again) {
  force("nvmlDeviceSetComputeMode", 4);
  ASSERT_TRUE(start(kShared));
  EXPECT_FALSE(service_->ready());
  EXPECT_FALSE(file_exists(mps(".ready")));
  force("", 0);
  EXPECT_TRUE(loop_.run_until([&] { return service_->ready(); }, 5s));
  EXPECT_EQ(fatal_, "");
}

TEST_F(device_plugin_mps, too_many_replicas_end_it) {
  auto started = start("sharing: {mps: {resources: [{name: gpu, replicas: 49}]}}");
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().text().find("maximum allowed replicas exceeded: 49 > 48"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::plugin

using namespace gpuop;          // NOLINT
using namespace gpuop::plugin;  // NOLINT

TEST(device_plugin, case45_mps_commands) {
  auto plan = plan_mps(mps_settings(3), gpus(2, 8, 40 * kGiB));
  ASSERT_TRUE(plan) << plan.error().text();
  ASSERT_EQ(plan->daemons.size(), 1u);
  const MpsDaemon& daemon = plan->daemons[0];
  EXPECT_EQ(daemon.resource, "nvidia.com/gpu");
  EXPECT_EQ(daemon.uuids, (std::vector<std::string>{"GPU-0", "GPU-1"}));
  EXPECT_EQ(daemon.limits, (std::vector<std::string>{"set_default_device_pinned_mem_limit 0 13653M",
                                                     "set_default_device_pinned_mem_limit 1 13653M"}));
  EXPECT_EQ(daemon.threads, "set_default_active_thread_percentage 33");
}

TEST(device_plugin, case45_mps_limits) {
  EXPECT_TRUE(plan_mps(mps_settings(48), gpus(1, 7, 16 * kGiB)));
  auto old = plan_mps(mps_settings(17), gpus(1, 6, 16 * kGiB));
  ASSERT_FALSE(old);
  EXPECT_NE(old.error().text().find("exceeded: 17 > 16"), std::string::npos);
  EXPECT_TRUE(plan_mps(mps_settings(2), gpus(1, 9, std::nullopt))->daemons[0].limits.empty());
  EXPECT_EQ(plan_mps(mps_settings(2, "renameByDefault: true, "), gpus(1, 9, kGiB))->daemons[0].resource,
            "nvidia.com/gpu.shared");
}

TEST(device_plugin, case46_shm_size) {
  EXPECT_EQ(shm_size("MemTotal:       8000002 kB\nMemFree: 1 kB\n"), "4000001k");
  EXPECT_EQ(shm_size("MemTotal: 131072000 kB\n"), "65536000k");
  EXPECT_EQ(shm_size("nothing"), "65536k");
  EXPECT_EQ(shm_size("MemTotal: x kB"), "65536k");
}
