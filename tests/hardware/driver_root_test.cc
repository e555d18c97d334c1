#include "hardware/driver_root.h"

#include <gtest/gtest.h>

namespace gpuop::hardware {
namespace {

void put(const fs::path& path, std::string_view content = "x", mode_t mode = 0644) {
  ASSERT_TRUE(make_dirs(path.parent_path()));
  ASSERT_TRUE(write_file_atomic(path, content, mode));
}

TEST(hardware, library_is_found_in_order_and_resolved) {
  TempDir dir;
  put(dir.path() / "usr/lib64/libnvidia-ml.so.580.1.2");
  ASSERT_TRUE(make_symlink_atomic("libnvidia-ml.so.580.1.2", dir.path() / "usr/lib64/libnvidia-ml.so.1"));
  put(dir.path() / "lib64/libnvidia-ml.so.1");
  auto root = Root::open(dir.path());
  ASSERT_TRUE(root);
  auto found = find_library(*root, "libnvidia-ml.so.1");
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, "/usr/lib64/libnvidia-ml.so.580.1.2");
  EXPECT_EQ(nvml_library(dir.path()), dir.path() / "usr/lib64/libnvidia-ml.so.580.1.2");
  EXPECT_EQ(driver_version_from_files(*root).value(), "580.1.2");
}

TEST(hardware, library_link_out_of_the_root_stays_inside) {
  TempDir outside;
  put(outside.path() / "libnvidia-ml.so.1");
  TempDir dir;
  ASSERT_TRUE(make_dirs(dir.path() / "usr/lib64"));
  ASSERT_TRUE(
      make_symlink_atomic(outside.path() / "libnvidia-ml.so.1", dir.path() / "usr/lib64/libnvidia-ml.so.1"));
  auto root = Root::open(dir.path());
  ASSERT_TRUE(root);
  auto found = find_library(*root, "libnvidia-ml.so.1");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kNotFound);
  EXPECT_EQ(nvml_library(dir.path()), "libnvidia-ml.so.1");
}

TEST(hardware, program_must_be_executable_and_not_empty) {
  TempDir dir;
  put(dir.path() / "usr/bin/nvidia-smi", "", 0755);
  put(dir.path() / "usr/sbin/nvidia-smi", "x", 0644);
  put(dir.path() / "sbin/nvidia-smi", "x", 0755);
  auto root = Root::open(dir.path());
  ASSERT_TRUE(root);
  EXPECT_EQ(find_program(*root, "nvidia-smi").value(), "/sbin/nvidia-smi");
  EXPECT_FALSE(find_program(*root, "nvidia-debugdump"));
}

TEST(hardware, version_needs_two_numbers) {
  TempDir dir;
  put(dir.path() / "usr/lib64/libcuda.so.1");
  auto root = Root::open(dir.path());
  ASSERT_TRUE(root);
  EXPECT_FALSE(driver_version_from_files(*root));
  put(dir.path() / "usr/lib64/libcuda.so.550.54.14");
  EXPECT_EQ(driver_version_from_files(*root).value(), "550.54.14");
}

TEST(hardware, dev_root_is_the_driver_root_only_with_a_dev_folder) {
  TempDir dir;
  EXPECT_EQ(dev_root_of(dir.path()), "/");
  ASSERT_TRUE(make_dirs(dir.path() / "dev"));
  EXPECT_EQ(dev_root_of(dir.path()), dir.path());
}

TEST(hardware, driver_ready_reads_back_what_is_written) {
  DriverReady facts{false, "/run/nvidia/driver", "/driver-root", "/", "/host"};
  std::string text = format_driver_ready(facts);
  EXPECT_EQ(text,
            "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n"
            "NVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n");
  EXPECT_EQ(parse_driver_ready(text).value(), facts);
  auto broken = parse_driver_ready("IS_HOST_DRIVER=true\n");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().text().find("NVIDIA_DRIVER_ROOT is missing"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::hardware
