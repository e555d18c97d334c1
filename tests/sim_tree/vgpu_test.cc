// A vGPU host's /sys (mig-vgpu-sandbox.md §4.3, §4.4).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "driver_root.h"
#include "sim/vgpu_tree.h"

namespace gpuop::sim {
namespace {

class VgpuHost {
 public:
  VgpuHost(const std::string& model, const std::string& kernel) {
    NodeHardware hw;
    hw.model = model;
    hw.count = 1;
    hw.seed = 7;
    hw.kernel_release = kernel;
    hw.vgpu_host = true;
    hw.profiles = built_sim() / "profiles";
    auto built = build_node_tree(hw, root());
    EXPECT_TRUE(built) << built.error().text();
    EXPECT_EQ(file_.open((root() / "sim/state").string()), StateFault::kNone);
    auto put = put_vgpus(root(), *file_.read());
    EXPECT_TRUE(put) << put.error().text();
  }
  fs::path root() const { return dir_.path() / "kernel"; }
  fs::path sys() const { return root() / "sys"; }
  std::string read(const fs::path& file) const { return std::string(trim(*read_file(file))); }
  void write(const fs::path& file, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(file, text + "\n"));
  }
  std::vector<std::string> settle() {
    std::vector<std::string> refused;
    auto done = settle_vgpus(root(), *file_.read(), &refused);
    EXPECT_TRUE(done) << done.error().text();
    // A second look finds nothing to do.
    EXPECT_FALSE(*settle_vgpus(root(), *file_.read(), &refused));
    return refused;
  }
  // PCI functions that are virtual, in order.
  std::vector<fs::path> functions() const {
    std::vector<fs::path> out;
    auto names = list_dir(sys() / "bus/pci/devices");
    EXPECT_TRUE(names);
    for (const auto& name : *names) {
      if (file_exists(sys() / "bus/pci/devices" / name / "physfn"))
        out.push_back(sys() / "bus/pci/devices" / name);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  TempDir dir_{fast_prefix()};
  StateFile file_;
};

constexpr const char* kUuid = "6b2ab1d4-4d6b-4a1b-9b1e-0c4a7f2f3a0";

TEST(sim_tree, vgpu_mediated_devices_on_virtual_functions) {
  VgpuHost host("A100-PCIE-40GB", "5.15.0-91-generic");
  auto functions = host.functions();
  ASSERT_EQ(functions.size(), 16u);
  EXPECT_TRUE(file_exists(host.sys() / "class/mdev_bus" / functions[0].filename()));
  auto type = [&](std::size_t f) { return functions[f] / "mdev_supported_types/nvidia-471"; };
  EXPECT_EQ(host.read(type(0) / "name"), "NVIDIA A100-10C");
  EXPECT_EQ(host.read(type(0) / "available_instances"), "1");
  for (int i = 0; i < 5; ++i) {
    host.write(type(static_cast<std::size_t>(i)) / "create", kUuid + std::to_string(i));
    auto refused = host.settle();
    EXPECT_EQ(refused.size(), i == 4 ? 1u : 0u) << i;
  }
  EXPECT_EQ(list_dir(host.sys() / "bus/mdev/devices")->size(), 4u);
  EXPECT_EQ(host.read(type(0) / "available_instances"), "0");
  // Another type does not go beside it.
  host.write(functions[9] / "mdev_supported_types/nvidia-472/create", std::string(kUuid) + "9");
  EXPECT_EQ(host.settle().size(), 1u);
  host.write(host.sys() / "bus/mdev/devices" / (kUuid + std::string("0")) / "remove", "1");
  EXPECT_TRUE(host.settle().empty());
  EXPECT_EQ(list_dir(host.sys() / "bus/mdev/devices")->size(), 3u);
  EXPECT_EQ(host.read(type(0) / "available_instances"), "1");
}

TEST(sim_tree, vgpu_turing_board_is_its_own_parent) {
  VgpuHost host("T4", "6.8.0-60-generic");
  EXPECT_TRUE(host.functions().empty());
  auto parents = *list_dir(host.sys() / "class/mdev_bus");
  ASSERT_EQ(parents.size(), 1u);
  fs::path type = host.sys() / "class/mdev_bus" / parents[0] / "mdev_supported_types/nvidia-233";
  EXPECT_EQ(host.read(type / "available_instances"), "2");
  host.write(type / "create", std::string(kUuid) + "1");
  EXPECT_TRUE(host.settle().empty());
  EXPECT_EQ(host.read(type / "available_instances"), "1");
  host.write(type / "create", "nonsense");
  EXPECT_EQ(host.settle().size(), 1u);
}

TEST(sim_tree, vgpu_vendor_files_on_newer_kernels) {
  VgpuHost host("L40S", "6.8.0-60-generic");
  EXPECT_FALSE(file_exists(host.sys() / "class/mdev_bus"));
  auto functions = host.functions();
  ASSERT_EQ(functions.size(), 32u);
  auto current = [&](std::size_t f) { return functions[f] / "nvidia/current_vgpu_type"; };
  EXPECT_EQ(host.read(current(0)), "0");
  EXPECT_NE(host.read(functions[0] / "nvidia/creatable_vgpu_types").find("1561 : NVIDIA L40S-24Q"),
            std::string::npos);
  host.write(current(0), "1561");
  EXPECT_TRUE(host.settle().empty());
  host.write(current(1), "1561");
  EXPECT_TRUE(host.settle().empty());
  EXPECT_EQ(host.read(functions[2] / "nvidia/creatable_vgpu_types").find("L40S"), std::string::npos);
  host.write(current(2), "1561");
  EXPECT_EQ(host.settle().size(), 1u);
  EXPECT_EQ(host.read(current(2)), "0");
  host.write(current(3), "77");
  EXPECT_EQ(host.settle().size(), 1u);
  host.write(current(0), "0");
  EXPECT_TRUE(host.settle().empty());
  EXPECT_NE(host.read(functions[2] / "nvidia/creatable_vgpu_types").find("L40S-24Q"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::sim
