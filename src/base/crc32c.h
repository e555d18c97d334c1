// CRC-32C (Castagnoli), the checksum of our own files on disk.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuop {

// crc32c("123456789") is 0xe3069283. `before`: the checksum of what comes ahead of `bytes`.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

}  // namespace gpuop
