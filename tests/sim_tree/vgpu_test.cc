// A vGPU host's /sys (mig-vgpu-sandbox.md §4.3, §4.4).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/text.h"
#include "driver_root.h"
#include "sim/vgpu_tree.h"
#include "sim/vgpu_watch.h"

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
  for (const char* name : {"sriov_numvfs", "sriov_totalvfs"})
    EXPECT_EQ(host.read(functions[0] / "physfn" / name), "32") << name;
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

TEST(sim_tree, vgpu_mediated_device_has_type_and_group) {
  VgpuHost host("T4", "6.8.0-60-generic");
  auto parents = *list_dir(host.sys() / "class/mdev_bus");
  const std::string uuid = std::string(kUuid) + "1";
  host.write(host.sys() / "class/mdev_bus" / parents[0] / "mdev_supported_types/nvidia-233/create", uuid);
  EXPECT_TRUE(host.settle().empty());
  const fs::path device = host.sys() / "bus/mdev/devices" / uuid;
  EXPECT_EQ(host.read(device / "mdev_type/name"), "GRID T4-8Q");
  const fs::path group = fs::canonical(device / "iommu_group");
  EXPECT_EQ(fs::canonical(group / "devices" / uuid), fs::canonical(device));
  host.write(device / "remove", "1");
  EXPECT_TRUE(host.settle().empty());
  EXPECT_FALSE(file_exists(group));
}

TEST(sim_tree, vgpu_host_of_boards_that_cannot_be_shared_out_is_refused) {
  TempDir dir(fast_prefix());
  NodeHardware hw;
  hw.model = "GB200";
  hw.count = 1;
  hw.vgpu_host = true;
  hw.profiles = built_sim() / "profiles";
  auto built = build_node_tree(hw, dir.path());
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().text().find("a vGPU host of 'GB200': this model has no vGPU types"),
            std::string::npos)
      << built.error().text();
}

// Waits for what the watch does on its loop.
class Watched {
 public:
  explicit Watched(const std::string& model) : node_(model, 1, 7, {}, true) {
    auto watch = VgpuWatch::create(loop_, node_.kernel());
    EXPECT_TRUE(watch) << watch.error().text();
    if (watch) watch_ = std::move(*watch);
  }
  fs::path sys() const { return node_.kernel() / "sys"; }
  fs::path kernel() const { return node_.kernel(); }
  // As `echo TEXT > FILE` does.
  static void write(const fs::path& file, const std::string& text) {
    FILE* f = std::fopen(file.c_str(), "we");
    ASSERT_TRUE(f) << file;
    std::fputs((text + "\n").c_str(), f);
    std::fclose(f);
  }
  bool becomes(const fs::path& file, const std::string& text) {
    return loop_.run_until(
        [&] {
          auto now = read_file(file);
          return now && trim(*now) == text;
        },
        10s);
  }
  bool appears(const fs::path& file, bool there = true) {
    return loop_.run_until([&] { return file_exists(file) == there; }, 10s);
  }

 private:
  DriverRoot node_;
  Loop loop_;
  std::unique_ptr<VgpuWatch> watch_;
};

TEST(sim_tree, vgpu_watch_follows_writes_and_the_driver) {
  Watched host("T4");
  auto type = [&] {
    auto parents = *list_dir(host.sys() / "class/mdev_bus");
    return host.sys() / "class/mdev_bus" / parents.at(0) / "mdev_supported_types/nvidia-233";
  };
  const std::string uuid = std::string(kUuid) + "1";
  const fs::path device = host.sys() / "bus/mdev/devices" / uuid;
  Watched::write(type() / "create", uuid);
  EXPECT_TRUE(host.becomes(type() / "available_instances", "1"));
  EXPECT_TRUE(file_exists(device));
  Watched::write(device / "remove", "1");
  EXPECT_TRUE(host.becomes(type() / "available_instances", "2"));
  EXPECT_FALSE(file_exists(device));

  for (const char* module : {"nvidia-modeset", "nvidia-uvm", "nvidia"}) {
    auto unloaded = unload_module(host.kernel(), module);
    ASSERT_TRUE(unloaded) << unloaded.error().text();
  }
  EXPECT_FALSE(file_exists(host.sys() / "class/mdev_bus"));
  ASSERT_TRUE(load_module(host.kernel(), "nvidia"));
  Watched::write(type() / "create", uuid);
  EXPECT_TRUE(host.appears(device));
}

TEST(sim_tree, vgpu_watch_takes_the_drivers_own_files) {
  Watched host("L40S");
  std::vector<fs::path> functions;
  const auto devices = list_dir(host.sys() / "bus/pci/devices");
  ASSERT_TRUE(devices);
  for (const auto& name : *devices) {
    if (file_exists(host.sys() / "bus/pci/devices" / name / "nvidia/current_vgpu_type"))
      functions.push_back(host.sys() / "bus/pci/devices" / name / "nvidia");
  }
  ASSERT_GE(functions.size(), 3u);
  for (std::size_t i : {0, 1, 2}) Watched::write(functions[i] / "current_vgpu_type", "1561");
  // Two halves are all there is.
  EXPECT_TRUE(host.becomes(functions[2] / "current_vgpu_type", "0"));
  EXPECT_TRUE(host.becomes(functions[0] / "creatable_vgpu_types", "ID : vGPU Name"));
  EXPECT_TRUE(host.becomes(functions[1] / "current_vgpu_type", "1561"));
}

TEST(sim_tree, vgpu_watch_is_for_vgpu_hosts) {
  DriverRoot node("T4", 1);
  Loop loop;
  auto watch = VgpuWatch::create(loop, node.kernel());
  ASSERT_FALSE(watch);
  EXPECT_EQ(watch.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace gpuop::sim
