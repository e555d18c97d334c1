// Which devices a container asks for (container-toolkit-cdi.md §3.3): pure functions of its OCI spec and the
// configuration. Everything read here is chosen by the image and the pod.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "shim/config.h"

namespace gpuop::shim {

// The parts of an OCI spec that requests are made of. Of a variable that is set twice the last counts.
struct Container {
  std::map<std::string, std::string, std::less<>> env;
  std::map<std::string, std::string, std::less<>> annotations;
  struct Mount {
    std::string source;
    std::string destination;
  };
  std::vector<Mount> mounts;
  bool privileged = false;  // CAP_SYS_ADMIN in the bounding set

  std::string_view variable(std::string_view name) const;  // "" when absent
  bool legacy_image() const;                               // CUDA_VERSION without NVIDIA_REQUIRE_CUDA
};
Container container_of(const Json& oci);

struct Request {
  enum class Kind { kNone, kNoDevices, kDevices };  // untouched; driver without GPU; the list
  Kind kind = Kind::kNone;
  std::vector<std::string> devices;  // {"all"} or ids, first occurrences only
  std::vector<std::string> warnings;
};

// With annotations when `use_annotations` (only in cdi mode).
Request device_request(const Container& container, const Config& config, bool use_annotations);

// IMEX channels asked for: ids as given ("all" alone means none, as upstream has it).
std::vector<std::string> imex_request(const Container& container, const Config& config);

// Resolves the mode "auto" (§3.4). `is_tegra` is a fact of the host. Errors: "invalid mode …".
Result<std::string> resolve_mode(const std::string& mode, const Container& container, const Config& config,
                                 bool is_tegra);

}  // namespace gpuop::shim
