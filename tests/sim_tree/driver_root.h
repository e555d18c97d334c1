// A simulated node in a temporary folder: kernel tree, driver root, and a folder that stands for /dev.
#pragma once

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <set>
#include <string>

#include "base/files.h"
#include "sim/node_tree.h"
#include "sim/state/state.h"

namespace gpuop::sim {

constexpr const char* kDriver = "580.82.07";

inline fs::path built_sim() {
  return fs::path(BUILD_ROOT) / "sim";
}

// A tree is some hundred small files: kept off the disk where the memory file system may hold programs.
inline std::string fast_prefix() {
  struct statvfs fs{};
  if (statvfs("/dev/shm", &fs) == 0 && (fs.f_flag & ST_NOEXEC) == 0) setenv("TMPDIR", "/dev/shm", 1);
  return "sim";
}

class DriverRoot {
 public:
  DriverRoot(const std::string& model, int count, std::uint64_t seed = 7,
             const std::vector<std::string>& hidden = {}, bool vgpu_host = false) {
    NodeHardware hw;
    hw.model = model;
    hw.vgpu_host = vgpu_host;
    hw.count = count;
    hw.seed = seed;
    hw.profiles = built_sim() / "profiles";
    auto built = build_node_tree(hw, kernel());
    EXPECT_TRUE(built) << built.error().text();
    DriverInstall in = install();
    in.hidden_symbols = hidden;
    auto installed = preinstall_driver(in);
    EXPECT_TRUE(installed) << installed.error().text();
    fill_dev();
  }

  fs::path kernel() const { return dir_.path() / "kernel"; }
  fs::path root() const { return dir_.path() / "root"; }
  fs::path dev() const { return dir_.path() / "dev"; }
  fs::path library(const std::string& name) const { return state_path(root(), kDriver).parent_path() / name; }
  DriverInstall install() const { return {kDriver, root(), kernel(), built_sim()}; }

  void fill_dev() {
    fs::remove_all(dev());
    auto nodes = device_nodes(kernel());
    ASSERT_TRUE(nodes);
    for (const auto& node : *nodes) {
      fs::create_directories((dev() / node.name).parent_path());
      EXPECT_TRUE(write_file_atomic(dev() / node.name, ""));
    }
    fs::create_directories(dev());
    setenv("GPUOP_SIM_DEV", dev().c_str(), 1);
  }
  void keep_devices(const std::set<std::string>& names) {
    fs::remove_all(dev());
    fs::create_directories(dev());
    for (const auto& name : names) EXPECT_TRUE(write_file_atomic(dev() / name, ""));
    setenv("GPUOP_SIM_DEV", dev().c_str(), 1);
  }
  void change(const std::function<void(State&)>& with) const {
    StateFile file;
    ASSERT_EQ(file.open((kernel() / "sim/state").string()), StateFault::kNone);
    ASSERT_EQ(file.update([&](State& s) {
      with(s);
      return 0;
    }),
              0);
  }

 private:
  TempDir dir_{fast_prefix()};
};

}  // namespace gpuop::sim
