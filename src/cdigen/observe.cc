#include "cdigen/observe.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "elf/elf.h"
#include "elf/ld_cache.h"
#include "hardware/driver_root.h"
#include "hardware/pci.h"

namespace gpuop::cdigen {

namespace {

constexpr std::array<std::string_view, 11> kLibraryDirs = {"/",
                                                           "/usr/lib64",
                                                           "/usr/lib/x86_64-linux-gnu",
                                                           "/usr/lib/aarch64-linux-gnu",
                                                           "/usr/lib/x86_64-linux-gnu/nvidia/current",
                                                           "/usr/lib/aarch64-linux-gnu/nvidia/current",
                                                           "/lib64",
                                                           "/lib/x86_64-linux-gnu",
                                                           "/lib/aarch64-linux-gnu",
                                                           "/lib/x86_64-linux-gnu/nvidia/current",
                                                           "/lib/aarch64-linux-gnu/nvidia/current"};
constexpr std::array<std::string_view, 3> kLibraryDirs32 = {"/usr/lib/i386-linux-gnu", "/usr/lib32",
                                                            "/usr/lib"};
constexpr std::array<std::string_view, 6> kBinaryDirs = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                                         "/usr/bin",        "/sbin",          "/bin"};
constexpr std::array<std::string_view, 7> kBinaries = {"nvidia-smi",
                                                       "nvidia-debugdump",
                                                       "nvidia-persistenced",
                                                       "nvidia-cuda-mps-control",
                                                       "nvidia-cuda-mps-server",
                                                       "nvidia-imex",
                                                       "nvidia-imex-ctl"};
constexpr std::array<std::string_view, 9> kShareConfigs = {
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf"};
#ifdef __aarch64__
constexpr std::string_view kArchIcd = "vulkan/icd.d/nvidia_icd.aarch64.json";
#else
constexpr std::string_view kArchIcd = "vulkan/icd.d/nvidia_icd.x86_64.json";
#endif
constexpr std::array<std::string_view, 5> kEtcConfigs = {
    "OpenCL/vendors/nvidia.icd", "vulkan/icd.d/nvidia_icd.json", "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json", kArchIcd};

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::optional<struct stat> stat_inside(const Root& root, const fs::path& inner, int more = 0) {
  auto fd = root.open_at(inner, O_PATH | O_CLOEXEC | more);
  struct stat info{};
  if (!fd || fstat(fd->get(), &info) != 0) return std::nullopt;
  return info;
}

bool is_file(const Root& root, const fs::path& inner) {
  auto info = stat_inside(root, inner);
  return info && S_ISREG(info->st_mode);
}

bool is_link(const Root& root, const fs::path& inner) {
  auto info = stat_inside(root, inner, O_NOFOLLOW);
  return info && S_ISLNK(info->st_mode);
}

// Files of `dir` whose name matches, with symlinks followed; unique, in the order of names.
std::vector<std::string> files_in(const Root& root, const fs::path& dir, const std::string& pattern) {
  std::vector<std::string> found;
  auto names = root.list(dir);
  if (!names) return found;
  for (const auto& name : *names) {
    if (!matches(pattern, name) || !is_file(root, dir / name)) continue;
    auto resolved = root.resolve(dir / name);
    if (resolved && std::ranges::find(found, resolved->string()) == found.end())
      found.push_back(resolved->string());
  }
  return found;
}

std::vector<std::string> files_in_cache(const Root& root, const std::string& pattern, int bits) {
  std::vector<std::string> found;
  auto bytes = root.read("/etc/ld.so.cache");
  if (!bytes) return found;
  auto entries = elf::parse_ld_cache(*bytes);
  if (!entries) return found;
  for (const auto& entry : *entries) {
    if (entry.bits() != bits || !is_file(root, entry.path)) continue;
    auto resolved = root.resolve(entry.path);
    if (!resolved || !matches(pattern, resolved->filename().string())) continue;
    if (std::ranges::find(found, resolved->string()) == found.end()) found.push_back(resolved->string());
  }
  return found;
}

// First folder that has any; then the loader's cache.
std::vector<std::string> locate(const Root& root, const std::string& pattern, const DriverSearch& search) {
  if (!search.library_search_paths.empty()) {
    for (const auto& dir : search.library_search_paths) {
      if (auto found = files_in(root, dir, pattern); !found.empty()) return found;
    }
    return {};
  }
  for (auto dir : kLibraryDirs) {
    if (auto found = files_in(root, dir, pattern); !found.empty()) return found;
  }
  return files_in_cache(root, pattern, 64);
}

Library library_of(const Root& root, const std::string& path) {
  Library library{path, {}, false, false, false};
  auto fd = root.open_at(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (!fd) return library;
  auto file = elf::read_elf(fd->get());
  if (!file) return library;
  library.readable = true;
  library.soname = file->soname;
  fs::path dir = fs::path(path).parent_path();
  std::string name = fs::path(path).filename().string();
  if (!library.soname.empty() && library.soname.find('/') == std::string::npos) {
    library.has_soname_link = is_link(root, dir / library.soname);
  }
  auto so = name.find(".so");
  if (so != std::string::npos) library.has_plain_link = is_link(root, dir / name.substr(0, so + 3));
  return library;
}

void add_libraries(const Root& root, const std::vector<std::string>& paths, std::vector<Library>& to) {
  for (const auto& path : paths) {
    bool known = std::ranges::any_of(to, [&](const Library& old) { return old.path == path; });
    if (!known) to.push_back(library_of(root, path));
  }
}

std::vector<std::string> find_binaries(const Root& root, std::span<const std::string_view> names) {
  std::vector<std::string> found;
  for (auto name : names) {
    if (auto path = hardware::find_program(root, name, kBinaryDirs)) {
      auto resolved = root.resolve(*path);
      found.push_back(resolved ? resolved->string() : path->string());
    }
  }
  return found;
}

std::vector<std::string> find_firmware(const Root& root, const std::string& version) {
  std::vector<std::string> dirs;
  if (auto path = read_file(kernel_path("/sys/module/firmware_class/parameters/path"), 4096)) {
    std::string own(trim(*path));
    if (!own.empty()) dirs.push_back(own);
  }
  std::string release = kernel_release().value_or("");
  for (std::string dir : {"/lib/firmware/updates/" + release, std::string("/lib/firmware/updates"),
                          "/lib/firmware/" + release, std::string("/lib/firmware")}) {
    dirs.push_back(dir);
  }
  std::vector<std::string> found;
  for (const auto& dir : dirs) {
    for (auto& file : files_in(root, fs::path(dir) / "nvidia" / version, "gsp*.bin")) {
      if (std::ranges::find(found, file) == found.end()) found.push_back(std::move(file));
    }
    if (!found.empty()) break;
  }
  return found;
}

std::vector<std::string> find_ipc(const Root& root) {
  std::vector<std::string> found;
  for (std::string_view name : {"nvidia-persistenced/socket", "nvidia-fabricmanager/socket"}) {
    for (std::string_view dir : {"/run", "/var/run"}) {
      fs::path path = fs::path(dir) / name;
      auto info = stat_inside(root, path);
      if (!info || S_ISDIR(info->st_mode)) continue;
      found.push_back(path.string());
      break;
    }
  }
  auto mps = stat_inside(root, "/tmp/nvidia-mps");
  if (mps && S_ISDIR(mps->st_mode)) found.emplace_back("/tmp/nvidia-mps");
  return found;
}

void find_configs(const Root& root, const DriverSearch& search, DriverFiles& files) {
  std::vector<std::string> dirs = search.config_search_paths;
  if (dirs.empty()) dirs = {"/etc", "/usr/local/share", "/usr/share"};
  auto add = [&](std::string_view relative, std::string_view to) {
    std::vector<std::string> places = dirs;
    if (relative.starts_with("vulkan/")) places.emplace_back("/");
    for (const auto& dir : places) {
      fs::path path = fs::path(dir) / relative;
      if (!is_file(root, path)) continue;
      auto resolved = root.resolve(path);
      files.configs.push_back(
          {resolved ? resolved->string() : path.string(), std::string(to) + "/" + std::string(relative)});
      return;
    }
  };
  for (auto relative : kShareConfigs) add(relative, "/usr/share");
  for (auto relative : kEtcConfigs) add(relative, "/etc");
}

void find_xorg(const Root& root, DriverFiles& files) {
  std::vector<std::string> dirs;
  std::vector<std::string> bases;
  for (const auto& dir : files.library_dirs)
    bases.push_back(dir + "/nvidia/xorg"), bases.push_back(dir + "/xorg");
  for (std::string_view dir : {"/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64"})
    bases.emplace_back(dir);
  for (const auto& base : bases) {
    dirs.push_back(base);
    for (std::string_view part : {"/modules/drivers", "/modules/extensions", "/modules/updates/drivers",
                                  "/modules/updates/extensions"}) {
      dirs.push_back(base + std::string(part));
    }
  }
  for (const std::string& name : {std::string("nvidia_drv.so"), "libglxserver_nvidia.so." + files.version}) {
    for (const auto& dir : dirs) {
      auto found = files_in(root, dir, name);
      if (found.empty()) continue;
      files.xorg.push_back(found.front());
      break;
    }
  }
}

void find_graphics(const Root& root, const DriverSearch& search, DriverFiles& files) {
  for (std::string_view name : {"gbm", "wayland", "wayland2", "xcb", "xlib"}) {
    add_libraries(root, locate(root, "libnvidia-egl-" + std::string(name) + ".so.*.*", search),
                  files.graphics_libraries);
  }
  add_libraries(root, locate(root, "libnvidia-vulkan-producer.so." + files.version, search),
                files.graphics_libraries);
  auto allocator = locate(root, "libnvidia-allocator.so." + files.version, search);
  if (!allocator.empty()) files.allocator_dir = fs::path(allocator.front()).parent_path().string();
  static constexpr std::array<std::string_view, 1> kGraphicsBinaries = {"nvidia-xconfig"};
  files.graphics_binaries = find_binaries(root, kGraphicsBinaries);
  find_configs(root, search, files);
  find_xorg(root, files);
}

std::optional<Node> node_at(const Root& root, const std::string& path) {
  auto info = stat_inside(root, path, O_NOFOLLOW);
  if (!info || !S_ISCHR(info->st_mode)) return std::nullopt;
  return Node{path, major(info->st_rdev), minor(info->st_rdev), info->st_mode & 0777, info->st_gid};
}

}  // namespace

Result<DriverFiles> observe_driver(const Root& root, const DriverSearch& search) {
  DriverFiles files;
  files.version = search.version;
  std::string on_disk = hardware::driver_version_from_files(root, kLibraryDirs).value_or("");
  if (files.version.empty()) files.version = on_disk;
  if (files.version.empty()) {
    for (const auto& path : files_in_cache(root, "libcuda.so.*.*", 64)) {
      files.version = fs::path(path).filename().string().substr(std::string_view("libcuda.so.").size());
      break;
    }
  }
  if (files.version.empty()) {
    return fail(Code::kNotFound, "find the driver's version under '" + root.path().string() +
                                     "': NVML does not say it and there is no libcuda.so.VERSION");
  }
  auto all = locate(root, "lib*.so." + files.version, search);
  if (all.empty()) {
    return fail(Code::kNotFound,
                "find the driver's libraries under '" + root.path().string() + "': no lib*.so." +
                    files.version +
                    (on_disk.empty() || on_disk == files.version
                         ? ""
                         : "; the files there are of version " + on_disk + ": unexpected version detected"));
  }
  for (const auto& path : all) {
    std::string dir = fs::path(path).parent_path().string();
    if (std::ranges::find(files.library_dirs, dir) == files.library_dirs.end())
      files.library_dirs.push_back(dir);
  }
  for (const auto& dir : files.library_dirs) {
    add_libraries(root, files_in(root, dir, "*.so." + files.version), files.libraries);
    add_libraries(root, files_in(root, fs::path(dir) / "vdpau", "*.so." + files.version), files.libraries);
    add_libraries(root, files_in(root, dir, "libnvidia-nvvm70.so.*"), files.libraries);
  }
  for (const auto& name : search.explicit_libraries)
    add_libraries(root, locate(root, name, search), files.libraries);
  for (auto dir : kLibraryDirs32) {
    auto paths = files_in(root, dir, "lib*.so." + files.version);
    std::erase_if(paths, [&](const std::string& path) {
      auto fd = root.open_at(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      auto file = fd ? elf::read_elf(fd->get()) : fail(Code::kNotFound, "");
      return !file || file->bits != 32;
    });
    add_libraries(root, paths, files.compat32);
  }
  files.binaries = find_binaries(root, kBinaries);
  files.firmware = find_firmware(root, files.version);
  files.ipc = find_ipc(root);
  find_graphics(root, search, files);
  return files;
}

Result<DeviceFiles> observe_devices(const Root& root) {
  DeviceFiles files;
  auto add = [&](const std::string& dir, std::string_view prefix) {
    auto names = root.list(dir);
    if (!names) return;
    for (const auto& name : *names) {
      if (!name.starts_with(prefix)) continue;
      if (auto node = node_at(root, dir + "/" + name)) files.nodes.emplace(node->path, std::move(*node));
    }
  };
  add("/dev", "nvidia");
  add("/dev", "gdrdrv");
  add("/dev", "dxg");
  add("/dev/nvidia-caps", "nvidia-cap");
  add("/dev/nvidia-caps-imex-channels", "channel");
  add("/dev/dri", "");
  add("/dev/infiniband", "");
  if (auto names = root.list("/dev/dri/by-path")) {
    for (const auto& name : *names) {
      fs::path path = fs::path("/dev/dri/by-path") / name;
      auto fd = root.open_at(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
      char target[512];
      ssize_t size = fd ? readlinkat(fd->get(), "", target, sizeof(target)) : -1;
      if (size > 0) files.links.emplace(path.string(), std::string(target, static_cast<std::size_t>(size)));
    }
  }
  for (const auto& gpu : TRY(hardware::scan_nvidia_gpus())) {
    if (!gpu.drm.empty()) files.drm.emplace(gpu.address, gpu.drm);
  }
  files.mig_minors = TRY(hardware::read_mig_minors());
  return files;
}

}  // namespace gpuop::cdigen
