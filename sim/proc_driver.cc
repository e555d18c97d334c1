// /proc/driver/nvidia and the GPUs' driver links: what nvidia.ko adds to the tree.
#include <cstdio>

#include "base/text.h"
#include "sim/modules.h"
#include "sim/node_tree.h"
#include "sim/state/capabilities.h"
#include "sim/state/mig.h"
#include "sim/tree_files.h"
#include "sim/vgpu_tree.h"

namespace gpuop::sim {

namespace {

template <class... Args>
std::string text(const char* format, Args... args) {
  char out[768];
  std::snprintf(out, sizeof out, format, args...);
  return out;
}

std::string address_of(const Board& b) {
  return text("%04x:%02x:%02x.0", b.domain, b.bus, b.device);
}

std::string information(const Board& b, const char* version) {
  return text(
      "Model: \t\t %s\nIRQ:   \t\t %u\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\n"
      "DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %u\n"
      "GPU Firmware: \t %s\nGPU Excluded:\t No\n",
      b.name, 100 + b.bus, b.uuid, b.vbios, address_of(b).c_str(), b.minor, version);
}

// Every minor that the driver could ever hand out; fixed at load.
std::string mig_minors(const State& state) {
  std::string out = text("config %u\nmonitor %u\n", kMigConfigMinor, kMigMonitorMinor);
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    std::uint32_t gpu = state.gpus[g].board.minor;
    for (std::uint32_t gi = 0; gi < 15; ++gi) {
      out += text("gpu%u/gi%u/access %u\n", gpu, gi, gi_cap_minor(gpu, gi));
      for (std::uint32_t ci = 0; ci < 8; ++ci) {
        out += text("gpu%u/gi%u/ci%u/access %u\n", gpu, gi, ci, ci_cap_minor(gpu, gi, ci));
      }
    }
  }
  return out;
}

}  // namespace

Result<> put_capabilities(const fs::path& root, const State& state) {
  int code = write_capabilities(root, state);
  if (code) return fail(errno_error("write MIG capabilities beneath '" + root.string() + "'", code));
  return {};
}

Result<> bind_gpu_driver(const fs::path& root, const State& state) {
  fs::path devices = root / "sys/bus/pci/devices", driver = root / "sys/bus/pci/drivers/nvidia";
  TRY(make_dirs(driver));
  fs::path proc = root / "proc/driver/nvidia";
  std::string version = state.kernel_driver;
  TRY(put(proc / "version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " + version +
                                "  Release Build  (dvs-builder)\nGCC version:  gcc version 13.3.0\n"));
  TRY(put(proc / "params",
          "ResmanDebugLevel: 4294967295\nRmLogonRC: 1\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
          "DeviceFileGID: 0\nDeviceFileMode: 438\nInitializeSystemMemoryAllocations: 1\n"
          "EnableGpuFirmware: 18\nOpenRmEnableUnsupportedGpus: 1\nCoherentGPUMemoryMode: \"\"\n"));
  TRY(put(proc / "registry", "Binary: \"\"\n"));
  TRY(make_dirs(proc / "gpus"));
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const Board& b = state.gpus[g].board;
    std::string address = address_of(b);
    std::error_code why;
    fs::path link = devices / address / "driver";
    if (fs::is_symlink(link, why) && fs::read_symlink(link, why).filename() != "nvidia")
      continue;  // another's
    TRY(put_link("../../../bus/pci/drivers/nvidia", link));
    TRY(put_link(text("../../../../devices/pci%04x:%02x/", b.domain, b.bus & 0xF0) + address,
                 driver / address));
    TRY(put(proc / "gpus" / address / "information", information(b, state.kernel_driver)));
    TRY(put(proc / "gpus" / address / "registry", "Binary: \"\"\n"));
  }
  TRY(put(root / "proc/driver/nvidia-caps/mig-minors", mig_minors(state)));
  TRY(put(root / "proc/driver/nvidia-caps/sys-minors", "fabric-imex-mgmt 0\n"));
  TRY(put_vgpus(root, state));
  return put_capabilities(root, state);
}

}  // namespace gpuop::sim
