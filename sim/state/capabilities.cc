#include "sim/state/capabilities.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <set>
#include <string>

#include "sim/state/devices.h"
#include "sim/state/mig.h"

namespace gpuop::sim {

namespace {

namespace fs = std::filesystem;

constexpr unsigned kConfigMode = 256, kReadMode = 292;
constexpr const char* kNodeKernelRoot = "/.gpuop-kernel";

std::string capability(std::uint32_t minor, unsigned mode) {
  char out[128];
  snprintf(out, sizeof out, "DeviceFileMinor: %u\nDeviceFileMode: %u\nDeviceFileModify: 1\n", minor, mode);
  return out;
}

// Keeps the first error.
class Writer {
 public:
  int error = 0;

  void put(const fs::path& file, const std::string& content) {
    std::error_code why;
    fs::create_directories(file.parent_path(), why);
    if (same(file, content)) return;
    // Whole or not at all, as in the kernel: others may read meanwhile.
    fs::path fresh = file.parent_path() / ("." + file.filename().string() + "." + std::to_string(getpid()));
    FILE* f = fopen(fresh.c_str(), "we");
    if (!f) return note(errno);
    bool whole = fwrite(content.data(), 1, content.size(), f) == content.size();
    if (fclose(f) != 0 || !whole) return note(errno);
    fs::rename(fresh, file, why);
    if (why) note(why.value());
  }
  void keep_only(const fs::path& dir, const std::set<std::string>& names) {
    std::error_code why;
    for (fs::directory_iterator at(dir, why), end; !why && at != end; at.increment(why)) {
      std::string name = at->path().filename().string();
      // Another's file that is not whole yet is left to it.
      if (!name.starts_with('.') && !names.contains(name)) fs::remove_all(at->path(), why);
    }
    if (why && why.value() != ENOENT) note(why.value());
  }

 private:
  static bool same(const fs::path& file, const std::string& content) {
    FILE* f = fopen(file.c_str(), "re");
    if (!f) return false;
    char now[256];
    std::size_t n = fread(now, 1, sizeof now, f);
    fclose(f);
    return n == content.size() && memcmp(now, content.data(), n) == 0;
  }
  void note(int code) {
    if (!error) error = code;
  }
};

void write_gpu(Writer& w, const fs::path& mig, const Gpu& gpu) {
  std::uint32_t minor = gpu.board.minor;
  std::set<std::string> instances;
  for (const GpuInstance& gi : gpu.live.gis) {
    if (!gi.used) continue;
    std::string name = "gi" + std::to_string(gi.id);
    instances.insert(name);
    std::set<std::string> inside = {"access"};
    w.put(mig / name / "access", capability(gi_cap_minor(minor, gi.id), kReadMode));
    for (const ComputeInstance& ci : gi.cis) {
      if (!ci.used) continue;
      inside.insert("ci" + std::to_string(ci.id));
      w.put(mig / name / ("ci" + std::to_string(ci.id)) / "access",
            capability(ci_cap_minor(minor, gi.id, ci.id), kReadMode));
    }
    w.keep_only(mig / name, inside);
  }
  w.keep_only(mig, instances);
}

}  // namespace

int write_capabilities(const fs::path& root, const State& state) {
  Writer w;
  fs::path caps = root / "proc/driver/nvidia/capabilities";
  w.put(caps / "mig/config", capability(kMigConfigMinor, kConfigMode));
  w.put(caps / "mig/monitor", capability(kMigMonitorMinor, kReadMode));
  w.put(caps / "fabric-imex-mgmt", capability(0, kConfigMode));
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const Gpu& gpu = state.gpus[g];
    if (gpu.board.mig_capable) write_gpu(w, caps / ("gpu" + std::to_string(gpu.board.minor)) / "mig", gpu);
  }
  return w.error;
}

void publish_capabilities(const State& state) {
  const char* named = getenv("GPUOP_KERNEL_ROOT");
  fs::path root = named ? named : kNodeKernelRoot;
  std::error_code why;
  // A container without the right to write there changes nothing: the node's next start shows it.
  if (fs::is_directory(root / "proc/driver/nvidia", why)) write_capabilities(root, state);
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    std::uint32_t minor = state.gpus[g].board.minor;
    for (const GpuInstance& gi : state.gpus[g].live.gis) {
      if (!gi.used) continue;
      make_capability_node(gi_cap_minor(minor, gi.id));
      for (const ComputeInstance& ci : gi.cis) {
        if (ci.used) make_capability_node(ci_cap_minor(minor, gi.id, ci.id));
      }
    }
  }
}

}  // namespace gpuop::sim
