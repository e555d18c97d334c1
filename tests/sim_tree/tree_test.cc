// Profiles, kernel trees, modules and driver files.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "driver_root.h"
#include "sim/modules.h"
#include "sim/profile.h"

namespace gpuop::sim {
namespace {

std::string text_of(const fs::path& path) {
  auto text = read_file(path);
  EXPECT_TRUE(text) << text.error().text();
  return std::string(trim(text.value_or("")));
}

std::string profile_text() {
  return *read_file(built_sim() / "profiles/l4.yaml");
}

std::string profile_error(const std::string& from, const std::string& to) {
  std::string text = profile_text();
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  auto parsed = parse_profile(text, "l4.yaml");
  return parsed ? "" : parsed.error().text();
}

TEST(sim_tree, profiles_are_read_strictly) {
  EXPECT_TRUE(parse_profile(profile_text(), "l4.yaml"));
  std::string unknown = profile_error("width: 16", "wdith: 16");
  EXPECT_NE(unknown.find("pci.width: is missing"), std::string::npos) << unknown;
  EXPECT_NE(
      profile_error("gpm: false", "gpm: false\ngmp: true").find("gmp: unknown key (did you mean 'gpm'?)"),
      std::string::npos);
  EXPECT_NE(profile_error("architecture: ada", "architecture: adda").find("did you mean 'ada'"),
            std::string::npos);
  EXPECT_NE(profile_error("width: 16", "width: 99").find("line 18: pci.width: must be 1 to 32; got 99"),
            std::string::npos)
      << profile_error("width: 16", "width: 99");
  EXPECT_NE(profile_error("generation: 4", "generation: four").find("pci.generation: must be a whole number"),
            std::string::npos);
  EXPECT_NE(profile_error("ecc: true", "ecc: true\necc: false").find("occurs twice"), std::string::npos);
  EXPECT_NE(load_profile(built_sim() / "profiles", "H20").error().text().find("did you mean 'H200'"),
            std::string::npos);
  EXPECT_EQ(*profile_models(built_sim() / "profiles"),
            (std::vector<std::string>{"A100-PCIE-40GB", "A100-PCIE-80GB", "A100-SXM4-40GB", "A100-SXM4-80GB",
                                      "A30", "B200", "GB200", "H100-PCIE-80GB", "H100-SXM5-80GB", "H200",
                                      "L4", "L40S", "RTX-PRO-6000", "T4"}));
}

TEST(sim_tree, boards_come_back_the_same_and_differ_by_seed) {
  auto profile = *load_profile(built_sim() / "profiles", "a100");
  auto a = *make_board(profile, 5, 1, 8, 2), again = *make_board(profile, 5, 1, 8, 2),
       other = *make_board(profile, 6, 1, 8, 2);
  EXPECT_STREQ(a.uuid, again.uuid);
  EXPECT_STRNE(a.uuid, other.uuid);
  EXPECT_STRNE(a.serial, other.serial);
  EXPECT_EQ(a.numa_node, 0);
  EXPECT_EQ(make_board(profile, 5, 7, 8, 2)->numa_node, 1);
  EXPECT_FALSE(make_board(profile, 5, 8, 9, 2));
}

TEST(sim_tree, tree_of_a_node) {
  DriverRoot root("A100", 8);
  fs::path sys = root.kernel() / "sys", gpu = sys / "bus/pci/devices/0000:0f:00.0";
  EXPECT_EQ(text_of(gpu / "vendor"), "0x10de");
  EXPECT_EQ(text_of(gpu / "device"), "0x20b2");
  EXPECT_EQ(text_of(gpu / "class"), "0x030200");
  EXPECT_EQ(text_of(gpu / "numa_node"), "0");
  EXPECT_EQ(text_of(gpu / "modalias"), "pci:v000010DEd000020B2sv000010DEsd00001463bc03sc02i00");
  EXPECT_EQ(read_file(gpu / "config")->size(), 256u);
  EXPECT_EQ(fs::canonical(gpu / "driver"), fs::canonical(sys / "bus/pci/drivers/nvidia"));
  EXPECT_TRUE(file_exists(sys / "bus/pci/drivers/nvidia/0000:0f:00.0/vendor"));
  EXPECT_TRUE(file_exists(gpu / "iommu_group/devices/0000:0f:00.0/vendor"));
  EXPECT_EQ(text_of(sys / "devices/system/node/online"), "0-1");
  EXPECT_EQ(text_of(sys / "devices/system/node/node1/cpulist"), "8-15");
  EXPECT_EQ(text_of(sys / "class/dmi/id/product_name"), "DGXA100 920-23687-2530-000");
  fs::path proc = root.kernel() / "proc";
  EXPECT_EQ(text_of(proc / "sys/kernel/osrelease"), "6.8.0-60-generic");
  EXPECT_NE(text_of(proc / "driver/nvidia/version").find(kDriver), std::string::npos);
  EXPECT_NE(text_of(proc / "driver/nvidia/gpus/0000:0f:00.0/information").find("Device Minor: \t 1"),
            std::string::npos);
  EXPECT_NE(text_of(proc / "driver/nvidia-caps/mig-minors").find("gpu1/gi0/access 138"), std::string::npos);
  EXPECT_NE(text_of(proc / "devices").find("195 nvidia"), std::string::npos);
  EXPECT_NE(text_of(proc / "modules").find("nvidia 56823808 2 nvidia_modeset,nvidia_uvm, Live"),
            std::string::npos);
}

TEST(sim_tree, tree_without_gpus) {
  TempDir dir(fast_prefix());
  NodeHardware hw;
  hw.profiles = built_sim() / "profiles";
  ASSERT_TRUE(build_node_tree(hw, dir.path()));
  auto addresses = *list_dir(dir.path() / "sys/bus/pci/devices");
  EXPECT_FALSE(addresses.empty());
  for (const auto& address : addresses) {
    EXPECT_NE(text_of(dir.path() / "sys/bus/pci/devices" / address / "vendor"), "0x10de");
  }
  EXPECT_TRUE(device_nodes(dir.path())->empty());
  hw.model = "A100";
  hw.count = 17;
  EXPECT_FALSE(build_node_tree(hw, dir.path()));
  hw.count = 1;
  hw.model = "A10";
  EXPECT_NE(build_node_tree(hw, dir.path()).error().text().find("did you mean"), std::string::npos);
}

TEST(sim_tree, tree_keeps_its_hardware_over_a_rebuild) {
  DriverRoot root("L4", 2);
  root.change([](State& s) { s.gpus[1].live.ecc_dbe_aggregate = 4; });
  NodeHardware hw;
  hw.model = "L4";
  hw.count = 2;
  hw.seed = 7;
  hw.profiles = built_sim() / "profiles";
  ASSERT_TRUE(build_node_tree(hw, root.kernel()));
  StateFile file;
  ASSERT_EQ(file.open((root.kernel() / "sim/state").string()), StateFault::kNone);
  EXPECT_EQ(file.read()->gpus[1].live.ecc_dbe_aggregate, 4u);
  EXPECT_TRUE(module_loaded(root.kernel(), "nvidia"));
  EXPECT_TRUE(file_exists(root.kernel() / "sys/bus/pci/devices/0000:38:00.0/driver"));
}

TEST(sim_tree, modules_load_unload_and_refuse) {
  DriverRoot root("L4", 1);
  fs::path k = root.kernel();
  EXPECT_EQ(unload_module(k, "nvidia").error().code(), Code::kBusy);
  EXPECT_EQ(unload_module(k, "nvidia-drm").error().code(), Code::kNotFound);
  EXPECT_EQ(load_module(k, "nosuch").error().code(), Code::kNotFound);
  ASSERT_TRUE(load_module(k, "nvidia-drm"));
  EXPECT_EQ(text_of(k / "sys/module/nvidia_modeset/refcnt"), "1");
  for (const char* m : {"nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"})
    EXPECT_TRUE(unload_module(k, m)) << m;
  EXPECT_FALSE(file_exists(k / "sys/module/nvidia"));
  // The folder stays: it is bound over /proc/driver where the node is seen.
  EXPECT_EQ(list_dir(k / "proc/driver")->size(), 0u);
  EXPECT_FALSE(fs::is_symlink(k / "sys/bus/pci/devices/0000:38:00.0/driver"));
  EXPECT_TRUE(device_nodes(k)->empty());
  // A dependency comes by itself; a module of another kernel does not load.
  ASSERT_TRUE(load_module(k, "nvidia_uvm"));
  EXPECT_TRUE(module_loaded(k, "nvidia"));
  EXPECT_EQ(*loaded_driver_version(k), kDriver);
  ASSERT_TRUE(write_in_place(k / "lib/modules/6.8.0-60-generic/updates/dkms/nvidia-peermem.ko",
                             module_text(kDriver, "5.15.0-1-generic")));
  EXPECT_EQ(load_module(k, "nvidia-peermem").error().code(), Code::kInvalid);
}

TEST(sim_tree, module_tools_act_on_the_tree) {
  DriverRoot root("L4", 1);
  setenv("GPUOP_KERNEL_ROOT", root.kernel().c_str(), 1);
  auto run = [&](const std::string& line) {
    std::string output;
    FILE* f = popen(((root.kernel() / "sbin").string() + "/" + line + " 2>&1").c_str(), "r");
    char buffer[256];
    while (fgets(buffer, sizeof buffer, f)) output += buffer;
    int status = pclose(f);
    return std::pair(WEXITSTATUS(status), output);
  };
  EXPECT_EQ(run("rmmod nvidia"),
            (std::pair(1, std::string("rmmod: ERROR: Module nvidia is in use by: nvidia_modeset "
                                      "nvidia_uvm\n"))));
  EXPECT_EQ(run("modprobe nosuch").second,
            "modprobe: FATAL: Module nosuch not found in directory /lib/modules/6.8.0-60-generic\n");
  EXPECT_EQ(run("modprobe -r nvidia-uvm").first, 0);
  EXPECT_EQ(run("modprobe -r nvidia-modeset").first, 0);
  EXPECT_FALSE(module_loaded(root.kernel(), "nvidia"));  // nobody needed it any more
  EXPECT_EQ(run("modprobe nvidia NVreg_EnableGpuFirmware=0").first, 0);
  EXPECT_EQ(text_of(root.kernel() / "sys/module/nvidia/parameters/NVreg_EnableGpuFirmware"), "0");
  EXPECT_NE(run("lsmod").second.find("nvidia "), std::string::npos);
  unsetenv("GPUOP_KERNEL_ROOT");
  EXPECT_EQ(run("modprobe nvidia-uvm").first, 0);  // finds the tree it lies in
  EXPECT_TRUE(module_loaded(root.kernel(), "nvidia-uvm"));
}

TEST(sim_tree, driver_root_is_what_cdi_generation_looks_for) {
  DriverRoot root("L4", 1);
  fs::path lib = root.library("").parent_path();
  for (const char* name : {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1",
                           "libnvidia-nvvm.so.4", "libnvidia-opticalflow.so.1", "libGLX_nvidia.so.0"}) {
    EXPECT_TRUE(file_exists(fs::canonical(lib / name))) << name;
  }
  for (const char* name :
       {"usr/bin/nvidia-smi", "usr/bin/nvidia-persistenced", "usr/bin/nvidia-cuda-mps-control",
        "lib/firmware/nvidia/580.82.07/gsp_ga10x.bin", "usr/sbin/modprobe",
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json", "etc/OpenCL/vendors/nvidia.icd"}) {
    EXPECT_TRUE(file_exists(root.root() / name)) << name;
  }
  // The stubs, and the state file itself, are objects that the dynamic linker takes.
  for (const char* name : {"libnvidia-nvvm.so.4", "libnvidia-tls.so.580.82.07"}) {
    void* handle = dlopen((lib / name).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(handle) << dlerror();
  }
  EXPECT_TRUE(read_file(state_path(root.root(), kDriver))
                  ->starts_with("\x7f"
                                "ELF"));
  // Installing again changes nothing that users hold.
  ASSERT_TRUE(install_driver(root.install()));
  EXPECT_EQ(fs::hard_link_count(state_path(root.root(), kDriver)), 2u);
  DriverInstall bad = root.install();
  bad.version = "latest";
  EXPECT_EQ(install_driver(bad).error().code(), Code::kInvalid);
}

TEST(sim_tree, device_nodes_follow_modules) {
  DriverRoot root("H200", 2);
  std::vector<std::string> names;
  for (const auto& node : device_nodes(root.kernel()).value_or(std::vector<DeviceNode>{}))
    names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"nvidia0", "nvidia1", "nvidiactl", "nvidia-modeset",
                                             "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1",
                                             "nvidia-caps/nvidia-cap2"}));
}

}  // namespace
}  // namespace gpuop::sim
