// Decides the CDI spec of a node's NVIDIA devices (container-toolkit-cdi.md §2). Pure: the same facts and
// options give the same spec.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cdi/spec.h"
#include "cdigen/observe.h"

namespace gpuop::cdigen {

// auto is resolved by the caller; csv (Tegra) and wsl are not offered.
inline constexpr std::string_view kModes[] = {"nvml",  "management", "gds", "gdrcopy",
                                              "mofed", "nvswitch",   "imex"};

struct Options {
  std::string mode = "nvml";
  std::string vendor = "nvidia.com";
  std::string device_class;  // empty: the mode's own
  // The roots as the host sees them; facts may have been read through other paths.
  std::string driver_root = "/";
  std::string dev_root;  // empty: the driver root
  std::string hook_path = "/usr/bin/nvidia-cdi-hook";
  std::string ldconfig_path;
  std::vector<std::string> strategies = {"index"};  // index, type-index, uuid
  std::vector<std::string> device_ids = {"all"};
  std::vector<std::string> disabled_hooks;
  std::vector<std::string> enabled_hooks;
  std::vector<std::string> features;
  bool all_device = true;
};

// The kind of a mode when the user gave none: "management.nvidia.com/gpu", "nvidia.com/imex-channel", …
std::string default_kind(std::string_view mode);

// Errors as §2 and §4.1 word them. The result has its minimum version set.
Result<cdi::Spec> generate(const Facts& facts, const Options& options);

// There are GPUs, and each is in MIG mode without an instance: no device can be named, so a spec of "all" is
// an error (a spec has at least one device, §1.3).
bool awaits_mig_instances(const hardware::Inventory& inventory);

// The edits of the driver alone (libraries, programs, hooks), without graphics.
cdi::Edits driver_edits(const DriverFiles& driver, const Options& options);

// Moves the paths of a spec from one root to another (§2.8). `host` or container paths.
void transform_root(cdi::Spec& spec, std::string_view from, std::string_view to, bool host);
std::string transform_path(std::string_view path, std::string_view from, std::string_view to);

// De-duplicates, moves what is common out of devices, sorts (§2.7).
void simplify(cdi::Spec& spec);

}  // namespace gpuop::cdigen
