#include <sys/stat.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "hardware/driver_root.h"
#include "hardware/nvml.h"
#include "hardware/pci.h"
#include "hardware/platform.h"
#include "plugin/facts.h"

namespace gpuop::plugin {
namespace {

using hardware::Nvml;

hardware::Platform detect(const sharing::Settings& settings) {
  if (settings.device_discovery_strategy == "nvml") return hardware::Platform::kNvml;
  if (settings.device_discovery_strategy == "tegra") return hardware::Platform::kTegra;
  return hardware::detect_platform(hardware::nvml_library(settings.container_driver_root));
}

bool node_exists(const std::string& container_dev_root, std::string_view path) {
  struct stat status{};
  std::string inside = container_dev_root == "/" ? std::string(path) : container_dev_root + std::string(path);
  return ::stat(inside.c_str(), &status) == 0 || ::stat(std::string(path).c_str(), &status) == 0;
}

bool character_device(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
}

// Absent and negative mean no node; what is not a number is a broken kernel interface, which is worth
// stopping for.
Result<std::optional<int>> numa_node(const std::string& bus_id) {
  auto path = kernel_path("/sys/bus/pci/devices") / bus_id / "numa_node";
  auto text = read_file(path, 64);
  if (!text) return std::nullopt;
  auto number = parse_int(trim(*text));
  if (!number) {
    return fail(Code::kInvalid,
                "read NUMA node '" + path.string() + "': not a number: '" + std::string(trim(*text)) + "'");
  }
  return *number < 0 ? std::nullopt : std::optional<int>(static_cast<int>(*number));
}

int count_nvlinks(const Nvml& nvml, Nvml::Device from, const std::string& to_bus_id) {
  int count = 0;
  for (unsigned link = 0; link < hardware::abi::kNvlinkMaxLinks; ++link) {
    auto active = nvml.nvlink_active(from, link);
    if (!active) {
      // Links that the board does not have come after those that it has.
      if (nvml.last_code() == hardware::abi::kInvalidArgument) break;
      continue;
    }
    if (!*active) continue;
    auto remote = nvml.nvlink_remote(from, link);
    if (remote && hardware::sysfs_bus_id(remote->bus_id) == to_bus_id) ++count;
  }
  return count;
}

std::vector<std::vector<Link>> observe_links(const Nvml& nvml, const hardware::Inventory& inventory) {
  std::size_t n = inventory.gpus.size();
  std::vector<std::vector<Link>> links(n, std::vector<Link>(n));
  std::vector<Nvml::Device> devices(n, nullptr);
  for (std::size_t i = 0; i < n; ++i) {
    if (auto device = nvml.device_by_index(inventory.gpus[i].index)) devices[i] = *device;
  }
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      if (!devices[a] || !devices[b]) continue;
      Link link;
      if (auto level = nvml.topology_ancestor(devices[a], devices[b])) link.topology = *level;
      link.nvlinks = count_nvlinks(nvml, devices[a], inventory.gpus[b].bus_id);
      links[a][b] = links[b][a] = link;
    }
  }
  return links;
}

}  // namespace

sharing::Platform observe_platform(const sharing::Settings& settings) {
  sharing::Platform out;
  out.nvml_loadable = hardware::library_loads(hardware::nvml_library(settings.container_driver_root));
  out.tegra = detect(settings) == hardware::Platform::kTegra;
  return out;
}

Result<Facts> observe(const sharing::Settings& settings) {
  Facts facts;
  auto library = hardware::nvml_library(settings.container_driver_root);
  facts.platform = detect(settings);
  std::string dev_root = hardware::dev_root_of(settings.container_driver_root).string();
  for (std::string_view path :
       {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}) {
    if (node_exists(dev_root, path)) facts.control_nodes.emplace_back(path);
  }
  constexpr std::string_view channel = "/dev/nvidia-caps-imex-channels/channel0";
  facts.imex_channel0 =
      character_device(dev_root == "/" ? std::string(channel) : dev_root + std::string(channel)) ||
      character_device(std::string(channel));
  if (facts.platform == hardware::Platform::kTegra) return facts;

  auto nvml = Nvml::open(library);
  if (!nvml) {
    facts.init_error = nvml.error().text();
    return facts;
  }
  auto inventory = hardware::observe(**nvml);
  if (!inventory) {
    // Without the monitor capability a container may not look at MIG devices.
    if (inventory.error().code() == Code::kPermission) {
      return fail(std::move(inventory).error().in(
          "set NVIDIA_MIG_MONITOR_DEVICES=all in this container's environment"));
    }
    return fail(std::move(inventory).error());
  }
  facts.inventory = std::move(*inventory);
  if (facts.platform == Platform::kNvml &&
      std::ranges::any_of(facts.inventory.gpus,
                          [](const auto& gpu) { return hardware::is_integrated_gpu(gpu.name); }) &&
      settings.device_discovery_strategy == "auto") {
    facts.platform = Platform::kTegra;
    return facts;
  }
  for (const hardware::Gpu& gpu : facts.inventory.gpus)
    facts.numa_nodes.push_back(TRY(numa_node(gpu.bus_id)));
  facts.links = observe_links(**nvml, facts.inventory);
  facts.mig_minors = TRY(hardware::read_mig_minors());
  return facts;
}

std::unique_ptr<hardware::ReturnedWatch> watch_missing(Loop& loop, const sharing::Settings& settings,
                                                       const Facts& facts, std::function<void()> returned) {
  // Without a driver there is another wait; Tegra's GPU is part of the machine.
  if (!facts.init_error.empty() || facts.platform == Platform::kTegra) return nullptr;
  if (!hardware::gpus_missing(facts.inventory)) return nullptr;
  for (const std::string& warning : facts.inventory.warnings) log::warn("not offered: " + warning);
  const fs::path root = settings.container_driver_root;
  hardware::ReturnedOptions watch{.nvml_library = hardware::nvml_library(root),
                                  .dev_dir = hardware::dev_root_of(root) / "dev",
                                  .known = {},
                                  .interval = settings.device_rescan_interval};
  for (const hardware::Gpu& gpu : facts.inventory.gpus) watch.known.push_back(gpu.uuid);
  return std::make_unique<hardware::ReturnedWatch>(loop, std::move(watch), std::move(returned));
}

}  // namespace gpuop::plugin
