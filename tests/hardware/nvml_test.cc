#include "hardware/nvml.h"

#include <gtest/gtest.h>

#include "hardware/inventory.h"

namespace gpuop::hardware {
namespace {

const std::string kSmall = std::string(BUILD_ROOT) + "/tests/libsmall-nvml.so";

TEST(hardware, absent_library_is_unavailable_and_named) {
  auto nvml = Nvml::open("/nowhere/libnvidia-ml.so.1");
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().code(), Code::kUnavailable);
  EXPECT_NE(nvml.error().text().find("load NVML '/nowhere/libnvidia-ml.so.1': ERROR_LIBRARY_NOT_FOUND"),
            std::string::npos);
}

TEST(hardware, a_library_that_is_not_nvml_is_refused) {
  auto nvml = Nvml::open("libc.so.6");
  ASSERT_FALSE(nvml);
  EXPECT_NE(nvml.error().text().find("not an NVML library"), std::string::npos);
}

TEST(hardware, missing_symbol_means_unsupported) {
  auto nvml = Nvml::open(kSmall);
  ASSERT_TRUE(nvml) << nvml.error().text();
  auto serial = (*nvml)->serial(nullptr);
  ASSERT_FALSE(serial);
  EXPECT_EQ(serial.error().code(), Code::kUnsupported);
  EXPECT_EQ((*nvml)->last_code(), abi::kFunctionNotFound);
  EXPECT_FALSE((*nvml)->has("nvmlDeviceGetSerial"));
}

TEST(hardware, every_open_is_one_init_and_one_shutdown) {
  auto first = Nvml::open(kSmall);
  ASSERT_TRUE(first);
  auto inits = reinterpret_cast<int (*)()>((*first)->symbol("small_nvml_inits"));
  ASSERT_NE(inits, nullptr);
  EXPECT_EQ(inits(), 1);
  {
    EXPECT_EQ((Nvml::open(kSmall).value(), inits()), 2);
  }
  EXPECT_EQ(inits(), 1);
}

TEST(hardware, inventory_reads_gpus_and_mig_and_names_the_lost_one) {
  auto nvml = Nvml::open(kSmall);
  ASSERT_TRUE(nvml);
  auto inventory = observe(**nvml);
  ASSERT_TRUE(inventory) << inventory.error().text();
  EXPECT_EQ(inventory->driver_version, "580.95.05");
  EXPECT_EQ(inventory->cuda_version, 13000);
  ASSERT_EQ(inventory->gpus.size(), 1u);
  const Gpu& gpu = inventory->gpus[0];
  EXPECT_EQ(gpu.minor, 1u);
  EXPECT_EQ(gpu.bus_id, "0000:3b:00.0");
  EXPECT_EQ(gpu.pci_device_id, 0x20b010deu);
  EXPECT_EQ(gpu.memory_bytes, 42949672960u);
  EXPECT_TRUE(gpu.mig_capable);
  ASSERT_EQ(gpu.mig_devices.size(), 1u);
  EXPECT_EQ(gpu.mig_devices[0].profile, "1g.10gb");
  EXPECT_EQ(gpu.mig_devices[0].gpu_instance_id, 3u);
  ASSERT_EQ(inventory->warnings.size(), 1u);
  EXPECT_NE(inventory->warnings[0].find("GPU is lost"), std::string::npos);
  EXPECT_EQ(inventory->by_uuid("GPU-1"), &gpu);
  EXPECT_EQ(inventory->mig_by_uuid("MIG-1").second, &gpu.mig_devices[0]);
}

}  // namespace
}  // namespace gpuop::hardware
