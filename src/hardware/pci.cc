#include "hardware/pci.h"

#include <filesystem>

#include "base/files.h"
#include "base/text.h"

namespace gpuop::hardware {

namespace {

std::optional<std::string> attribute(const fs::path& function, const char* name) {
  auto text = read_file(function / name, 4096);
  if (!text) return std::nullopt;
  return std::string(trim(*text));
}

std::uint64_t hex_attribute(const fs::path& function, const char* name) {
  auto text = attribute(function, name);
  return text ? parse_hex(*text).value_or(0) : 0;
}

std::optional<unsigned> count_attribute(const fs::path& function, const char* name) {
  auto text = attribute(function, name);
  if (!text) return std::nullopt;
  auto number = parse_int(*text);
  if (!number || *number < 0) return std::nullopt;
  return static_cast<unsigned>(*number);
}

// The last part of a link's target, empty when there is no link.
std::string link_name(const fs::path& link) {
  std::error_code error;
  fs::path target = fs::read_symlink(link, error);
  return error ? std::string() : target.filename().string();
}

PciFunction read_function(const fs::path& dir) {
  PciFunction function;
  function.address = dir.filename().string();
  function.vendor = static_cast<std::uint16_t>(hex_attribute(dir, "vendor"));
  function.device = static_cast<std::uint16_t>(hex_attribute(dir, "device"));
  function.class_code = static_cast<std::uint32_t>(hex_attribute(dir, "class"));
  function.subsystem_vendor = static_cast<std::uint16_t>(hex_attribute(dir, "subsystem_vendor"));
  function.subsystem_device = static_cast<std::uint16_t>(hex_attribute(dir, "subsystem_device"));
  if (auto node = attribute(dir, "numa_node"))
    function.numa_node = static_cast<int>(parse_int(*node).value_or(-1));
  function.driver = link_name(dir / "driver");
  if (auto group = parse_int(link_name(dir / "iommu_group"))) function.iommu_group = static_cast<int>(*group);
  std::error_code error;
  function.is_virtual_function = fs::is_symlink(dir / "physfn", error);
  function.sriov_total_vfs = count_attribute(dir, "sriov_totalvfs");
  function.sriov_num_vfs = count_attribute(dir, "sriov_numvfs");
  if (auto entries = list_dir(dir / "drm")) function.drm = std::move(*entries);
  return function;
}

}  // namespace

bool PciFunction::is_nvidia_gpu() const {
  return vendor == kNvidiaVendor && (class_code >> 8 == 0x0300 || class_code >> 8 == 0x0302);
}

bool PciFunction::is_nvswitch() const {
  return vendor == kNvidiaVendor && class_code >> 8 == 0x0680;
}

Result<std::vector<PciFunction>> scan_pci() {
  fs::path base = kernel_path("/sys/bus/pci/devices");
  auto names = list_dir(base);
  if (!names) {
    if (names.error().code() == Code::kNotFound) return std::vector<PciFunction>{};
    return fail(std::move(names).error().in("scan PCI"));
  }
  std::vector<PciFunction> functions;
  functions.reserve(names->size());
  for (const auto& name : *names) functions.push_back(read_function(base / name));
  return functions;
}

Result<std::vector<PciFunction>> scan_nvidia_gpus() {
  auto functions = TRY(scan_pci());
  std::erase_if(functions, [](const PciFunction& f) { return !f.is_nvidia_gpu(); });
  return functions;
}

Result<std::string> pci_config(std::string_view address, std::size_t limit) {
  fs::path path = kernel_path("/sys/bus/pci/devices") / address / "config";
  std::string bytes = TRY(read_file(path));
  if (bytes.size() > limit) bytes.resize(limit);
  return bytes;
}

std::string sysfs_bus_id(std::string_view nvml_bus_id) {
  std::string id = to_lower(nvml_bus_id);
  auto colon = id.find(':');
  if (colon == 8 && id.starts_with("0000")) id.erase(0, 4);
  return id;
}

}  // namespace gpuop::hardware
