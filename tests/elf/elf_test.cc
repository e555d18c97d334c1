#include "elf/elf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "elf/ld_cache.h"

namespace gpuop::elf {
namespace {

Fd open_file(const fs::path& path) {
  return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

TEST(elf, soname_and_needed_of_a_real_library) {
  fs::path libc;
  for (auto dir : {"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"}) {
    if (file_exists(fs::path(dir) / "libc.so.6")) libc = fs::path(dir) / "libc.so.6";
  }
  auto file = read_elf(open_file(libc).get());
  ASSERT_TRUE(file) << file.error().text();
  EXPECT_EQ(file->soname, "libc.so.6");
  EXPECT_EQ(file->bits, 64);
  EXPECT_TRUE(file->is_shared);
  EXPECT_TRUE(ld_cache_flags(*file).has_value());
  EXPECT_FALSE(file->needed.empty());
}

TEST(elf, every_truncation_is_refused_or_read_without_harm) {
  auto bytes = read_file("/bin/true").value();
  Fd cut(memfd_create("cut", MFD_CLOEXEC));
  for (std::size_t size = 0; size < 600; ++size) {
    ASSERT_EQ(pwrite(cut.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    auto file = read_elf(cut.get());
    EXPECT_TRUE(size >= 64 || !file);
  }
  EXPECT_FALSE(read_elf(open_file("/").get()));
}

TEST(elf, sections_and_notes) {
  auto fd = open_file("/bin/true");
  auto note = read_section(fd.get(), ".note.gnu.build-id");
  ASSERT_TRUE(note) << note.error().text();
  auto id = note_description(*note, "GNU");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->size(), 20u);
  EXPECT_FALSE(note_description(*note, "NVIDIA Corporation"));
  EXPECT_EQ(read_section(fd.get(), ".nothing").error().code(), Code::kNotFound);
  EXPECT_FALSE(
      note_description(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00GNU", 15), "GNU"));
}

TEST(elf, cache_reads_back) {
  std::vector<LdCacheEntry> entries = {{"libcuda.so.1", "/usr/lib/x/libcuda.so.1", 0x303, 0},
                                       {"libnvidia-ml.so.1", "/usr/lib/x/libnvidia-ml.so.1", 0x303, 0},
                                       {"libfoo.so.10", "/lib/libfoo.so.10", 0x303, 0},
                                       {"libfoo.so.9", "/lib/libfoo.so.9", 0x303, 0},
                                       {"libcuda.so.1", "/usr/lib32/libcuda.so.1", 0x3, 0}};
  std::string bytes = format_ld_cache(entries);
  auto read = parse_ld_cache(bytes);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 5u);
  EXPECT_EQ((*read)[0].name, "libnvidia-ml.so.1");
  EXPECT_EQ((*read)[1].name, "libfoo.so.10");
  EXPECT_EQ((*read)[2].name, "libfoo.so.9");
  EXPECT_EQ((*read)[3].bits(), 64);
  EXPECT_EQ((*read)[4].bits(), 32);
}

TEST(elf, the_systems_own_cache_is_read) {
  auto bytes = read_file("/etc/ld.so.cache");
  if (!bytes) GTEST_SKIP() << "no cache here";
  auto entries = parse_ld_cache(*bytes);
  ASSERT_TRUE(entries);
  EXPECT_GT(entries->size(), 10u);
  for (const auto& entry : *entries) EXPECT_TRUE(entry.path.starts_with('/'));
}

TEST(elf, broken_caches_are_refused) {
  std::string good = format_ld_cache({{"libcuda.so.1", "/x/libcuda.so.1", 0x303, 0}});
  for (std::size_t size = 0; size < good.size(); ++size) {
    auto read = parse_ld_cache(std::string_view(good).substr(0, size));
    EXPECT_TRUE(!read || read->empty());
  }
  EXPECT_EQ(parse_ld_cache("nonsense").error().text(), "invalid ld.so.cache file");
  std::string many = good;
  many[23] = '\x7f';
  EXPECT_FALSE(parse_ld_cache(many));
  std::string old = "ld.so-1.7.0";
  old.append(1, '\0');
  old.append("\x01\x00\x00\x00", 4);
  old.append(12, 'x');
  old.append(4, '\0');
  EXPECT_EQ(parse_ld_cache(old + good)->size(), 1u);
}

TEST(elf, names_compare_as_the_loader_does) {
  EXPECT_LT(compare_library_names("libfoo.so.9", "libfoo.so.10"), 0);
  EXPECT_GT(compare_library_names("liba.so.1", "liba.so"), 0);
  EXPECT_EQ(compare_library_names("liba.so.01", "liba.so.1"), 0);
  EXPECT_GT(compare_library_names("lib1", "libz"), 0);
}

}  // namespace
}  // namespace gpuop::elf
