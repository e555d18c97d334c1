// A driver's user-space files, and the device nodes of the modules.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "sim/modules.h"
#include "sim/node_tree.h"
#include "sim/state/mig.h"
#include "sim/tree_files.h"

namespace gpuop::sim {

namespace {

#if defined(__aarch64__)
constexpr const char* kLibraries = "usr/lib/aarch64-linux-gnu";
#else
constexpr const char* kLibraries = "usr/lib/x86_64-linux-gnu";
#endif

struct Library {
  const char* stem;    // "libnvidia-cfg"
  const char* soname;  // "libnvidia-cfg.so.1"; empty: none
  bool plain_link;     // also "<stem>.so"
};

// Libraries of a real driver that CDI generation looks for (container-toolkit-cdi.md §2.4). Those that
// are really called, libnvidia-ml, libcuda and libnvidia-sandboxutils, come from the build; the others are
// objects with the right SONAME.
constexpr Library kStubs[] = {
    {"libcudadebugger", "libcudadebugger.so.1", false},
    {"libnvcuvid", "libnvcuvid.so.1", true},
    {"libnvidia-allocator", "libnvidia-allocator.so.1", true},
    {"libnvidia-cfg", "libnvidia-cfg.so.1", true},
    {"libnvidia-encode", "libnvidia-encode.so.1", true},
    {"libnvidia-fbc", "libnvidia-fbc.so.1", true},
    {"libnvidia-gpucomp", "", false},
    {"libnvidia-ngx", "libnvidia-ngx.so.1", false},
    {"libnvidia-nvvm", "libnvidia-nvvm.so.4", true},
    {"libnvidia-opencl", "libnvidia-opencl.so.1", false},
    {"libnvidia-opticalflow", "libnvidia-opticalflow.so.1", true},
    {"libnvidia-pkcs11-openssl3", "", false},
    {"libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1", true},
    {"libnvidia-tls", "", false},
    {"libnvidia-glcore", "", false},
    {"libnvidia-eglcore", "", false},
    {"libnvidia-glsi", "", false},
    {"libnvidia-glvkspirv", "", false},
    {"libnvidia-rtcore", "", false},
    {"libnvoptix", "libnvoptix.so.1", false},
    {"libGLX_nvidia", "libGLX_nvidia.so.0", false},
    {"libEGL_nvidia", "libEGL_nvidia.so.0", false},
    {"libGLESv2_nvidia", "libGLESv2_nvidia.so.2", false},
    {"libGLESv1_CM_nvidia", "libGLESv1_CM_nvidia.so.1", false},
};

Result<> put_library(const fs::path& dir, const Library& lib, const std::string& version,
                     std::string_view content) {
  std::string file = std::string(lib.stem) + ".so." + version;
  // A new file each time: a process that maps the old one keeps it whole.
  TRY(put_new(dir / file, content, 0755));
  if (*lib.soname) TRY(put_link(file, dir / lib.soname));
  if (lib.plain_link)
    TRY(put_link(*lib.soname ? lib.soname : file.c_str(), dir / (std::string(lib.stem) + ".so")));
  return {};
}

// The first driver branch whose NVML has a function, of those that programs look for and do without.
struct Since {
  const char* symbol;
  int branch;
};
constexpr Since kSince[] = {
    {"nvmlDeviceGetMemoryInfo_v2", 510},
    {"nvmlDeviceGetComputeRunningProcesses_v3", 510},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", 510},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", 510},
    {"nvmlDeviceGetGpuInstanceProfileInfoV", 510},
    {"nvmlGpuInstanceGetComputeInstanceProfileInfoV", 510},
    {"nvmlGpmMetricsGet", 520},
    {"nvmlGpmMigSampleGet", 520},
    {"nvmlGpmQueryDeviceSupport", 520},
    {"nvmlGpmSampleAlloc", 520},
    {"nvmlGpmSampleFree", 520},
    {"nvmlGpmSampleGet", 520},
    {"nvmlDeviceGetGpuFabricInfo", 520},
    {"nvmlDeviceGetCurrentClocksEventReasons", 535},
    {"nvmlDeviceGetSupportedClocksEventReasons", 535},
    {"nvmlDeviceGetNumaNodeId", 545},
    {"nvmlDeviceGetGpuFabricInfoV", 550},
    {"nvmlDeviceGetPlatformInfo", 565},
    {"nvmlDeviceGetMarginTemperature", 570},
    {"nvmlDeviceGetTemperatureV", 570},
    {"nvmlDeviceGetAddressingMode", 575},
    {"nvmlDeviceGetRepairStatus", 575},
    {"nvmlDeviceGetPdi", 580},
};

// Spoils the name of a symbol in a library's string table: nobody finds it any more.
void hide_symbol(std::string& library, const std::string& symbol) {
  std::string whole = std::string(1, '\0') + symbol + std::string(1, '\0');
  std::size_t at = library.find(whole);
  if (at != std::string::npos) library[at + 1] = '_';
}

Result<std::string> nvml_library(const DriverInstall& in) {
  std::string library = TRY(read_file(in.sim_dir / "lib/libnvidia-ml.so"));
  int branch = std::atoi(in.version.c_str());
  for (const Since& s : kSince) {
    if (branch < s.branch) hide_symbol(library, s.symbol);
  }
  for (const auto& symbol : in.hidden_symbols) hide_symbol(library, symbol);
  return library;
}

Result<> put_libraries(const DriverInstall& in) {
  fs::path dir = in.root / kLibraries;
  TRY(make_dirs(dir));
  TRY(put_library(dir, {"libnvidia-ml", "libnvidia-ml.so.1", true}, in.version, TRY(nvml_library(in))));
  TRY(put_library(dir, {"libcuda", "libcuda.so.1", true}, in.version,
                  TRY(read_file(in.sim_dir / "lib/libcuda.so"))));
  TRY(put_library(dir, {"libnvidia-sandboxutils", "libnvidia-sandboxutils.so.1", false}, in.version,
                  TRY(read_file(in.sim_dir / "lib/libnvidia-sandboxutils.so"))));
  for (const Library& lib : kStubs) TRY(put_library(dir, lib, in.version, make_elf_object(lib.soname)));
  TRY(put_library(dir / "vdpau", {"libvdpau_nvidia", "libvdpau_nvidia.so.1", false}, in.version,
                  make_elf_object("libvdpau_nvidia.so.1")));
  for (const char* egl : {"libnvidia-egl-gbm.so.1", "libnvidia-egl-wayland.so.1"}) {
    std::string file = std::string(egl) + ".1.2";  // versions of their own
    TRY(put_new(dir / file, make_elf_object(egl), 0755));
    TRY(put_link(file, dir / egl));
  }
  TRY(put_link("../libnvidia-allocator.so.1", dir / "gbm/nvidia-drm_gbm.so"));
  return {};
}

Result<> put_programs(const DriverInstall& in) {
  fs::path bin = in.root / "usr/bin";
  TRY(make_dirs(bin));
  TRY(put_new(bin / "nvidia-smi", TRY(read_file(in.sim_dir / "bin/nvidia-smi")), 0755));
  // One program, which acts by its name: one file with several names.
  fs::path daemon = bin / "nvidia-persistenced";
  TRY(put_new(daemon, TRY(read_file(in.sim_dir / "bin/nvidia-driver-daemon")), 0755));
  for (const char* name : {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-debugdump",
                           "nvidia-imex", "nvidia-imex-ctl", "nv-fabricmanager", "nvidia-modprobe"}) {
    TRY(drop(bin / name));
    if (::link(daemon.c_str(), (bin / name).c_str()) != 0) {
      return fail(errno_error("link '" + (bin / name).string() + "'", errno));
    }
  }
  return {};
}

Result<> put_data(const DriverInstall& in) {
  const fs::path& root = in.root;
  fs::path firmware = root / "lib/firmware/nvidia" / in.version;
  for (const char* name : {"gsp_ga10x.bin", "gsp_tu10x.bin"}) {
    TRY(put(firmware / name, "simulated GSP firmware " + in.version + "\n"));
  }
  std::string v = in.version;
  TRY(put(root / "etc/OpenCL/vendors/nvidia.icd", "libnvidia-opencl.so.1\n"));
  TRY(put(
      root / "etc/vulkan/icd.d/nvidia_icd.json",
      R"({"file_format_version": "1.0.1", "ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.4.312"}})"
      "\n"));
  TRY(put(root / "etc/vulkan/implicit_layer.d/nvidia_layers.json",
          R"({"file_format_version": "1.0.0", "layers": []})"
          "\n"));
  fs::path share = root / "usr/share";
  TRY(put(share / "glvnd/egl_vendor.d/10_nvidia.json",
          R"({"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}})"
          "\n"));
  TRY(put(share / "egl/egl_external_platform.d/15_nvidia_gbm.json",
          R"({"file_format_version": "1.0.0", "ICD": {"library_path": "libnvidia-egl-gbm.so.1"}})"
          "\n"));
  TRY(put(share / "egl/egl_external_platform.d/10_nvidia_wayland.json",
          R"({"file_format_version": "1.0.0", "ICD": {"library_path": "libnvidia-egl-wayland.so.1"}})"
          "\n"));
  TRY(put(share / "nvidia/nvoptix.bin", "simulated\n"));
  TRY(put(share / ("nvidia/nvidia-application-profiles-" + v + "-rc"), "{}\n"));
  return {};
}

Result<> put_modules(const DriverInstall& in) {
  std::string release = TRY(tree_release(in.kernel_root));
  fs::path dir = in.kernel_root / "lib/modules" / release / "updates/dkms";
  for (const char* name : {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem"}) {
    TRY(put(dir / (std::string(name) + ".ko"), module_text(in.version, release)));
  }
  return {};
}

Result<> check_version(const std::string& version) {
  bool ok = !version.empty() && version.size() < 24 && version.find('.') != std::string::npos;
  for (char c : version) ok = ok && ((c >= '0' && c <= '9') || c == '.');
  if (ok) return {};
  return fail(Code::kInvalid, "install driver '" + version + "': not a driver version such as 580.82.07");
}

}  // namespace

fs::path state_path(const fs::path& root, std::string_view version) {
  return root / kLibraries / ("libnvidia-simstate.so." + std::string(version));
}

Result<> install_module_tools(const fs::path& sim_dir, const fs::path& root) {
  std::string program = TRY(read_file(sim_dir / "bin/modprobe"));
  std::error_code why;
  TRY(make_dirs(root / "usr/sbin"));
  if (!fs::exists(fs::symlink_status(root / "sbin", why))) TRY(put_link("usr/sbin", root / "sbin"));
  std::vector<fs::path> folders = {root / "usr/sbin"};
  if (!fs::is_symlink(root / "sbin", why)) folders.push_back(root / "sbin");
  for (const fs::path& folder : folders) {
    TRY(put_new(folder / "modprobe", program, 0755));
    for (const char* name : {"rmmod", "lsmod", "insmod"}) TRY(put_link("modprobe", folder / name));
  }
  return {};
}

Result<> attach_state(const DriverInstall& in) {
  fs::path source = hardware_state_path(in.kernel_root), target = state_path(in.root, in.version);
  struct stat a{}, b{};
  if (::stat(source.c_str(), &a) != 0)
    return fail(errno_error("open hardware state '" + source.string() + "'", errno));
  if (::stat(target.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return {};
  ::umount2(target.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  ::unlink(target.c_str());
  if (::link(source.c_str(), target.c_str()) == 0) return {};
  int why = errno;
  if (why != EXDEV && why != EPERM)
    return fail(errno_error("link hardware state '" + target.string() + "'", why));
  TRY(put(target, ""));
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return fail(errno_error("bind hardware state '" + target.string() + "'", errno));
  }
  return {};
}

Result<> install_driver(const DriverInstall& in) {
  TRY(check_version(in.version));
  std::string doing = "install driver '" + in.version + "' in '" + in.root.string() + "'";
  TRY_IN(put_libraries(in), doing);
  TRY_IN(put_programs(in), doing);
  TRY_IN(install_module_tools(in.sim_dir, in.root), doing);
  TRY_IN(put_data(in), doing);
  if (!in.user_space_only) TRY_IN(put_modules(in), doing);
  TRY_IN(attach_state(in), doing);
  return {};
}

Result<> preinstall_driver(const DriverInstall& in) {
  TRY(install_driver(in));
  for (const char* module : {"nvidia", "nvidia-uvm", "nvidia-modeset"})
    TRY(load_module(in.kernel_root, module));
  return {};
}

Result<std::vector<DeviceNode>> device_nodes(const fs::path& kernel_root) {
  std::vector<DeviceNode> out;
  if (!module_loaded(kernel_root, "nvidia")) return out;
  StateFile file;
  if (file.open(hardware_state_path(kernel_root).string()) != StateFault::kNone) {
    return fail(Code::kIo, "list device nodes: hardware state '" + hardware_state_path(kernel_root).string() +
                               "': missing or damaged");
  }
  const State& state = *file.read();
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    unsigned minor = state.gpus[g].board.minor;
    out.push_back({"nvidia" + std::to_string(minor), kMajorNvidia, minor, 0666});
  }
  out.push_back({"nvidiactl", kMajorNvidia, 255, 0666});
  if (module_loaded(kernel_root, "nvidia_modeset"))
    out.push_back({"nvidia-modeset", kMajorNvidia, 254, 0666});
  if (module_loaded(kernel_root, "nvidia_uvm")) {
    out.push_back({"nvidia-uvm", kMajorUvm, 0, 0666});
    out.push_back({"nvidia-uvm-tools", kMajorUvm, 1, 0666});
  }
  auto cap = [&](unsigned minor, unsigned mode) {
    out.push_back({"nvidia-caps/nvidia-cap" + std::to_string(minor), kMajorCaps, minor, mode});
  };
  bool mig = false;
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) mig = mig || state.gpus[g].board.mig_capable;
  if (!mig) return out;
  cap(kMigConfigMinor, 0400);
  cap(kMigMonitorMinor, 0444);
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const Gpu& gpu = state.gpus[g];
    for (const GpuInstance& gi : gpu.live.gis) {
      if (!gi.used) continue;
      cap(gi_cap_minor(gpu.board.minor, gi.id), 0444);
      for (const ComputeInstance& ci : gi.cis) {
        if (ci.used) cap(ci_cap_minor(gpu.board.minor, gi.id, ci.id), 0444);
      }
    }
  }
  return out;
}

Result<> make_device_nodes(const fs::path& kernel_root, const fs::path& dev) {
  for (const DeviceNode& node : TRY(device_nodes(kernel_root))) {
    fs::path path = dev / node.name;
    TRY(make_dirs(path.parent_path()));
    struct stat st{};
    if (::lstat(path.c_str(), &st) == 0) {
      if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(node.major, node.minor)) continue;
      TRY(drop(path));
    }
    if (::mknod(path.c_str(), S_IFCHR | node.mode, makedev(node.major, node.minor)) != 0) {
      return fail(errno_error("make device node '" + path.string() + "'", errno));
    }
    ::chmod(path.c_str(), node.mode);
  }
  return {};
}

}  // namespace gpuop::sim
