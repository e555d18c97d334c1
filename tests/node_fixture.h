// A node with fake GPUs and a driver, made once for a suite. For tests of rooms that read hardware.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/files.h"
#include "sim/faults.h"
#include "sim/node_tree.h"
#include "sim/state/state.h"

namespace gpuop {

inline constexpr const char* kVersion = "580.82.07";

// `kModel` names a profile of the fake hardware.
template <const char* kModel, unsigned kCount>
class NodeFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    node_ = std::make_unique<TempDir>();
    ::setenv("GPUOP_KERNEL_ROOT", kernel().c_str(), 1);
    ::setenv("GPUOP_SIM_DEV", hardware_nodes().c_str(), 1);
    sim::NodeHardware hardware;
    hardware.model = kModel;
    hardware.count = kCount;
    hardware.seed = 7;
    hardware.profiles = BUILD_ROOT "/sim/profiles";
    auto built = sim::build_node_tree(hardware, kernel());
    ASSERT_TRUE(built) << built.error().text();
    sim::DriverInstall install;
    install.version = kVersion;
    install.root = driver();
    install.kernel_root = kernel();
    install.sim_dir = BUILD_ROOT "/sim";
    auto installed = sim::preinstall_driver(install);
    ASSERT_TRUE(installed) << installed.error().text();
    ASSERT_TRUE(make_dirs(driver() / "dev") && make_dirs(hardware_nodes()));
    auto nodes = sim::make_device_nodes(kernel(), hardware_nodes());
    ASSERT_TRUE(nodes) << nodes.error().text();
  }
  static void TearDownTestSuite() {
    ::unsetenv("GPUOP_KERNEL_ROOT");
    ::unsetenv("GPUOP_SIM_DEV");
    node_.reset();
  }
  void SetUp() override {
    ASSERT_TRUE(sim::make_device_nodes(kernel(), driver() / "dev"));
    ASSERT_EQ(state_.open(sim::state_path(driver(), kVersion)), sim::StateFault::kNone);
    force("", 0);
    change([](sim::State& state) {
      for (std::uint32_t i = 0; i < kCount; ++i)
        state.gpus[i].live.lost = state.gpus[i].live.recovery_action = 0;
    });
    for (std::uint32_t i = 0; i < kCount; ++i) uuids_.emplace_back(state_.read()->gpus[i].board.uuid);
  }
  template <class Change>
  void change(Change with) {
    ASSERT_EQ(state_.update([&](sim::State& state) {
      with(state);
      return 0;
    }),
              0);
  }
  // Makes every call of `symbol` fail with `code`; 0 ends it.
  void force(const char* symbol, int code) {
    change([&](sim::State& state) {
      state.forced_count = code ? 1 : 0;
      state.forced[0] = {};
      std::snprintf(state.forced[0].symbol, sizeof(state.forced[0].symbol), "%s", symbol);
      state.forced[0].code = code;
    });
  }
  // As `gpuctl sim fault`; -1: every board.
  void fault(int gpu, const std::vector<std::string>& words) {
    auto parsed = sim::parse_fault(words);
    ASSERT_TRUE(parsed) << parsed.error().text();
    auto done = sim::apply_fault(kernel(), gpu, *parsed);
    ASSERT_TRUE(done) << done.error().text();
  }

  static fs::path kernel() { return node_->path() / "kernel"; }
  static fs::path driver() { return node_->path() / "driver"; }
  // What the fake NVML looks for, apart from what containers are given.
  static fs::path hardware_nodes() { return node_->path() / "nodes"; }

  static inline std::unique_ptr<TempDir> node_;
  sim::StateFile state_;
  std::vector<std::string> uuids_;
};

}  // namespace gpuop
