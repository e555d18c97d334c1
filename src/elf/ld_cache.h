// The dynamic loader's cache, /etc/ld.so.cache: read, and written (glibc's format 1.1;
// container-toolkit-cdi.md §2.4). The bytes come from untrusted roots.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "elf/elf.h"

namespace gpuop::elf {

struct LdCacheEntry {
  std::string name;  // soname: "libcuda.so.1"
  std::string path;  // "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  std::uint32_t flags = 0;
  std::uint64_t hwcap = 0;

  bool operator==(const LdCacheEntry&) const = default;
  int bits() const;  // 64 or 32 by the architecture in flags
};

// All ELF entries, in the file's order; entries with offsets out of range or empty texts are skipped. An
// old-format cache in front of the new one is passed over. "invalid ld.so.cache file" for anything else.
Result<std::vector<LdCacheEntry>> parse_ld_cache(std::string_view bytes);

// The file's bytes, entries sorted as the loader searches them.
std::string format_ld_cache(std::vector<LdCacheEntry> entries);

// The flags of a library of that class and machine (ELF for libc6); nullopt for a machine the cache does not
// know.
std::optional<std::uint32_t> ld_cache_flags(const ElfFile& file);

// The loader's order of names: runs of digits compare as numbers.
int compare_library_names(std::string_view a, std::string_view b);

}  // namespace gpuop::elf
