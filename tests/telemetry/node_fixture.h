// A node with GPUs and a driver, made once for a suite.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/files.h"
#include "sim/node_tree.h"
#include "sim/state/state.h"

namespace gpuop::telemetry {

inline constexpr const char* kVersion = "580.82.07";

// `Model` names a profile of the fake hardware.
template <const char* kModel>
class NodeFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    node_ = std::make_unique<TempDir>();
    ::setenv("GPUOP_KERNEL_ROOT", kernel().c_str(), 1);
    ::setenv("GPUOP_SIM_DEV", hardware_nodes().c_str(), 1);
    sim::NodeHardware hardware;
    hardware.model = kModel;
    hardware.count = 2;
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
    ASSERT_TRUE(make_dirs(hardware_nodes()));
    auto nodes = sim::make_device_nodes(kernel(), hardware_nodes());
    ASSERT_TRUE(nodes) << nodes.error().text();
  }
  static void TearDownTestSuite() {
    ::unsetenv("GPUOP_KERNEL_ROOT");
    ::unsetenv("GPUOP_SIM_DEV");
    node_.reset();
  }
  void SetUp() override {
    ASSERT_EQ(state_.open(sim::state_path(driver(), kVersion)), sim::StateFault::kNone);
    for (std::uint32_t i = 0; i < 2; ++i) uuids_.emplace_back(state_.read()->gpus[i].board.uuid);
  }
  template <class Change>
  void change(Change with) {
    ASSERT_EQ(state_.update([&](sim::State& state) {
      with(state);
      return 0;
    }),
              0);
  }

  static fs::path kernel() { return node_->path() / "kernel"; }
  static fs::path driver() { return node_->path() / "driver"; }
  static fs::path hardware_nodes() { return node_->path() / "nodes"; }

  static inline std::unique_ptr<TempDir> node_;
  sim::StateFile state_;
  std::vector<std::string> uuids_;
};

}  // namespace gpuop::telemetry
