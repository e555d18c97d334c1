#include "shim/hooks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <thread>

#include "elf/ld_cache.h"
#include "shim/rootfs.h"

namespace gpuop::shim {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

void put(const fs::path& path, std::string_view content = "x", mode_t mode = 0644) {
  ASSERT_TRUE(make_dirs(path.parent_path()));
  ASSERT_TRUE(write_file_atomic(path, content, mode));
}

// A container's root beside a host tree that nothing may touch: its names, kinds, contents and inodes are
// compared.
class Attack {
 public:
  Attack() {
    put(host() / "etc/ld.so.conf", "/host\n");
    put(host() / "etc/ld.so.conf.d/keep.conf", "/host\n");
    put(host() / "tmp/keep", "host");
    put(host() / "proc/keep", "host");
    EXPECT_TRUE(make_dirs(rootfs()));
    before_ = snapshot();
  }
  ~Attack() { EXPECT_EQ(snapshot(), before_) << "the host was changed"; }
  fs::path host() const { return dir_.path() / "host"; }
  fs::path rootfs() const { return dir_.path() / "rootfs"; }
  Root root() const { return open_rootfs(rootfs()).value(); }
  void link(const fs::path& inner, const fs::path& target) {
    ASSERT_TRUE(make_dirs((rootfs() / inner).parent_path()));
    fs::create_symlink(target, rootfs() / inner);
  }

 private:
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> entries;
    for (const auto& entry : fs::recursive_directory_iterator(host())) {
      struct stat info{};
      lstat(entry.path().c_str(), &info);
      std::string text = std::to_string(info.st_ino) + " " + std::to_string(info.st_mode) + " ";
      if (S_ISREG(info.st_mode)) text += read_file(entry.path()).value();
      entries.emplace(entry.path().string(), text);
    }
    return entries;
  }
  TempDir dir_;
  std::map<std::string, std::string> before_;
};

// A real shared library under another name.
std::string library_bytes() {
  for (auto dir : {"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"}) {
    if (auto bytes = read_file(fs::path(dir) / "libm.so.6")) return *bytes;
  }
  return {};
}

TEST(container_toolkit, case51_symlinks) {
  Attack attack;
  auto bad = create_symlinks(attack.root(), {"a::/x", "bad"});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().text(), "invalid symlink specification bad");
  EXPECT_FALSE(fs::exists(fs::symlink_status(attack.rootfs() / "x")));
  ASSERT_TRUE(create_symlinks(attack.root(), {"a::/lib/x"}));
  struct stat first{};
  struct stat second{};
  lstat((attack.rootfs() / "lib/x").c_str(), &first);
  ASSERT_TRUE(create_symlinks(attack.root(), {"a::/lib/x"}));
  lstat((attack.rootfs() / "lib/x").c_str(), &second);
  EXPECT_EQ(first.st_ino, second.st_ino);
  EXPECT_EQ(fs::read_symlink(attack.rootfs() / "lib/x"), "a");
  ASSERT_TRUE(create_symlinks(attack.root(), {"b::/lib/x"}));
  EXPECT_EQ(fs::read_symlink(attack.rootfs() / "lib/x"), "b");
}

TEST(container_toolkit, case52_an_unknown_hook_is_no_failure) {
  EXPECT_EQ(run_hook({"future-hook", "--x"}), 0);
  EXPECT_EQ(run_hook({}), 0);
  EXPECT_EQ(run_hook({"--flag"}), 0);
  EXPECT_EQ(run_hook({"create-symlinks", "--what", "x"}), 1);
}

TEST(container_toolkit, case53_cuda_compatibility) {
  auto found = [](std::vector<std::string> libraries, const CudaCompatOptions& options) {
    Attack attack;
    for (const auto& name : libraries) put(attack.rootfs() / "usr/local/cuda-12/compat" / name);
    fs::create_symlink("cuda-12", attack.rootfs() / "usr/local/cuda");
    EXPECT_TRUE(enable_cuda_compat(attack.root(), options));
    return read_file(attack.rootfs() / "etc/ld.so.conf.d/00-compat-nvidia.conf").value_or("");
  };
  EXPECT_EQ(found({"libcuda.so.555.42.02"}, {"550.54.14", ""}), "/usr/local/cuda-12/compat\n");
  EXPECT_EQ(found({"libcuda.so.550.90.07"}, {"550.54.14", ""}), "");
  EXPECT_EQ(found({"libcuda.so.555.42.02", "libcuda.so.560.1.1"}, {"550.54.14", ""}), "");
  EXPECT_EQ(found({"libcuda.so.222.1"}, {"99.1", ""}), "/usr/local/cuda-12/compat\n");
  EXPECT_EQ(found({"libcuda.so.555.42.02"}, {"", ""}), "");
  std::string note = R"({"Format":1,"CUDA Version":"12.5","Driver":[535,550],"Device":[1]})";
  EXPECT_TRUE(use_cuda_compat({"550.54.14", ""}, "555.42.02", note));
  EXPECT_FALSE(use_cuda_compat({"545.54.14", ""}, "555.42.02", note));
  EXPECT_FALSE(use_cuda_compat({"550.54.14", ""}, "545.1", note));
  EXPECT_TRUE(use_cuda_compat({"", "12.4"}, "555.42.02", note));
  EXPECT_FALSE(use_cuda_compat({"", "12.5"}, "555.42.02", note));
  EXPECT_FALSE(use_cuda_compat({"", "12.4"}, "555.42.02", ""));
}

TEST(container_toolkit, case54_driver_parameters) {
  EXPECT_EQ(modified_params("A: 1\nModifyDeviceFiles: 1\nB: 2\n"), "A: 1\nModifyDeviceFiles: 0\nB: 2\n");
  EXPECT_EQ(modified_params("ModifyDeviceFiles: 11\n"), std::nullopt);
  EXPECT_EQ(modified_params("ModifyDeviceFiles: 0\n"), std::nullopt);
}

TEST(container_toolkit, case55_commas_are_part_of_a_path) {
  Attack attack;
  put(attack.rootfs().parent_path() / "state.json", R"({"root":")" + attack.rootfs().string() + R"("})");
  EXPECT_EQ(
      run_hook({"create-symlinks", "--container-spec",
                (attack.rootfs().parent_path() / "state.json").string(), "--link", "a,b.so::/lib/x,y.so"}),
      0);
  EXPECT_EQ(fs::read_symlink(attack.rootfs() / "lib/x,y.so"), "a,b.so");
}

TEST(shim, application_profile_of_the_visible_gpus) {
  EXPECT_EQ(
      application_profile(0x9),
      R"({"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x9]}],"rules":[{"pattern":[],"profile":"_container_"}]})");
  Attack attack;
  ASSERT_TRUE(make_dirs(attack.rootfs() / "dev"));
  ASSERT_TRUE(update_application_profile(attack.root()));
  EXPECT_FALSE(fs::exists(attack.rootfs() / "etc/nvidia"));
}

TEST(shim, the_loaders_cache_knows_new_folders) {
  Attack attack;
  put(attack.rootfs() / "etc/debian_version");
  put(attack.rootfs() / "opt/driver/libm-2.99.so", library_bytes());
  put(attack.rootfs() / "opt/driver/notes.txt");
  put(attack.rootfs() / "opt/driver/libbroken.so.1", "not an ELF file");
  ASSERT_TRUE(update_ldcache(attack.root(), {"/opt/driver"}));
  EXPECT_EQ(fs::read_symlink(attack.rootfs() / "opt/driver/libm.so.6"), "libm-2.99.so");
  auto cache = elf::parse_ld_cache(read_file(attack.rootfs() / "etc/ld.so.cache").value());
  ASSERT_TRUE(cache);
  ASSERT_EQ(cache->size(), 1u);
  EXPECT_EQ((*cache)[0].name, "libm.so.6");
  EXPECT_EQ((*cache)[0].path, "/opt/driver/libm.so.6");
  EXPECT_EQ(read_file(attack.rootfs() / "etc/ld.so.conf").value(), "include /etc/ld.so.conf.d/*.conf\n");
  EXPECT_EQ(read_file(attack.rootfs() / "etc/ld.so.conf.d/00-nvcr-nvidia.conf").value(), "/opt/driver\n");
  EXPECT_HAS(read_file(attack.rootfs() / "etc/ld.so.conf.d/zz-nvcr-nvidia.conf").value(), "/usr/lib\n");
  // Again: nothing piles up.
  ASSERT_TRUE(update_ldcache(attack.root(), {"/opt/driver"}));
  EXPECT_EQ(read_file(attack.rootfs() / "etc/ld.so.conf.d/00-nvcr-nvidia.conf").value(), "/opt/driver\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(attack.rootfs() / "etc/ld.so.conf.d"), {}), 2);
}

TEST(shim, musl_has_its_own_path_file) {
  Attack attack;
  put(attack.rootfs() / "etc/alpine-release", "3.20\n");
  put(attack.rootfs() / "opt/driver/libm.so.6", library_bytes());
  ASSERT_TRUE(update_ldcache(attack.root(), {"/opt/driver"}));
#ifdef __aarch64__
  auto file = attack.rootfs() / "etc/ld-musl-aarch64.path";
#else
  auto file = attack.rootfs() / "etc/ld-musl-x86_64.path";
#endif
  EXPECT_EQ(read_file(file).value(), "/lib\n/usr/local/lib\n/usr/lib\n/opt/driver\n");
}

TEST(container_toolkit, case56_s3_made_folders_stay_inside) {
  Attack attack;
  attack.link("usr/bin", "../../../../../../../../.." + attack.host().string() + "/etc");
  auto made = create_symlinks(attack.root(), {"t::/usr/bin/x"});
  EXPECT_TRUE(made || !made.error().text().empty());
}

TEST(container_toolkit, case56_s4_links_stay_inside) {
  Attack attack;
  ASSERT_TRUE(make_dirs(attack.rootfs() / "tmp"));
  attack.link("lib/foo", "../../../../tmp");
  ASSERT_TRUE(create_symlinks(attack.root(), {"t::/lib/foo/gpuop-s4"}));
  EXPECT_EQ(fs::read_symlink(attack.rootfs() / "tmp/gpuop-s4"), "t");
  EXPECT_FALSE(fs::exists(fs::symlink_status("/tmp/gpuop-s4")));
}

TEST(container_toolkit, case56_s9_the_caches_own_files_as_links) {
  Attack attack;
  std::string host = attack.host().string();
  attack.link("etc/ld.so.cache", host + "/tmp/keep");
  attack.link("etc/ld.so.conf.d", host + "/etc/ld.so.conf.d");
  attack.link("etc/ld.so.conf", host + "/etc/ld.so.conf");
  attack.link("run", host + "/tmp");
  attack.link("proc", host + "/proc");
  put(attack.rootfs() / "opt/driver/libm.so.6", library_bytes());
  auto updated = update_ldcache(attack.root(), {"/opt/driver"});
  // The links lead nowhere inside; whatever comes of it, the host tree is compared at the end.
  EXPECT_TRUE(!updated || fs::is_regular_file(fs::symlink_status(attack.rootfs() / "etc/ld.so.cache")));
}

TEST(container_toolkit, case56_s10_folders_that_are_swapped_meanwhile) {
  Attack attack;
  std::string host = attack.host().string();
  put(attack.rootfs() / "opt/driver/libm.so.6", library_bytes());
  ASSERT_TRUE(make_dirs(attack.rootfs() / "etc/ld.so.conf.d"));
  fs::create_directory_symlink(host + "/etc", attack.rootfs() / "evil");
  std::atomic<bool> stop = false;
  // Another container on a shared volume: /etc is a folder, then a link to the host's, and back.
  std::thread swapper([&] {
    std::string etc = (attack.rootfs() / "etc").string();
    std::string evil = (attack.rootfs() / "evil").string();
    while (!stop) renameat2(AT_FDCWD, etc.c_str(), AT_FDCWD, evil.c_str(), RENAME_EXCHANGE);
  });
  Root root = attack.root();
  for (int i = 0; i < 300; ++i) {
    auto linked = create_symlinks(root, {"t" + std::to_string(i) + "::/etc/x", "t::/etc/deep/er/x"});
    auto written = replace_file(root, "/etc/ld.so.conf.d/00-nvcr-nvidia.conf", std::to_string(i), 0644);
    static_cast<void>(linked);
    static_cast<void>(written);
  }
  stop = true;
  swapper.join();
  EXPECT_LT(std::distance(fs::directory_iterator("/proc/self/fd"), {}), 32) << "descriptors leak";
}

TEST(container_toolkit, case56_s13_parameters_must_be_on_procfs) {
  Attack attack;
  put(attack.rootfs() / "proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n");
  TempDir kernel;
  put(kernel.path() / "proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n");
  setenv("GPUOP_KERNEL_ROOT", kernel.path().c_str(), 1);
  auto hidden = disable_device_node_modification(attack.root());
  unsetenv("GPUOP_KERNEL_ROOT");
  ASSERT_FALSE(hidden);
  EXPECT_HAS(hidden.error().text(), "not on procfs");
}

// A root is not always its own container: here its file and the kernel's are one, and nothing else is.
TEST(container_toolkit, case56_s13_parameters_may_be_the_kernels_own_file) {
  Attack attack;
  put(attack.rootfs() / "proc/driver/nvidia/params", "");
  TempDir kernel;
  const fs::path params = kernel.path() / "proc/driver/nvidia/params";
  put(params, "Other: 7\nModifyDeviceFiles: 1\n");
  ASSERT_EQ(unshare(CLONE_NEWNS), 0) << "mounts need root: run the tests as root";
  ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  const fs::path inside = attack.rootfs() / "proc/driver/nvidia/params";
  ASSERT_EQ(mount(params.c_str(), inside.c_str(), nullptr, MS_BIND, nullptr), 0);
  setenv("GPUOP_KERNEL_ROOT", kernel.path().c_str(), 1);
  auto hidden = disable_device_node_modification(attack.root());
  unsetenv("GPUOP_KERNEL_ROOT");
  EXPECT_TRUE(hidden) << hidden.error().text();
  EXPECT_EQ(read_file(inside).value_or(""), "Other: 7\nModifyDeviceFiles: 0\n");
  EXPECT_EQ(read_file(params).value_or(""), "Other: 7\nModifyDeviceFiles: 1\n");
  EXPECT_EQ(umount2(inside.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(umount2(inside.c_str(), MNT_DETACH), 0);
}

TEST(container_toolkit, case56_s14_hostile_files_do_not_block) {
  Attack attack;
  ASSERT_TRUE(make_dirs(attack.rootfs() / "etc/ld.so.conf.d"));
  ASSERT_EQ(mkfifo((attack.rootfs() / "etc/ld.so.conf").c_str(), 0644), 0);
  ASSERT_EQ(mkfifo((attack.rootfs() / "etc/ld.so.conf.d/a.conf").c_str(), 0644), 0);
  put(attack.rootfs() / "etc/ld.so.conf.d/loop.conf",
      "include /etc/ld.so.conf.d/*.conf\ninclude loop.conf\n");
  std::string many;
  for (int i = 0; i < 100000; ++i) many += "/d" + std::to_string(i) + "\n";
  put(attack.rootfs() / "etc/ld.so.conf.d/many.conf", many);
  ASSERT_TRUE(make_dirs(attack.rootfs() / "usr/local/cuda/compat"));
  Fd sparse(open((attack.rootfs() / "usr/local/cuda/compat/libcuda.so.9.9").c_str(),
                 O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  ASSERT_EQ(ftruncate(sparse.get(), off_t{100} << 30), 0);
  ASSERT_TRUE(enable_cuda_compat(attack.root(), {"550.54.14", ""}));
  EXPECT_FALSE(fs::exists(attack.rootfs() / "etc/ld.so.conf.d/00-compat-nvidia.conf"));
  ASSERT_TRUE(update_ldcache(attack.root(), {"/opt/driver"}));
}

TEST(container_toolkit, case56_roots_that_are_refused) {
  EXPECT_FALSE(open_rootfs(""));
  EXPECT_FALSE(open_rootfs("/"));
  EXPECT_FALSE(open_rootfs("//"));
  EXPECT_FALSE(open_rootfs("/tmp/.."));
  EXPECT_FALSE(open_rootfs("relative"));
  TempDir dir;
  fs::create_directory_symlink("/", dir.path() / "root");
  EXPECT_FALSE(open_rootfs(dir.path() / "root"));
  EXPECT_FALSE(open_rootfs((dir.path() / "root").string() + "/"));
}

}  // namespace
}  // namespace gpuop::shim
