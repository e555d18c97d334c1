#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "hardware/driver_root.h"
#include "hardware/nvml.h"
#include "hardware/pci.h"
#include "labels/facts.h"
#include "labels/sources.h"

namespace gpuop::labels {
namespace {

void observe_pci(Facts& facts) {
  facts.pci_classes.assign(facts.inventory.gpus.size(), std::nullopt);
  auto functions = hardware::scan_pci();
  if (!functions) {
    facts.vgpu_error = functions.error().text();
    return;
  }
  facts.vgpus.emplace();
  for (const hardware::PciFunction& function : *functions) {
    for (std::size_t i = 0; i < facts.inventory.gpus.size(); ++i) {
      if (facts.inventory.gpus[i].bus_id == function.address) facts.pci_classes[i] = function.class_code;
    }
    if (function.vendor != hardware::kNvidiaVendor || !facts.vgpus) continue;
    auto config = hardware::pci_config(function.address);
    auto vgpu =
        config ? parse_vgpu(*config) : Result<std::optional<VgpuHost>>(std::unexpected(config.error()));
    if (!vgpu) {
      facts.vgpu_error = "'" + function.address + "': " + vgpu.error().text();
      facts.vgpus.reset();
    } else if (*vgpu) {
      facts.vgpus->push_back(std::move(**vgpu));
    }
  }
}

FabricFact observe_fabric(const hardware::Nvml& nvml, const hardware::Gpu& gpu) {
  FabricFact fact;
  auto device = nvml.device_by_index(gpu.index);
  auto fabric = device ? nvml.fabric(*device) : Result<hardware::Fabric>(std::unexpected(device.error()));
  if (fabric) {
    fact.info = std::move(*fabric);
  } else if (fabric.error().code() != Code::kUnsupported) {
    fact.error = fabric.error().text();
  }
  return fact;
}

hardware::Platform platform_of(const sharing::Settings& settings, const std::filesystem::path& library) {
  if (settings.device_discovery_strategy == "nvml") return hardware::Platform::kNvml;
  if (settings.device_discovery_strategy == "tegra") return hardware::Platform::kTegra;
  return hardware::detect_platform(library);
}

}  // namespace

Result<Facts> observe(const sharing::Settings& settings) {
  Facts facts;
  auto library = hardware::nvml_library(settings.container_driver_root);
  facts.platform = platform_of(settings, library);
  if (!settings.machine_type_file.empty()) {
    // The machine's own files are the kernel's (DMI); any other path is the user's.
    fs::path path = settings.machine_type_file;
    if (path.string().starts_with("/sys/")) path = kernel_path(path);
    if (auto text = read_file(path, 4096)) facts.machine = std::move(*text);
  }
  if (settings.device_discovery_strategy == "vfio") {
    facts.platform = hardware::Platform::kNvml;  // of what is known to work, without its versions
    facts.has_versions = false;
    facts.inventory = TRY(observe_vfio());
  } else if (facts.platform == hardware::Platform::kNvml || facts.platform == hardware::Platform::kWsl) {
    auto nvml = hardware::Nvml::open(library);
    if (!nvml) {
      facts.init_error = nvml.error().text();
    } else {
      auto inventory = hardware::observe(**nvml);
      if (!inventory && inventory.error().code() == Code::kPermission) {
        return fail(std::move(inventory).error().in(
            "set NVIDIA_MIG_MONITOR_DEVICES=all in this container's environment"));
      }
      facts.inventory = TRY(std::move(inventory));
      for (const hardware::Gpu& gpu : facts.inventory.gpus)
        facts.fabrics.push_back(observe_fabric(**nvml, gpu));
    }
  } else if (facts.platform == hardware::Platform::kTegra) {
    auto inventory = observe_tegra();
    if (inventory) {
      facts.inventory = std::move(*inventory);
    } else {
      facts.init_error = inventory.error().text();
    }
  }
  observe_pci(facts);
  return facts;
}

}  // namespace gpuop::labels
