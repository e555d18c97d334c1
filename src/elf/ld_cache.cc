#include "elf/ld_cache.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace gpuop::elf {

namespace {

constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48;
constexpr std::size_t kEntry = 24;
constexpr std::uint8_t kLittleEndian = 2;

template <class T>
T load(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::unexpected<Error> bad() {
  return fail(Code::kInvalid, "invalid ld.so.cache file");
}

// Text at an offset of the whole new-format part, up to its zero byte; empty when out of range.
std::string_view text_at(std::string_view bytes, std::uint32_t offset) {
  if (offset >= bytes.size()) return {};
  std::string_view rest = bytes.substr(offset);
  auto end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

// Passes over a cache of the old format: header, 12 bytes an entry, then up to alignment of the new header.
Result<std::string_view> new_format(std::string_view bytes) {
  if (bytes.starts_with(kMagic)) return bytes;
  if (!bytes.starts_with(kOldMagic) || bytes.size() < 16) return bad();
  std::uint64_t size = 16 + std::uint64_t{load<std::uint32_t>(bytes, 12)} * 12;
  size = (size + 7) / 8 * 8;
  if (size > bytes.size()) return bad();
  bytes.remove_prefix(size);
  if (!bytes.starts_with(kMagic)) return bad();
  return bytes;
}

template <class T>
void store(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

bool digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes a run of digits; a number too large for the type stays at its maximum.
std::uint64_t take_number(std::string_view& text) {
  std::uint64_t value = 0;
  while (!text.empty() && digit(text.front())) {
    value = value > (UINT64_MAX - 9) / 10 ? UINT64_MAX
                                          : value * 10 + static_cast<std::uint64_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  return value;
}

}  // namespace

int LdCacheEntry::bits() const {
  switch (flags & 0xff00) {
    case 0x0300:  // x86-64
    case 0x0a00:  // aarch64
    case 0x0500:
      return 64;  // ppc64le
    default:
      return 32;
  }
}

int compare_library_names(std::string_view a, std::string_view b) {
  while (!a.empty()) {
    if (digit(a.front())) {
      if (b.empty() || !digit(b.front())) return 1;
      std::uint64_t left = take_number(a);
      std::uint64_t right = take_number(b);
      if (left != right) return left < right ? -1 : 1;
      continue;
    }
    if (b.empty()) return 1;
    if (digit(b.front())) return -1;
    if (a.front() != b.front()) return a.front() < b.front() ? -1 : 1;
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return b.empty() ? 0 : -1;
}

Result<std::vector<LdCacheEntry>> parse_ld_cache(std::string_view file) {
  std::string_view bytes = TRY(new_format(file));
  if (bytes.size() < kHeader) return bad();
  std::uint32_t count = load<std::uint32_t>(bytes, 20);
  if (count > (bytes.size() - kHeader) / kEntry) return bad();
  std::vector<LdCacheEntry> entries;
  entries.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::size_t at = kHeader + std::size_t{i} * kEntry;
    auto flags = load<std::uint32_t>(bytes, at);
    if ((flags & 0x00ff & 1) == 0) continue;
    auto name = text_at(bytes, load<std::uint32_t>(bytes, at + 4));
    auto path = text_at(bytes, load<std::uint32_t>(bytes, at + 8));
    if (name.empty() || path.empty()) continue;
    entries.push_back({std::string(name), std::string(path), flags, load<std::uint64_t>(bytes, at + 16)});
  }
  return entries;
}

std::string format_ld_cache(std::vector<LdCacheEntry> entries) {
  // The loader searches by bisection in descending order.
  std::ranges::stable_sort(entries, [](const LdCacheEntry& a, const LdCacheEntry& b) {
    int order = compare_library_names(a.name, b.name);
    if (order != 0) return order > 0;
    return std::tie(a.flags, a.hwcap) > std::tie(b.flags, b.hwcap);
  });
  std::string strings;
  std::map<std::string, std::uint32_t, std::less<>> offsets;
  std::size_t base = kHeader + entries.size() * kEntry;
  auto intern = [&](const std::string& text) {
    auto [it, fresh] = offsets.try_emplace(text, static_cast<std::uint32_t>(base + strings.size()));
    if (fresh) strings.append(text).push_back('\0');
    return it->second;
  };
  std::string table;
  for (const auto& entry : entries) {
    store<std::uint32_t>(table, entry.flags);
    store<std::uint32_t>(table, intern(entry.name));
    store<std::uint32_t>(table, intern(entry.path));
    store<std::uint32_t>(table, 0);
    store<std::uint64_t>(table, entry.hwcap);
  }
  std::string out(kMagic);
  store<std::uint32_t>(out, static_cast<std::uint32_t>(entries.size()));
  store<std::uint32_t>(out, static_cast<std::uint32_t>(strings.size()));
  store<std::uint32_t>(out, kLittleEndian);
  out.append(kHeader - out.size(), '\0');
  return out + table + strings;
}

std::optional<std::uint32_t> ld_cache_flags(const ElfFile& file) {
  constexpr std::uint32_t kLibc6 = 3;
  switch (file.machine) {
    case kMachineX86_64:
      return kLibc6 | (file.bits == 64 ? 0x0300u : 0x0800u);
    case kMachineAarch64:
      return kLibc6 | 0x0a00u;
    case kMachine386:
      return kLibc6;
    case kMachineArm:
      return kLibc6 | 0x0900u;
    default:
      return std::nullopt;
  }
}

}  // namespace gpuop::elf
