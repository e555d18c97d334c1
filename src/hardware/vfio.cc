#include "hardware/vfio.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::hardware {

namespace {

constexpr std::array<std::string_view, 7> kKeys = {"v", "d", "sv", "sd", "bc", "sc", "i"};
using Fields = std::array<std::string_view, kKeys.size()>;

// "vVdDsvSVsdSDbcBCscSCiI": numbers are upper case, keys are not, so a key ends the field before it.
std::optional<Fields> split_alias(std::string_view text) {
  Fields fields;
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    if (!text.starts_with(kKeys[i])) return std::nullopt;
    text.remove_prefix(kKeys[i].size());
    const auto end = i + 1 < kKeys.size() ? text.find(kKeys[i + 1]) : text.size();
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    fields[i] = text.substr(0, end);
    text.remove_prefix(end);
  }
  return fields;
}

bool fits(const Fields& pattern, const Fields& device) {
  return std::ranges::equal(pattern, device,
                            [](auto wanted, auto has) { return wanted == "*" || wanted == has; });
}

}  // namespace

Result<std::string> best_vfio_driver(std::string_view modalias, std::string_view aliases) {
  constexpr std::string_view kBus = "pci:";
  const auto text = trim(modalias);
  const auto device =
      text.starts_with(kBus) ? split_alias(text.substr(kBus.size())) : std::optional<Fields>();
  if (!device)
    return fail(Code::kInvalid,
                "find the VFIO driver of '" + std::string(text) + "': not the modalias of a PCI function");
  std::string best = "vfio-pci";
  std::ptrdiff_t fewest = kKeys.size() + 1;
  for (const auto& line : split(aliases, '\n')) {
    constexpr std::string_view kStart = "alias vfio_pci:";
    if (!line.starts_with(kStart)) continue;
    const auto words = split_fields(std::string_view(line).substr(kStart.size()));
    if (words.size() != 2) continue;
    const auto pattern = split_alias(words[0]);
    if (!pattern || !fits(*pattern, *device)) continue;
    const auto open = std::ranges::count(*pattern, "*");
    if (open >= fewest) continue;
    fewest = open;
    best = words[1];
  }
  return best;
}

Result<std::string> best_vfio_driver_of(std::string_view address, std::string_view aliases) {
  const fs::path file = kernel_path("/sys/bus/pci/devices") / address / "modalias";
  const std::string modalias =
      TRY_IN(read_file(file), "find the VFIO driver of '" + std::string(address) + "'");
  return best_vfio_driver(modalias, aliases);
}

Result<std::string> read_module_aliases(const fs::path& host) {
  const fs::path inner = fs::path("/lib/modules") / TRY(kernel_release()) / "modules.alias";
  auto own = read_file(kernel_path(inner), 64u << 20);
  if (own || own.error().code() != Code::kNotFound) return own;
  const auto root = Root::open(host);
  if (!root) return std::string();
  auto hosts = root->read(inner);
  if (!hosts && hosts.error().code() == Code::kNotFound) return std::string();
  return hosts;
}

bool same_driver(std::string_view one, std::string_view other) {
  return std::ranges::equal(one, other,
                            [](char a, char b) { return (a == '-' ? '_' : a) == (b == '-' ? '_' : b); });
}

}  // namespace gpuop::hardware
