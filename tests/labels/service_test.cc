// Feature discovery as a whole, against the fake NVML.
#include "labels/service.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "kube/transport.h"
#include "labels/decide.h"
#include "sim/node_tree.h"
#include "sim/state/state.h"

namespace gpuop::labels {

class device_plugin_labels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    node_ = std::make_unique<TempDir>();
    ::setenv("GPUOP_KERNEL_ROOT", kernel().c_str(), 1);
    ::setenv("GPUOP_SIM_DEV", (driver() / "dev").c_str(), 1);
    sim::NodeHardware hardware;
    hardware.model = "A100-SXM4-80GB";
    hardware.count = 8;
    hardware.profiles = BUILD_ROOT "/sim/profiles";
    auto built = sim::build_node_tree(hardware, kernel());
    ASSERT_TRUE(built) << built.error().text();
    sim::DriverInstall install;
    install.version = "580.82.07";
    install.root = driver();
    install.kernel_root = kernel();
    install.sim_dir = BUILD_ROOT "/sim";
    auto installed = sim::preinstall_driver(install);
    ASSERT_TRUE(installed) << installed.error().text();
    ASSERT_TRUE(make_dirs(driver() / "dev") && sim::make_device_nodes(kernel(), driver() / "dev"));
  }
  static void TearDownTestSuite() {
    ::unsetenv("GPUOP_KERNEL_ROOT");
    ::unsetenv("GPUOP_SIM_DEV");
    node_.reset();
  }
  static fs::path kernel() { return node_->path() / "kernel"; }
  static fs::path driver() { return node_->path() / "driver"; }

  void start(std::map<std::string, std::string> env) {
    env["DRIVER_ROOT_CTR_PATH"] = driver();
    ServiceOptions options;
    options.inputs.env = std::move(env);
    options.make_client = [this](const sharing::Settings&) -> Result<std::unique_ptr<kube::Client>> {
      return std::make_unique<kube::Client>(
          loop_,
          kube::make_memory_transport(loop_, [this](HttpRequest request, std::shared_ptr<HttpResponder> to) {
            requests_.push_back(request.method);
            if (request.method == "POST") object_ = *parse_json(request.body);
            to->send(request.method == "GET" && object_.is_null()
                         ? HttpResponse::json(
                               404, R"({"kind":"Status","reason":"NotFound","code":404,"message":"none"})")
                         : HttpResponse::json(200, to_text(object_)));
          }));
    };
    service_ = std::make_unique<Service>(loop_, std::move(options),
                                         [this](Result<> how) { ended_ = std::move(how); });
    service_->start();
  }
  bool until(const std::function<bool()>& done) { return loop_.run_until(done, 5s); }

  static inline std::unique_ptr<TempDir> node_;
  TempDir dir_;
  Loop loop_;
  std::vector<std::string> requests_;
  Json object_;
  std::optional<Result<>> ended_;
  std::unique_ptr<Service> service_;
};

TEST_F(device_plugin_labels, case35_file_once) {
  fs::path file = dir_.path() / "features.d/gfd";
  start({{"GFD_ONESHOT", "true"},
         {"USE_NODE_FEATURE_API", "false"},
         {"GFD_OUTPUT_FILE", file},
         {"GFD_NO_TIMESTAMP", "true"}});
  ASSERT_TRUE(ended_.has_value());
  ASSERT_TRUE(*ended_) << ended_->error().text();
  service_.reset();
  auto text = read_file(file);
  ASSERT_TRUE(text);
  for (const char* line :
       {"nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB\n", "nvidia.com/gpu.count=8\n",
        "nvidia.com/gpu.memory=81920\n", "nvidia.com/gpu.family=ampere\n", "nvidia.com/gpu.mode=compute\n",
        "nvidia.com/cuda.driver-version.full=580.82.07\n", "nvidia.com/mig.capable=true\n",
        "nvidia.com/vgpu.present=false\n", "nvidia.com/gpu.machine=DGXA100-920-23687-2530-000\n"}) {
    EXPECT_NE(text->find(line), std::string::npos) << line << "is missing in\n" << *text;
  }
  EXPECT_EQ(text->find("timestamp"), std::string::npos);
}

TEST_F(device_plugin_labels, file_goes_with_the_process) {
  fs::path file = dir_.path() / "features.d/gfd";
  start({{"USE_NODE_FEATURE_API", "false"}, {"GFD_OUTPUT_FILE", file}});
  EXPECT_TRUE(file_exists(file));
  EXPECT_FALSE(ended_.has_value());
  service_.reset();
  EXPECT_FALSE(file_exists(file));
}

TEST_F(device_plugin_labels, case42_node_feature_is_left_alone_when_equal) {
  start({{"NODE_NAME", "n1"}, {"NAMESPACE", "ns"}, {"GFD_SLEEP_INTERVAL", "10ms"}});
  ASSERT_TRUE(until([&] { return requests_.size() >= 4; }));
  EXPECT_EQ(requests_[0], "GET");
  EXPECT_EQ(requests_[1], "POST");
  EXPECT_EQ(std::count(requests_.begin(), requests_.end(), "PUT"), 0);
  EXPECT_EQ(std::count(requests_.begin(), requests_.end(), "POST"), 1);
  EXPECT_EQ(get_string(object_, {"spec", "labels", "nvidia.com/gpu.count"}), "8");
}

TEST_F(device_plugin_labels, node_name_is_required) {
  start({{"GFD_ONESHOT", "true"}});
  ASSERT_TRUE(ended_.has_value());
  ASSERT_FALSE(*ended_);
  EXPECT_EQ(ended_->error().text(), "required flag node-name not set");
}

TEST_F(device_plugin_labels, case39_memory_not_supported) {
  sim::StateFile state;
  ASSERT_EQ(state.open(sim::state_path(driver(), "580.82.07")), sim::StateFault::kNone);
  auto force = [&](std::uint32_t count) {
    return state.update([&](sim::State& s) {
      s.forced_count = count;
      for (int i = 0; i < 2; ++i) {
        s.forced[i] = {};
        std::snprintf(s.forced[i].symbol, sizeof(s.forced[i].symbol), "nvmlDeviceGetMemoryInfo%s",
                      i ? "_v2" : "");
        s.forced[i].code = 3;
      }
      return 0;
    });
  };
  ASSERT_EQ(force(2), 0);
  fs::path file = dir_.path() / "gfd";
  start({{"GFD_ONESHOT", "true"}, {"USE_NODE_FEATURE_API", "false"}, {"GFD_OUTPUT_FILE", file}});
  ASSERT_EQ(force(0), 0);
  ASSERT_TRUE(ended_ && *ended_);
  std::string text = *read_file(file);
  EXPECT_EQ(text.find("gpu.memory"), std::string::npos);
  EXPECT_NE(text.find("nvidia.com/gpu.count=8\n"), std::string::npos);
}

}  // namespace gpuop::labels
