#include "elf/elf.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace gpuop::elf {

namespace {

constexpr std::size_t kMaxTable = 4096;     // program or section headers
constexpr std::size_t kMaxDynamic = 65536;  // bytes of the dynamic section
constexpr std::size_t kMaxName = 1024;

std::unexpected<Error> bad(std::string_view why) {
  return fail(Code::kInvalid, "read ELF: " + std::string(why));
}

// Bounded reads of one file.
class Bytes {
 public:
  static Result<Bytes> of(int fd) {
    struct stat info{};
    if (fstat(fd, &info) != 0) return fail(errno_error("read ELF", errno));
    if (!S_ISREG(info.st_mode)) return bad("not a regular file");
    return Bytes(fd, static_cast<std::uint64_t>(info.st_size));
  }
  Result<std::string> at(std::uint64_t offset, std::uint64_t size) const {
    if (offset > size_ || size > size_ - offset) return bad("a table lies beyond the end of the file");
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      ssize_t n = pread(fd_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(errno_error("read ELF", errno));
      if (n == 0) return bad("the file is shorter than it was");
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }
  // Text up to its zero byte.
  Result<std::string> text_at(std::uint64_t offset) const {
    if (offset >= size_) return bad("a name lies beyond the end of the file");
    auto bytes = at(offset, std::min<std::uint64_t>(kMaxName, size_ - offset));
    if (!bytes) return bytes;
    auto end = bytes->find('\0');
    if (end == std::string::npos) return bad("a name has no end");
    bytes->resize(end);
    return bytes;
  }

 private:
  Bytes(int fd, std::uint64_t size) : fd_(fd), size_(size) {}
  int fd_;
  std::uint64_t size_;
};

template <class T>
Result<T> object_at(const Bytes& bytes, std::uint64_t offset) {
  std::string raw = TRY(bytes.at(offset, sizeof(T)));
  T value;
  std::memcpy(&value, raw.data(), sizeof(T));
  return value;
}

template <class T>
Result<std::vector<T>> table_at(const Bytes& bytes, std::uint64_t offset, std::size_t count,
                                std::size_t entry_size) {
  if (count == 0) return std::vector<T>{};
  if (entry_size != sizeof(T) || count > kMaxTable) return bad("a table has an odd size");
  std::string raw = TRY(bytes.at(offset, count * sizeof(T)));
  std::vector<T> table(count);
  std::memcpy(table.data(), raw.data(), raw.size());
  return table;
}

struct Elf32 {
  using Header = Elf32_Ehdr;
  using Segment = Elf32_Phdr;
  using Section = Elf32_Shdr;
  using Dynamic = Elf32_Dyn;
};
struct Elf64 {
  using Header = Elf64_Ehdr;
  using Segment = Elf64_Phdr;
  using Section = Elf64_Shdr;
  using Dynamic = Elf64_Dyn;
};

template <class Segment>
std::optional<std::uint64_t> offset_of(const std::vector<Segment>& segments, std::uint64_t address) {
  for (const auto& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return address - segment.p_vaddr + segment.p_offset;
    }
  }
  return std::nullopt;
}

template <class Class>
Result<> read_dynamic(const Bytes& bytes, const std::vector<typename Class::Segment>& segments,
                      const typename Class::Segment& dynamic, ElfFile& file) {
  using Dynamic = typename Class::Dynamic;
  if (dynamic.p_filesz > kMaxDynamic) return bad("the dynamic section is too large");
  auto entries =
      TRY(table_at<Dynamic>(bytes, dynamic.p_offset, dynamic.p_filesz / sizeof(Dynamic), sizeof(Dynamic)));
  std::optional<std::uint64_t> strings;
  std::optional<std::uint64_t> soname;
  std::vector<std::uint64_t> needed;
  for (const auto& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) strings = offset_of(segments, entry.d_un.d_ptr);
    if (entry.d_tag == DT_SONAME) soname = entry.d_un.d_val;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
  }
  if (!strings) return {};
  if (soname) file.soname = TRY(bytes.text_at(*strings + *soname));
  for (auto name : needed) file.needed.push_back(TRY(bytes.text_at(*strings + name)));
  return {};
}

template <class Class>
Result<ElfFile> read_as(const Bytes& bytes, int bits) {
  auto header = TRY(object_at<typename Class::Header>(bytes, 0));
  ElfFile file{bits, header.e_machine, header.e_type == ET_DYN, {}, {}};
  auto segments =
      TRY(table_at<typename Class::Segment>(bytes, header.e_phoff, header.e_phnum, header.e_phentsize));
  for (const auto& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    TRY(read_dynamic<Class>(bytes, segments, segment, file));
    break;
  }
  return file;
}

template <class Class>
Result<std::string> section_as(const Bytes& bytes, std::string_view name, std::size_t limit) {
  auto header = TRY(object_at<typename Class::Header>(bytes, 0));
  auto sections =
      TRY(table_at<typename Class::Section>(bytes, header.e_shoff, header.e_shnum, header.e_shentsize));
  if (header.e_shstrndx < sections.size()) {
    const auto& names = sections[header.e_shstrndx];
    for (const auto& section : sections) {
      auto found = bytes.text_at(std::uint64_t{names.sh_offset} + section.sh_name);
      if (!found || *found != name || section.sh_type == SHT_NOBITS) continue;
      if (section.sh_size > limit) return bad("section '" + std::string(name) + "' is too large");
      return bytes.at(section.sh_offset, section.sh_size);
    }
  }
  return fail(Code::kNotFound, "read ELF: no section '" + std::string(name) + "'");
}

// 32 or 64 for a little-endian ELF file.
Result<int> elf_class(const Bytes& bytes) {
  std::string ident = TRY(bytes.at(0, EI_NIDENT));
  if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return bad("not an ELF file");
  if (ident[EI_DATA] != ELFDATA2LSB) return bad("not a little-endian file");
  if (ident[EI_CLASS] == ELFCLASS32) return 32;
  if (ident[EI_CLASS] == ELFCLASS64) return 64;
  return bad("unknown class");
}

}  // namespace

Result<ElfFile> read_elf(int fd) {
  Bytes bytes = TRY(Bytes::of(fd));
  int bits = TRY(elf_class(bytes));
  return bits == 32 ? read_as<Elf32>(bytes, 32) : read_as<Elf64>(bytes, 64);
}

Result<std::string> read_section(int fd, std::string_view name, std::size_t limit) {
  Bytes bytes = TRY(Bytes::of(fd));
  int bits = TRY(elf_class(bytes));
  return bits == 32 ? section_as<Elf32>(bytes, name, limit) : section_as<Elf64>(bytes, name, limit);
}

std::optional<std::string> note_description(std::string_view notes, std::string_view owner) {
  auto padded = [](std::uint32_t size) { return (std::uint64_t{size} + 3) / 4 * 4; };
  while (notes.size() >= 12) {
    std::uint32_t words[3];
    std::memcpy(words, notes.data(), sizeof(words));
    std::uint64_t total = 12 + padded(words[0]) + padded(words[1]);
    if (total > notes.size()) return std::nullopt;
    std::string_view name = notes.substr(12, words[0]);
    if (name.ends_with('\0')) name.remove_suffix(1);
    if (name == owner) return std::string(notes.substr(12 + padded(words[0]), words[1]));
    notes.remove_prefix(total);
  }
  return std::nullopt;
}

}  // namespace gpuop::elf
