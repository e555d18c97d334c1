#include "hardware/pci.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"

namespace gpuop::hardware {
namespace {

class Kernel {
 public:
  Kernel() { setenv("GPUOP_KERNEL_ROOT", dir_.path().c_str(), 1); }
  ~Kernel() { unsetenv("GPUOP_KERNEL_ROOT"); }
  void put(const fs::path& inner, std::string_view content) {
    fs::path path = dir_.path() / inner;
    ASSERT_TRUE(make_dirs(path.parent_path()));
    ASSERT_TRUE(write_file_atomic(path, content));
  }
  const fs::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

TEST(hardware, pci_functions_are_read_from_sysfs) {
  Kernel kernel;
  const fs::path gpu = "sys/bus/pci/devices/0000:3b:00.0";
  kernel.put(gpu / "vendor", "0x10de\n");
  kernel.put(gpu / "device", "0x20b2\n");
  kernel.put(gpu / "class", "0x030200\n");
  kernel.put(gpu / "subsystem_vendor", "0x10de\n");
  kernel.put(gpu / "subsystem_device", "0x1463\n");
  kernel.put(gpu / "numa_node", "1\n");
  kernel.put(gpu / "drm/card1/dev", "226:1\n");
  kernel.put(gpu / "drm/renderD129/dev", "226:129\n");
  ASSERT_TRUE(make_symlink_atomic("../../../../bus/pci/drivers/nvidia", kernel.path() / gpu / "driver"));
  kernel.put("sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086\n");
  kernel.put("sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n");
  kernel.put("sys/bus/pci/devices/0000:05:00.0/vendor", "0x10de\n");
  kernel.put("sys/bus/pci/devices/0000:05:00.0/class", "0x068000\n");

  auto all = scan_pci();
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 3u);
  auto gpus = scan_nvidia_gpus();
  ASSERT_TRUE(gpus);
  ASSERT_EQ(gpus->size(), 1u);
  const auto& found = gpus->front();
  EXPECT_EQ(found.address, "0000:3b:00.0");
  EXPECT_EQ(found.device, 0x20b2);
  EXPECT_EQ(found.numa_node, 1);
  EXPECT_EQ(found.driver, "nvidia");
  EXPECT_EQ(found.drm, (std::vector<std::string>{"card1", "renderD129"}));
  EXPECT_TRUE((*all)[1].is_nvswitch());
}

TEST(hardware, no_pci_bus_is_no_functions) {
  Kernel kernel;
  auto all = scan_pci();
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->empty());
}

TEST(hardware, bus_ids_take_the_form_of_sysfs) {
  EXPECT_EQ(sysfs_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(sysfs_bus_id("0001000A:3B:00.0"), "0001000a:3b:00.0");
  EXPECT_EQ(sysfs_bus_id("0000:3B:00.0"), "0000:3b:00.0");
}

}  // namespace
}  // namespace gpuop::hardware
