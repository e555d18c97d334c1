#include <set>

#include "labels/facts.h"

namespace gpuop::labels {
namespace {

constexpr std::size_t kStatus = 0x06;
constexpr std::size_t kFirstCapability = 0x34;
constexpr unsigned kHasCapabilities = 0x10;
constexpr unsigned kVendorCapability = 0x09;
constexpr std::size_t kFirstRecord = 5;
constexpr std::size_t kFieldLength = 10;

std::string until_nul(std::string_view field) {
  return std::string(field.substr(0, field.find('\0')));
}

}  // namespace

Result<std::optional<VgpuHost>> parse_vgpu(std::string_view config) {
  if (config.size() < 256) {
    return fail(Code::kPermission, "read PCI configuration space: only " + std::to_string(config.size()) +
                                       " bytes: needs privileged");
  }
  auto byte = [&](std::size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(config[at & 0xff]));
  };
  if ((byte(kStatus) & kHasCapabilities) == 0) return std::nullopt;
  std::size_t at = byte(kFirstCapability);
  for (std::set<std::size_t> seen; byte(at) != kVendorCapability; at = byte(at + 1)) {
    if (at == 0 || byte(at) == 0xff || !seen.insert(at).second) return std::nullopt;
  }
  if (at == 0) return std::nullopt;
  std::string_view capability = config.substr(at, byte(at + 2));
  if (capability.size() < kFirstRecord || capability[3] != 'V' || capability[4] != 'F') return std::nullopt;
  for (std::size_t record = kFirstRecord; record + 2 <= capability.size();) {
    auto id = static_cast<unsigned char>(capability[record]);
    auto length = static_cast<unsigned char>(capability[record + 1]);
    if (length < 2) break;  // a record counts its own two bytes
    std::string_view payload = capability.substr(record + 2);
    if (id == 0 && payload.size() >= 2 * kFieldLength) {
      return VgpuHost{until_nul(payload.substr(0, kFieldLength)),
                      until_nul(payload.substr(kFieldLength, kFieldLength))};
    }
    record += length;
  }
  return fail(Code::kInvalid, "read vGPU capability: it holds no host driver record");
}

}  // namespace gpuop::labels
