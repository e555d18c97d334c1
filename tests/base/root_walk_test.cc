#include "base/root_walk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpuop {
namespace {

// Everything is compared with what openat2 does: Root::open_at on a kernel that has it.
class Tree {
 public:
  Tree() : root_((make(), Root::open(dir_.path() / "root").value())) {}
  void same(const char* path, int flags) {
    auto expected = root_.open_at(path, flags);
    Fd walked(open_by_walking(root_.fd(), path, flags, 0644));
    ASSERT_EQ(static_cast<bool>(walked), expected.has_value()) << path;
    if (!walked) return;
    struct stat a{};
    struct stat b{};
    fstat(walked.get(), &a);
    fstat(expected->get(), &b);
    EXPECT_EQ(a.st_ino, b.st_ino) << path;
  }
  const Root& root() const { return root_; }
  fs::path path() const { return dir_.path(); }

 private:
  void make() {
    EXPECT_TRUE(make_dirs(dir_.path() / "root/a/b"));
    EXPECT_TRUE(make_dirs(dir_.path() / "root/etc"));
    EXPECT_TRUE(write_file_atomic(dir_.path() / "root/a/b/file", "x"));
    EXPECT_TRUE(write_file_atomic(dir_.path() / "outside", "x"));
    auto link = [&](const char* at, const char* to) { fs::create_symlink(to, dir_.path() / "root" / at); };
    link("up", "../../../../outside");
    link("absolute", "/a/b/file");
    link("dir", "a/b/");
    link("loop", "loop");
    link("a/back", "..");
    link("a/b/far", "/../../etc");
    link("magic", "/proc/self/root");
    link("dangling", "nothing");
  }
  TempDir dir_;
  Root root_;
};

TEST(base, walking_opens_what_the_kernel_opens) {
  Tree tree;
  for (const char* path : {"",          ".",          "/",          "..",
                           "../../..",  "a",          "/a/b/file",  "a/./b//file",
                           "a/../a/b",  "up",         "absolute",   "dir",
                           "dir/file",  "dir/..",     "loop",       "a/back/a/b/file",
                           "a/b/far",   "magic",      "dangling",   "nothing/x",
                           "a/b/file/", "a/b/file/x", "../outside", "a/b/../../../outside"}) {
    for (int flags : {O_PATH, O_RDONLY, O_PATH | O_NOFOLLOW, O_PATH | O_DIRECTORY}) tree.same(path, flags);
  }
}

TEST(base, walking_creates_only_inside) {
  Tree tree;
  EXPECT_GE(Fd(open_by_walking(tree.root().fd(), "a/b/far/new", O_WRONLY | O_CREAT | O_EXCL, 0600)).get(), 0);
  EXPECT_TRUE(fs::exists(tree.path() / "root/etc/new"));
  EXPECT_EQ(open_by_walking(tree.root().fd(), "dangling", O_WRONLY | O_CREAT | O_EXCL, 0600), -EEXIST);
  EXPECT_FALSE(fs::exists(tree.path() / "nothing"));
}

}  // namespace
}  // namespace gpuop
