// What we must know of ELF files, read from untrusted bytes: every offset is checked, nothing is mapped or
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpuop::elf {

inline constexpr std::uint16_t kMachine386 = 3;
inline constexpr std::uint16_t kMachineArm = 40;
inline constexpr std::uint16_t kMachineX86_64 = 62;
inline constexpr std::uint16_t kMachineAarch64 = 183;

struct ElfFile {
  int bits = 64;
  std::uint16_t machine = 0;
  bool is_shared = false;  // ET_DYN
  std::string soname;      // empty when there is none
  std::vector<std::string> needed;
};

// Reads the headers and the dynamic section of the regular file `fd` by pread: its offset stays. Only
// little-endian files. kInvalid: not such a file, or its tables do not fit into it.
Result<ElfFile> read_elf(int fd);

// The content of a section by name, at most `limit` bytes; kNotFound when there is none.
Result<std::string> read_section(int fd, std::string_view name, std::size_t limit = 1u << 20);

// The description of the first note in `notes` (a note section's bytes) with that owner; nullopt when there
// is none.
std::optional<std::string> note_description(std::string_view notes, std::string_view owner);

}  // namespace gpuop::elf
