// The facts file: what a static host binary must know of the hardware without loading NVML (architecture §7).
// The toolkit writes it whenever the driver is ready; the runtime reads it when a container starts.
//
// JSON, compact:
// {"version":1,"driverVersion","cudaVersion","gpus":[{"index","minor","uuid","busId","arch","brand",
// "mig":[uuid…]}],"specs":{"gpu":CDI spec,"gds":…}}. Unknown keys are left alone: old binaries may meet new
// files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cdi/spec.h"

namespace gpuop::shim {

inline constexpr std::string_view kFactsFile = "/run/nvidia/toolkit/facts.json";

struct HostFacts {
  std::string driver_version;
  std::string cuda_version;  // "12.4"
  struct Gpu {
    unsigned index = 0;
    unsigned minor = 0;
    std::string uuid;
    std::string bus_id;
    std::string arch;  // compute capability, "8.0"
    std::string brand;
    std::vector<std::string> mig;  // UUIDs

    bool operator==(const Gpu&) const = default;
  };
  std::vector<Gpu> gpus;
  // Ready-made specs of vendor runtime.nvidia.com: "gpu" has every device by index and by UUID, "all" and
  // "none"; "gds", "gdrcopy", "mofed", "nvswitch" and "imex-channel" only where the node has such devices.
  std::map<std::string, cdi::Spec> specs;

  bool operator==(const HostFacts&) const = default;
};

std::string format_facts(const HostFacts& facts);
Result<HostFacts> parse_facts(std::string_view text, std::string_view file);
// kNotFound when there is none: the driver is not ready, or no toolkit is installed.
Result<HostFacts> read_facts(const std::filesystem::path& file = kFactsFile);

}  // namespace gpuop::shim
