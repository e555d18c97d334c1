#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace gpuop {

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Eight tables take eight bytes a step.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (std::uint32_t i = 0; i < 256; ++i)
    for (std::size_t t = 1; t < 8; ++t)
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t plain(const char* at, std::size_t size, std::uint32_t crc) {
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t t = 0; t < 8; ++t) crc ^= kTables[7 - t][(word >> (8 * t)) & 0xff];
  }
  for (; size > 0; ++at, --size)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
// The processor's own instruction is five times as fast.
__attribute__((target("sse4.2"))) std::uint32_t fast(const char* at, std::size_t size, std::uint32_t crc) {
  std::uint64_t wide = crc;
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++at, --size) crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(*at));
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~fast(bytes.data(), bytes.size(), ~before);
#endif
  return ~plain(bytes.data(), bytes.size(), ~before);
}

}  // namespace gpuop
