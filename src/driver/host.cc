#include "driver/host.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "hardware/driver_root.h"
#include "hardware/pci.h"

namespace gpuop::driver {

namespace {

constexpr Duration kCommandLimit = 60s;
// nvidia_drm holds nvidia_modeset, so it goes first (D-21).
constexpr std::string_view kModules[] = {"nvidia_drm", "nvidia_modeset",   "nvidia_uvm", "nvidia_peermem",
                                         "nvidia_fs",  "nvidia_vgpu_vfio", "gdrdrv",     "nvidia"};

std::vector<std::string> plain_environment() {
  std::vector<std::string> env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  if (auto kernel = env_or("GPUOP_KERNEL_ROOT"); !kernel.empty())
    env.push_back("GPUOP_KERNEL_ROOT=" + kernel);
  return env;
}

std::string octal_unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The module loader's own program: of the host, or of the tree that stands for the kernel; else the system
// call.
Result<> remove_module(const fs::path& host_root, const std::string& name) {
  Command command{.argv = {"/sbin/modprobe", "-r", name}, .env = plain_environment()};
  auto doing = "unload kernel module '" + name + "'";
  if (!env_or("GPUOP_KERNEL_ROOT").empty() && file_exists(kernel_path("/sbin/modprobe"))) {
    command.argv[0] = kernel_path("/sbin/modprobe").string();
  } else if (auto root = Root::open(host_root); root && root->exists("/sbin/modprobe")) {
    command.chroot = host_root;
  } else if (syscall(SYS_delete_module, name.c_str(), O_NONBLOCK) == 0) {
    return {};
  } else {
    return fail(errno_error(doing, errno));
  }
  auto state = TRY_IN(run_command(command, kCommandLimit), doing);
  if (!state.ok())
    return fail(Code::kBusy, doing + ": " + std::string(trim(state.err.empty() ? state.out : state.err)));
  return {};
}

}  // namespace

bool module_is_loaded() {
  return file_exists(kernel_path("/sys/module/nvidia/refcnt"));
}

bool module_is_loaded(std::string_view name) {
  auto text = read_file(kernel_path("/proc/modules"), 4u << 20);
  return text && ("\n" + *text).find("\n" + std::string(name) + " ") != std::string::npos;
}

Result<std::optional<std::string>> host_driver_version(const fs::path& host_root) {
  auto root = Root::open(host_root);
  if (!root) return std::nullopt;
  auto program = hardware::find_program(*root, "nvidia-smi", hardware::host_binary_dirs());
  if (!program) return std::nullopt;
  Command command{.argv = {program->string(), "--query-gpu=driver_version", "--format=csv,noheader"},
                  .env = plain_environment()};
  command.chroot = host_root;
  auto state = TRY_IN(run_command(command, kCommandLimit), "run the host's " + program->string());
  std::string first(trim(state.out.substr(0, state.out.find('\n'))));
  if (state.ok() && !first.empty()) return first;
  std::string why(trim(state.err.empty() ? state.out : state.err));
  return fail(Code::kUnavailable, "run the host's " + program->string() + ": exit status " +
                                      std::to_string(state.code) +
                                      (why.empty() ? ", no output" : ": " + why.substr(0, why.find('\n'))) +
                                      "; repair or remove the host's driver");
}

Result<> unload_module(const fs::path& host_root, const std::string& name) {
  if (!module_is_loaded(name)) return {};
  return remove_module(host_root, name);
}

Result<> unload_driver(const fs::path& host_root) {
  Result<> first;
  for (auto name : kModules) {
    auto done = unload_module(host_root, std::string(name));
    if (!done && first) first = std::move(done);
  }
  if (first) return {};
  auto holders = device_holders();
  return fail(first.error().code(),
              first.error().text() + (holders.empty() ? "" : "; in use by " + join(holders, ", ")));
}

std::vector<std::string> device_holders() {
  std::vector<std::string> holders;
  auto processes = list_dir("/proc");
  for (std::size_t i = 0; processes && i < processes->size(); ++i) {
    const auto& pid = (*processes)[i];
    if (!parse_int(pid)) continue;
    fs::path folder = fs::path("/proc") / pid / "fd";
    auto open_files = list_dir(folder);
    bool holds = open_files && std::ranges::any_of(*open_files, [&](const std::string& fd) {
                   std::error_code error;
                   return fs::read_symlink(folder / fd, error).string().starts_with("/dev/nvidia");
                 });
    if (!holds) continue;
    auto name = read_file(fs::path("/proc") / pid / "comm", 64);
    holders.push_back("pid " + pid + " (" + std::string(name ? trim(*name) : "?") + ")");
  }
  return holders;
}

Result<> unmount_tree(const fs::path& folder) {
  auto text = TRY_IN(read_file("/proc/self/mountinfo", 16u << 20), "unmount '" + folder.string() + "'");
  std::vector<std::string> points;
  for (const auto& line : split(text, '\n')) {
    auto fields = split_fields(line);
    if (fields.size() < 5) continue;
    std::string point = octal_unescaped(fields[4]);
    if (point.ends_with("//deleted")) point.resize(point.size() - 9);
    if (point == folder.string() || point.starts_with(folder.string() + "/"))
      points.push_back(std::move(point));
  }
  for (auto it = points.rbegin(); it != points.rend(); ++it) {
    if (umount2(it->c_str(), MNT_DETACH) != 0 && errno != EINVAL && errno != ENOENT) {
      return fail(errno_error("unmount '" + *it + "'", errno));
    }
  }
  if (!points.empty())
    log::info("unmounted the old driver", {{"folder", folder.string()}, {"mounts", points.size()}});
  return {};
}

Result<> unbind_vfio() {
  for (const auto& gpu : TRY(hardware::scan_nvidia_gpus())) {
    if (gpu.driver.find("vfio") == std::string::npos) continue;
    fs::path device = kernel_path("/sys/bus/pci/devices") / gpu.address;
    TRY(write_in_place(device / "driver/unbind", gpu.address));
    if (file_exists(device / "driver_override")) TRY(write_in_place(device / "driver_override", "\n"));
    log::info("unbound a GPU from VFIO", {{"address", gpu.address}, {"driver", gpu.driver}});
  }
  return {};
}

}  // namespace gpuop::driver
