#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace gpuop {
namespace {

TEST(base, write_file_atomic_writes_only_on_a_difference) {
  TempDir dir;
  const fs::path file = dir.path() / "f";
  EXPECT_TRUE(*write_file_atomic(file, "one"));
  EXPECT_FALSE(*write_file_atomic(file, "one"));
  EXPECT_TRUE(*write_file_atomic(file, "one", 0600));
  EXPECT_TRUE(*write_file_atomic(file, "two", 0600));
  EXPECT_EQ(*read_file(file), "two");
  EXPECT_EQ(list_dir(dir.path())->size(), 1u);
  const auto bad = write_file_atomic(dir.path() / "no/such/dir", "x");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Code::kNotFound);
}

TEST(base, read_file_reads_proc_and_honours_the_limit) {
  EXPECT_NE(read_file("/proc/self/status")->find("Name:"), std::string::npos);
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "f", "12345"));
  EXPECT_TRUE(read_file(dir.path() / "f", 5));
  EXPECT_FALSE(read_file(dir.path() / "f", 4));
}

TEST(base, root_keeps_symlinks_inside) {
  TempDir dir;
  const fs::path root_path = dir.path() / "root";
  ASSERT_TRUE(make_dirs(root_path / "etc"));
  ASSERT_TRUE(write_file_atomic(root_path / "etc/real", "inside"));
  ASSERT_TRUE(write_file_atomic(dir.path() / "secret", "outside"));
  fs::create_symlink("/etc/real", root_path / "absolute");
  fs::create_symlink("../../../secret", root_path / "etc/escape");
  fs::create_symlink("/proc/self/root", root_path / "magic");
  const auto root = Root::open(root_path);
  ASSERT_TRUE(root);
  EXPECT_EQ(*root->read("/absolute"), "inside");
  EXPECT_EQ(root->resolve("/absolute")->string(), "/etc/real");
  EXPECT_FALSE(root->read("/etc/escape"));
  EXPECT_FALSE(root->exists("/magic/etc/passwd"));
  EXPECT_TRUE(root->exists("/etc/../absolute"));
  EXPECT_EQ(root->list("etc")->size(), 2u);
  ASSERT_TRUE(root->make_dirs("a/b/c"));
  EXPECT_TRUE(fs::is_directory(root_path / "a/b/c"));
  EXPECT_FALSE(root->make_dirs("a/../../x"));
}

TEST(base, file_lock_is_exclusive) {
  TempDir dir;
  {
    auto held = FileLock::acquire(dir.path() / "lock");
    ASSERT_TRUE(held);
    const auto second = FileLock::acquire(dir.path() / "lock");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kBusy);
  }
  EXPECT_TRUE(FileLock::acquire(dir.path() / "lock"));
}

TEST(base, symlinks_are_replaced_atomically) {
  TempDir dir;
  EXPECT_TRUE(*make_symlink_atomic("a", dir.path() / "l"));
  EXPECT_FALSE(*make_symlink_atomic("a", dir.path() / "l"));
  EXPECT_TRUE(*make_symlink_atomic("b", dir.path() / "l"));
  EXPECT_EQ(fs::read_symlink(dir.path() / "l"), "b");
}

TEST(base, kernel_path_uses_the_root_of_its_environment) {
  ::unsetenv("GPUOP_KERNEL_ROOT");
  EXPECT_EQ(kernel_path("/proc/modules"), "/proc/modules");
  ::setenv("GPUOP_KERNEL_ROOT", "/k", 1);
  EXPECT_EQ(kernel_path("/proc/modules"), "/k/proc/modules");
  ::unsetenv("GPUOP_KERNEL_ROOT");
}

TEST(base, errors_read_outermost_first) {
  const auto inner = []() -> Result<int> { return fail(Code::kInvalid, "must be one of a, b; got 'c'"); };
  const auto outer = [&]() -> Result<std::string> { return std::to_string(TRY_IN(inner(), "load 'x'")); };
  ASSERT_FALSE(outer());
  EXPECT_EQ(outer().error().text(), "load 'x': must be one of a, b; got 'c'");
  EXPECT_EQ(outer().error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace gpuop
