#include "cluster/fleet/install_tree.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"

namespace gpuop::cluster {
namespace {

// A folder of programs: this very test program, and a gpu-node that names two roles.
struct Programs {
  TempDir dir{"tree"};
  InstallTreeOptions options;
  Programs() {
    fs::create_directories(dir.path() / "bin");
    fs::copy_file(self_path(), dir.path() / "bin/gpuctl");
    write("bin/gpu-node", "#!/bin/sh\n[ \"$1\" = --names ] && printf 'nvidia-device-plugin\\nsh\\n'\n", 0755);
    write("bin/gpuop-runc", "#!/bin/sh\n", 0755);
    write("bin/notes.txt", "no program", 0644);
    options = {dir.path() / "bin", dir.path() / "sim", "", dir.path() / "out"};
  }
  void write(const std::string& name, std::string_view text, mode_t mode) {
    ASSERT_TRUE(write_file_atomic(dir.path() / name, text, mode));
  }
};

TEST(install_tree, holds_programs_roles_and_busybox) {
  Programs programs;
  auto tree = stage_install_tree(programs.options);
  ASSERT_TRUE(tree) << tree.error().text();
  fs::path bin = tree->image / "usr/bin";
  EXPECT_TRUE(file_exists(bin / "gpuctl"));
  EXPECT_FALSE(file_exists(bin / "gpuop-runc"));
  EXPECT_FALSE(file_exists(bin / "notes.txt"));
  EXPECT_EQ(fs::read_symlink(bin / "nvidia-device-plugin"), "gpu-node");
  EXPECT_TRUE(fs::is_symlink(bin / "sleep"));
  EXPECT_FALSE(file_exists(bin / "modprobe")) << "modules are loaded by what a node brings";
  EXPECT_FALSE(file_exists(bin / "reboot"));
  EXPECT_EQ(fs::read_symlink(tree->image / "bin"), "usr/bin");
  EXPECT_EQ(fs::read_symlink(tree->node_layer / "usr/bin/runc"), "gpuop-runc");
}

TEST(install_tree, programs_find_all_their_libraries_in_it) {
  if (::geteuid() != 0) FAIL() << "a changed root needs root: run the tests as root";
  Programs programs;
  auto tree = stage_install_tree(programs.options);
  ASSERT_TRUE(tree) << tree.error().text();
  auto ran = run_command(
      Command{.argv = {"/usr/bin/gpuctl", "--gtest_list_tests"}, .env = {}, .cwd = {}, .chroot = tree->image},
      20s);
  ASSERT_TRUE(ran) << ran.error().text();
  EXPECT_EQ(ran->code, 0) << ran->err;
  EXPECT_NE(ran->out.find("install_tree."), std::string::npos);
  ran = run_command(Command{.argv = {"/bin/sh", "-c", "ls -d /tmp /opt && id -un"},
                            .env = {},
                            .cwd = {},
                            .chroot = tree->image},
                    20s);
  ASSERT_TRUE(ran);
  EXPECT_EQ(ran->out, "/opt\n/tmp\nroot\n");
}

TEST(install_tree, a_second_time_copies_nothing) {
  Programs programs;
  ASSERT_TRUE(stage_install_tree(programs.options));
  fs::path file = programs.options.out / "image/usr/bin/gpuctl";
  struct stat before{}, after{};
  ASSERT_EQ(::stat(file.c_str(), &before), 0);
  ASSERT_TRUE(stage_install_tree(programs.options));
  ASSERT_EQ(::stat(file.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  programs.write("bin/gpu-node", "#!/bin/sh\n# new\n[ \"$1\" = --names ] && echo mps\n", 0755);
  ASSERT_TRUE(stage_install_tree(programs.options));
  EXPECT_NE(read_file(programs.options.out / "image/usr/bin/gpu-node").value_or("").find("# new"),
            std::string::npos);
}

TEST(install_tree, a_folder_without_programs_is_an_error) {
  TempDir dir;
  auto tree = stage_install_tree({dir.path() / "absent", "", "", dir.path() / "out"});
  ASSERT_FALSE(tree);
  EXPECT_NE(tree.error().text().find("absent"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::cluster
