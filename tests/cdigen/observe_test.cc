#include "cdigen/observe.h"

#include <gtest/gtest.h>

#include "elf/ld_cache.h"

namespace gpuop::cdigen {
namespace {

class DriverRoot {
 public:
  void put(const fs::path& inner, std::string_view content = "x", mode_t mode = 0644) {
    fs::path path = dir_.path() / inner;
    ASSERT_TRUE(make_dirs(path.parent_path()));
    ASSERT_TRUE(write_file_atomic(path, content, mode));
  }
  Result<DriverFiles> observe(const DriverSearch& search = {}) {
    return observe_driver(Root::open(dir_.path()).value(), search);
  }
  const fs::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

std::vector<std::string> paths(const std::vector<Library>& libraries) {
  std::vector<std::string> list;
  for (const auto& library : libraries) list.push_back(library.path);
  return list;
}

TEST(cdigen, the_drivers_files_are_found_beneath_its_root) {
  DriverRoot root;
  root.put("usr/lib64/libcuda.so.550.54.14");
  root.put("usr/lib64/libnvidia-ml.so.550.54.14");
  root.put("usr/lib64/vdpau/libvdpau_nvidia.so.550.54.14");
  root.put("usr/lib64/libother.so.550.54.1");
  root.put("usr/bin/nvidia-smi", "#!", 0755);
  root.put("usr/bin/nvidia-debugdump", "#!", 0644);
  root.put("lib/firmware/nvidia/550.54.14/gsp_ga10x.bin");
  root.put("run/nvidia-persistenced/socket");
  root.put("usr/share/nvidia/nvoptix.bin");
  auto files = root.observe();
  ASSERT_TRUE(files) << files.error().text();
  EXPECT_EQ(files->version, "550.54.14");
  EXPECT_EQ(files->library_dirs, std::vector<std::string>{"/usr/lib64"});
  EXPECT_EQ(
      paths(files->libraries),
      (std::vector<std::string>{"/usr/lib64/libcuda.so.550.54.14", "/usr/lib64/libnvidia-ml.so.550.54.14",
                                "/usr/lib64/vdpau/libvdpau_nvidia.so.550.54.14"}));
  EXPECT_EQ(files->binaries, std::vector<std::string>{"/usr/bin/nvidia-smi"});
  EXPECT_EQ(files->firmware, std::vector<std::string>{"/lib/firmware/nvidia/550.54.14/gsp_ga10x.bin"});
  EXPECT_EQ(files->ipc, std::vector<std::string>{"/run/nvidia-persistenced/socket"});
  EXPECT_EQ(files->configs,
            (std::vector<DriverFile>{{"/usr/share/nvidia/nvoptix.bin", "/usr/share/nvidia/nvoptix.bin"}}));
}

TEST(cdigen, versions_that_disagree_are_an_error) {
  DriverRoot root;
  root.put("usr/lib64/libcuda.so.550.54.14");
  auto files = root.observe({.version = "580.1.2"});
  ASSERT_FALSE(files);
  EXPECT_NE(files.error().text().find("unexpected version detected"), std::string::npos);
}

TEST(cdigen, links_do_not_lead_out_of_the_driver_root) {
  DriverRoot outside;
  outside.put("libcuda.so.550.1");
  DriverRoot root;
  ASSERT_TRUE(make_dirs(root.path() / "usr/lib64"));
  ASSERT_TRUE(
      make_symlink_atomic(outside.path() / "libcuda.so.550.1", root.path() / "usr/lib64/libcuda.so.550.1"));
  EXPECT_FALSE(root.observe());
}

TEST(cdigen, the_loaders_cache_is_the_last_resort) {
  DriverRoot root;
  root.put("opt/nvidia/libcuda.so.550.54.14");
  root.put("etc/ld.so.cache",
           elf::format_ld_cache({{"libcuda.so.1", "/opt/nvidia/libcuda.so.550.54.14", 0x303, 0}}));
  auto files = root.observe();
  ASSERT_TRUE(files) << files.error().text();
  EXPECT_EQ(files->library_dirs, std::vector<std::string>{"/opt/nvidia"});
}

TEST(cdigen, merged_folders_name_a_library_once) {
  DriverRoot root;
  root.put("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14");
  ASSERT_TRUE(make_symlink_atomic("usr/lib", root.path() / "lib"));
  auto files = root.observe({.library_search_paths = {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"}});
  ASSERT_TRUE(files);
  EXPECT_EQ(paths(files->libraries),
            std::vector<std::string>{"/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"});
}

}  // namespace
}  // namespace gpuop::cdigen
