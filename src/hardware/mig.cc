#include "hardware/mig.h"

#include <array>
#include <cmath>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::hardware {

namespace {

// Reads "<prefix><number>" whole.
std::optional<unsigned> numbered(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos || text.size() > 9)
    return std::nullopt;
  return static_cast<unsigned>(*parse_int(text));
}

// Only the four forms that the kernel writes: anything looser would let a malformed line name a file.
bool is_capability(std::string_view key) {
  if (key == "config" || key == "monitor") return true;
  auto parts = split(key, '/');
  if (parts.size() != 3 && parts.size() != 4) return false;
  if (parts.back() != "access" || !numbered(parts[0], "gpu") || !numbered(parts[1], "gi")) return false;
  return parts.size() == 3 || numbered(parts[2], "ci").has_value();
}

}  // namespace

std::optional<GpuInstanceKind> gpu_instance_kind(unsigned profile) {
  static constexpr std::array<GpuInstanceKind, 0x12> kKinds = {{
      {1, "", false},
      {2, "", false},
      {3, "", false},
      {4, "", false},
      {7, "", false},
      {8, "", false},
      {6, "", false},
      {1, "me", false},
      {2, "me", false},
      {1, "", false},
      {1, "gfx", false},
      {2, "gfx", false},
      {4, "gfx", false},
      {1, "", true},
      {2, "", true},
      {1, "me.all", false},
      {2, "me.all", false},
      {3, "gfx", false},
  }};
  if (profile >= kKinds.size()) return std::nullopt;
  return kKinds[profile];
}

std::optional<unsigned> compute_instance_slices(unsigned profile) {
  static constexpr std::array<unsigned, 9> kSlices = {1, 2, 3, 4, 7, 8, 6, 1, 7};
  if (profile >= kSlices.size()) return std::nullopt;
  return kSlices[profile];
}

std::string mig_profile_text(const GpuInstanceKind& kind, unsigned compute_slices, std::uint64_t mig_mib,
                             std::uint64_t total_bytes) {
  // The instance's share of the board in eighths, of the board's size in whole GiB.
  double gib = 0;
  if (total_bytes > 0) {
    double bytes = static_cast<double>(mig_mib) * 1048576.0;
    double eighths = std::ceil(8.0 * bytes / static_cast<double>(total_bytes)) / 8.0;
    gib = eighths * std::ceil(static_cast<double>(total_bytes) / 1073741824.0);
  }
  std::string text;
  if (compute_slices != kind.slices) text = std::to_string(compute_slices) + "c.";
  text += std::to_string(kind.slices) + "g." + std::to_string(static_cast<long>(std::round(gib))) + "gb";
  if (!kind.attribute.empty()) text += "+" + std::string(kind.attribute);
  if (kind.no_me) text += "-me";
  return text;
}

std::optional<unsigned> MigMinors::get(std::string_view key) const {
  auto it = minors.find(key);
  if (it == minors.end()) return std::nullopt;
  return it->second;
}

std::optional<unsigned> MigMinors::gpu_instance(unsigned gpu_minor, unsigned gi) const {
  return get("gpu" + std::to_string(gpu_minor) + "/gi" + std::to_string(gi) + "/access");
}

std::optional<unsigned> MigMinors::compute_instance(unsigned gpu_minor, unsigned gi, unsigned ci) const {
  return get("gpu" + std::to_string(gpu_minor) + "/gi" + std::to_string(gi) + "/ci" + std::to_string(ci) +
             "/access");
}

MigMinors parse_mig_minors(std::string_view text) {
  MigMinors result;
  for (const auto& line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    auto fields = split_fields(line);
    std::optional<unsigned> minor = fields.size() == 2 ? numbered(fields[1], "") : std::nullopt;
    if (!minor || !is_capability(fields[0])) {
      result.bad_lines.push_back(line);
    } else {
      result.minors[fields[0]] = *minor;
    }
  }
  return result;
}

Result<MigMinors> read_mig_minors() {
  auto text = read_file(kernel_path("/proc/driver/nvidia-caps/mig-minors"));
  if (text) return parse_mig_minors(*text);
  if (text.error().code() == Code::kNotFound) return MigMinors{};
  return fail(std::move(text).error());
}

}  // namespace gpuop::hardware
