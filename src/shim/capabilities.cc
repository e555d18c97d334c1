// Which of the driver's files a capability stands for (container-toolkit-cdi.md §7.2).
#include <algorithm>
#include <array>
#include <set>

#include "shim/inject.h"

namespace gpuop::shim {

namespace {

struct Group {
  std::string_view capability;
  std::vector<std::string_view> libraries;  // file name up to ".so"
  std::vector<std::string_view> programs;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> table = {
      {"utility",
       {"libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"},
       {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"}},
      {"compute",
       {"libcuda", "libcudadebugger", "libnvidia-opencl", "libnvidia-gpucomp", "libnvidia-ptxjitcompiler",
        "libnvidia-fatbinaryloader", "libnvidia-allocator", "libnvidia-compiler", "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3", "libnvidia-nvvm", "libnvidia-nvvm70", "libnvidia-tileiras"},
       {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"}},
      {"video", {"libvdpau_nvidia", "libnvidia-encode", "libnvidia-opticalflow", "libnvcuvid"}, {}},
      {"graphics",
       {"libnvidia-eglcore",      "libnvidia-glcore",  "libnvidia-tls",      "libnvidia-glsi",
        "libnvidia-fbc",          "libnvidia-ifr",     "libnvidia-rtcore",   "libnvoptix",
        "libGLX_nvidia",          "libEGL_nvidia",     "libGLESv2_nvidia",   "libGLESv1_CM_nvidia",
        "libnvidia-glvkspirv",    "libnvidia-cbl",     "libnvidia-egl-gbm",  "libnvidia-egl-wayland",
        "libnvidia-egl-wayland2", "libnvidia-egl-xcb", "libnvidia-egl-xlib", "libnvidia-vulkan-producer",
        "libglxserver_nvidia"},
       {"nvidia-xconfig"}},
      {"ngx", {"libnvidia-ngx"}, {}},
  };
  return table;
}

std::set<std::string_view> with_implied(const std::vector<std::string>& capabilities) {
  std::set<std::string_view> set(capabilities.begin(), capabilities.end());
  if (set.contains("video")) set.insert("compute-libraries");
  if (set.contains("display")) set.insert("graphics");
  return set;
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool library_wanted(std::string_view stem, const std::set<std::string_view>& wanted) {
  for (const auto& group : groups()) {
    bool has = wanted.contains(group.capability) ||
               (group.capability == "compute" && wanted.contains("compute-libraries"));
    if (has && std::ranges::find(group.libraries, stem) != group.libraries.end()) return true;
  }
  return false;
}

bool program_wanted(std::string_view name, const std::set<std::string_view>& wanted) {
  return std::ranges::any_of(groups(), [&](const Group& group) {
    return wanted.contains(group.capability) &&
           std::ranges::find(group.programs, name) != group.programs.end();
  });
}

bool mount_wanted(const std::string& path, const std::set<std::string_view>& wanted) {
  std::string_view name = file_name(path);
  if (auto so = name.find(".so"); so != std::string_view::npos && path.find("/xorg/") == std::string::npos) {
    return library_wanted(name.substr(0, so), wanted);
  }
  if (path.find("/firmware/") != std::string::npos) return true;
  if (path.ends_with("/socket")) return wanted.contains("utility");
  if (path.ends_with("/nvidia-mps")) return wanted.contains("compute");
  if (path.find("/bin/") != std::string::npos || path.find("/sbin/") != std::string::npos)
    return program_wanted(name, wanted);
  return wanted.contains("graphics");
}

bool node_wanted(const std::string& path, const std::set<std::string_view>& wanted) {
  if (path.starts_with("/dev/nvidia-uvm")) return wanted.contains("compute") || wanted.contains("video");
  if (path == "/dev/nvidia-modeset") return wanted.contains("display");
  if (path.starts_with("/dev/dri/")) return wanted.contains("graphics");
  return true;
}

// The folder in which the container's own loader looks.
std::string container_library_dir(bool debian_like) {
#ifdef __aarch64__
  return debian_like ? "/usr/lib/aarch64-linux-gnu" : "/usr/lib64";
#else
  return debian_like ? "/usr/lib/x86_64-linux-gnu" : "/usr/lib64";
#endif
}

std::string moved(const std::string& path, const std::vector<std::string>& from, const std::string& to) {
  for (const auto& dir : from) {
    if (path.starts_with(dir + "/")) return to + path.substr(dir.size());
  }
  return path;
}

// A create-symlinks or update-ldcache hook speaks of the folders that were moved.
void move_hook(cdi::Hook& hook, const std::vector<std::string>& from, const std::string& to) {
  for (auto& arg : hook.args) {
    if (auto colons = arg.find("::"); colons != std::string::npos) {
      arg = arg.substr(0, colons + 2) + moved(arg.substr(colons + 2), from, to);
    } else if (std::ranges::find(from, arg) != from.end()) {
      arg = to;
    }
  }
}

}  // namespace

cdi::Edits filter_by_capabilities(const cdi::Edits& edits, const std::vector<std::string>& capabilities,
                                  bool debian_like) {
  auto wanted = with_implied(capabilities);
  cdi::Edits kept = edits;
  std::erase_if(kept.mounts, [&](const auto& mount) { return !mount_wanted(mount.container_path, wanted); });
  std::erase_if(kept.device_nodes, [&](const auto& node) { return !node_wanted(node.path, wanted); });
  std::erase_if(kept.hooks, [&](const auto& hook) {
    return std::ranges::find(hook.args, "update-application-profile") != hook.args.end() &&
           !wanted.contains("graphics");
  });
  // Folders of the driver's own libraries: those of libcuda's and of libnvidia-ml's files.
  std::vector<std::string> from;
  for (const auto& mount : edits.mounts) {
    std::string_view name = file_name(mount.container_path);
    if (!name.starts_with("libcuda.so.") && !name.starts_with("libnvidia-ml.so.")) continue;
    std::string dir = mount.container_path.substr(0, mount.container_path.rfind('/'));
    if (std::ranges::find(from, dir) == from.end()) from.push_back(dir);
  }
  std::string to = container_library_dir(debian_like);
  for (auto& mount : kept.mounts) mount.container_path = moved(mount.container_path, from, to);
  for (auto& hook : kept.hooks) move_hook(hook, from, to);
  return kept;
}

}  // namespace gpuop::shim
