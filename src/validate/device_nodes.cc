#include "validate/device_nodes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/process.h"
#include "base/text.h"
#include "hardware/pci.h"

namespace gpuop::validate {
namespace {

constexpr unsigned kControlMinor = 255;
constexpr unsigned kModesetMinor = 254;

std::map<std::string, unsigned> parse_majors(std::string_view text) {
  std::map<std::string, unsigned> majors;
  bool character = false;
  for (const auto& line : split(text, '\n')) {
    if (line.starts_with("Character devices")) character = true;
    if (line.starts_with("Block devices")) character = false;
    const auto fields = split_fields(line);
    if (!character || fields.size() != 2) continue;
    if (const auto major = parse_int(fields[0]); major && *major > 0)
      majors[fields[1]] = static_cast<unsigned>(*major);
  }
  return majors;
}

Result<unsigned> major_of(const DeviceFacts& facts, std::string_view name) {
  const auto found = facts.majors.find(std::string(name));
  if (found != facts.majors.end()) return found->second;
  return fail(Code::kNotFound, "find the device number of '" + std::string(name) +
                                   "' in /proc/devices: not there; is the kernel module loaded?");
}

}  // namespace

Result<DeviceFacts> observe_devices() {
  DeviceFacts facts;
  facts.majors = parse_majors(TRY(read_file(kernel_path("/proc/devices"))));
  for (const auto& gpu : TRY(hardware::scan_nvidia_gpus())) {
    if (!gpu.is_virtual_function) ++facts.gpus;
  }
  facts.mig = TRY(hardware::read_mig_minors());
  return facts;
}

Result<DevicePlan> plan_devices(const DeviceFacts& facts) {
  DevicePlan plan;
  if (facts.gpus == 0) return plan;
  // Older drivers register under the second name.
  auto nvidia = major_of(facts, "nvidia");
  if (!nvidia) nvidia = major_of(facts, "nvidia-frontend");
  if (!nvidia) return fail(nvidia.error());
  const unsigned uvm = TRY(major_of(facts, "nvidia-uvm"));
  plan.control = {{"dev/nvidiactl", *nvidia, kControlMinor},
                  {"dev/nvidia-modeset", *nvidia, kModesetMinor},
                  {"dev/nvidia-uvm", uvm, 0},
                  {"dev/nvidia-uvm-tools", uvm, 1}};
  plan.links = plan.control;
  for (unsigned i = 0; i < facts.gpus; ++i)
    plan.links.push_back({"dev/nvidia" + std::to_string(i), *nvidia, i});
  if (facts.mig.minors.empty()) return plan;
  const unsigned caps = TRY(major_of(facts, "nvidia-caps"));
  const auto add = [&](std::optional<unsigned> minor) {
    if (minor) plan.links.push_back({"dev/nvidia-caps/nvidia-cap" + std::to_string(*minor), caps, *minor});
    return minor.has_value();
  };
  add(facts.mig.config());
  add(facts.mig.monitor());
  for (unsigned gpu = 0; gpu < facts.gpus; ++gpu) {
    for (unsigned gi = 0; add(facts.mig.gpu_instance(gpu, gi)); ++gi) {
      for (unsigned ci = 0; add(facts.mig.compute_instance(gpu, gi, ci)); ++ci) {
      }
    }
  }
  return plan;
}

Result<> make_devices(const DevicePlan& plan, const fs::path& dev_root_ctr, const std::string& dev_root_host,
                      const fs::path& dev_char) {
  const Root root = TRY_IN(Root::open(dev_root_ctr), "make device nodes");
  for (const auto& node : plan.control) {
    const fs::path path(node.path);
    if (root.exists(path)) continue;
    Fd folder = TRY_IN(root.open_at(path.parent_path(), O_PATH | O_DIRECTORY),
                       "make device node '/" + node.path + "'");
    // The umask would take bits away; the mode is set on the node itself.
    if (::mknodat(folder.get(), path.filename().c_str(), S_IFCHR | 0666, makedev(node.major, node.minor)) !=
            0 &&
        errno != EEXIST) {
      return fail(errno_error("make device node '/" + node.path + "' beneath '" + dev_root_ctr.string() + "'",
                              errno));
    }
    if (::fchmodat(folder.get(), path.filename().c_str(), 0666, 0) != 0) {
      return fail(errno_error("open device node '/" + node.path + "' to everybody", errno));
    }
  }
  for (const auto& node : plan.links) {
    const fs::path link = dev_char / (std::to_string(node.major) + ":" + std::to_string(node.minor));
    TRY(make_symlink_atomic(fs::path(dev_root_host.empty() ? "/" : dev_root_host) / node.path, link));
  }
  return {};
}

Result<> check_devices(const DevicePlan& plan, const fs::path& dev_root_ctr) {
  const Root root = TRY(Root::open(dev_root_ctr));
  for (const auto& node : plan.control) {
    if (node.path == "dev/nvidia-modeset") continue;  // only display needs it
    const auto fd = root.open_at(node.path, O_PATH);
    struct stat info{};
    if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISCHR(info.st_mode)) {
      return fail(Code::kNotFound, "check device node '/" + node.path + "' beneath '" +
                                       dev_root_ctr.string() + "': not a character device");
    }
  }
  return {};
}

Result<> load_modules(const fs::path& root) {
  if (file_exists(kernel_path("/sys/module/nvidia/refcnt"))) return {};
  for (const char* module : {"nvidia", "nvidia-uvm", "nvidia-modeset"}) {
    Command command{{"/sbin/modprobe", module}};
    command.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
    if (const std::string kernel = env_or("GPUOP_KERNEL_ROOT"); !kernel.empty()) {
      command.env.push_back("GPUOP_KERNEL_ROOT=" + kernel);
    }
    command.chroot = root;
    const ExitState state = TRY(run_command(command, 60s));
    if (!state.ok()) {
      return fail(Code::kUnavailable, "load kernel module '" + std::string(module) +
                                          "': modprobe ended with code " + std::to_string(state.code) + ": " +
                                          std::string(trim(state.err)));
    }
  }
  return {};
}

}  // namespace gpuop::validate
