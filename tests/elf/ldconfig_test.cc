#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "elf/ld_cache.h"

namespace gpuop::elf {
namespace {

TEST(elf, the_systems_ldconfig_reads_our_cache) {
  std::string bytes = format_ld_cache({{"libcuda.so.1", "/usr/lib/x/libcuda.so.1", 0x303, 0},
                                       {"libfoo.so.10", "/lib/libfoo.so.10", 0x303, 0},
                                       {"libfoo.so.9", "/lib/libfoo.so.9", 0x303, 0}});
  if (!file_exists("/sbin/ldconfig")) GTEST_SKIP() << "no ldconfig here";
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "cache", bytes));
  auto printed = run_command({.argv = {"/sbin/ldconfig", "-p", "-C", (dir.path() / "cache").string()}}, 10s);
  ASSERT_TRUE(printed);
  EXPECT_TRUE(printed->ok()) << printed->err;
  EXPECT_NE(printed->out.find("3 libs found"), std::string::npos) << printed->out;
  EXPECT_NE(printed->out.find("libcuda.so.1 (libc6,x86-64) => /usr/lib/x/libcuda.so.1"), std::string::npos)
      << printed->out;
}

}  // namespace
}  // namespace gpuop::elf
