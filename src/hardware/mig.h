// MIG: the text of a profile, and the capability device files that give access to an instance.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpuop::hardware {

// What a GPU instance profile enumerator stands for (device-plugin-gfd-mps.md §7.4): slices and attribute
// ("", "me", "me.all", "gfx"; `no_me` for the *_NO_ME ones). nullopt for a value that this build does not
// know.
struct GpuInstanceKind {
  unsigned slices = 0;
  std::string_view attribute;
  bool no_me = false;
};
std::optional<GpuInstanceKind> gpu_instance_kind(unsigned profile);
// The slices of a compute instance profile enumerator.
std::optional<unsigned> compute_instance_slices(unsigned profile);

// "1g.10gb", "1c.2g.10gb", "1g.10gb+me", "1g.24gb-me": [Cc.]Gg.GBgb[+attribute][-me] (§3.1).
// `mig_mib` is the instance's memory, `total_bytes` the parent's.
std::string mig_profile_text(const GpuInstanceKind& kind, unsigned compute_slices, std::uint64_t mig_mib,
                             std::uint64_t total_bytes);

// Minors of the files /dev/nvidia-caps/nvidia-cap<minor>, from /proc/driver/nvidia-caps/mig-minors
// (container-toolkit-cdi.md §2.3). Keys: "config", "monitor", "gpu0/gi1/access", "gpu0/gi1/ci0/access", where
// gpu is the GPU's *minor*.
struct MigMinors {
  std::map<std::string, unsigned, std::less<>> minors;
  std::vector<std::string> bad_lines;  // skipped

  std::optional<unsigned> config() const { return get("config"); }
  std::optional<unsigned> monitor() const { return get("monitor"); }
  std::optional<unsigned> gpu_instance(unsigned gpu_minor, unsigned gi) const;
  std::optional<unsigned> compute_instance(unsigned gpu_minor, unsigned gi, unsigned ci) const;
  std::optional<unsigned> get(std::string_view key) const;
};
MigMinors parse_mig_minors(std::string_view text);
// Reads kernel_path("/proc/driver/nvidia-caps/mig-minors"); no file means no MIG support: empty, not an
// error.
Result<MigMinors> read_mig_minors();

}  // namespace gpuop::hardware
