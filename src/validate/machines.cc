#include "validate/machines.h"

#include <algorithm>
#include <array>

#include "base/files.h"
#include "base/text.h"
#include "hardware/pci.h"
#include "hardware/vfio.h"
#include "kube/object.h"

namespace gpuop::validate {

namespace {

constexpr std::array<std::string_view, 3> kWorkloads = {"container", kPassthrough, kVgpu};

bool is_workload(std::string_view text) {
  return std::ranges::find(kWorkloads, text) != kWorkloads.end();
}

// The boards; an error when there is none.
Result<std::vector<hardware::PciFunction>> physical_gpus(const std::string& doing) {
  auto gpus = TRY(hardware::scan_nvidia_gpus());
  std::erase_if(gpus, [](const auto& gpu) { return gpu.is_virtual_function; });
  if (gpus.empty()) return fail(Code::kNotFound, doing + ": no NVIDIA GPU found under /sys/bus/pci/devices");
  return gpus;
}

// Several, in one sentence, however many there are.
std::string some_of(const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 4;
  if (items.size() <= kShown) return join(items, "; ");
  const std::vector<std::string> shown(items.begin(), items.begin() + kShown);
  return join(shown, "; ") + "; and " + std::to_string(items.size() - kShown) + " more";
}

std::string not_bound(const hardware::PciFunction& gpu, const std::string& wanted) {
  std::string text = "GPU '" + gpu.address + "' ";
  text += gpu.driver.empty() ? "has no driver" : "has the driver '" + gpu.driver + "'";
  text += " instead of '" + wanted + "'";
  if (gpu.iommu_group) return text + " (IOMMU group " + std::to_string(*gpu.iommu_group) + ")";
  return text + " (in no IOMMU group: the IOMMU is off in the firmware or on the kernel's command line)";
}

// The names in a folder of sysfs; none where the folder is not there.
Result<std::vector<std::string>> names_in(std::string_view folder) {
  auto names = list_dir(kernel_path(folder));
  if (!names && names.error().code() == Code::kNotFound) return std::vector<std::string>();
  return names;
}

// A folder of sysfs by way of its link: what is above it is the parent device.
bool parent_is_nvidia(const fs::path& mediated) {
  const auto vendor = read_file(mediated / ".." / "vendor");
  return vendor && parse_hex(trim(*vendor)).value_or(0) == hardware::kNvidiaVendor;
}

bool holds_vgpu(const hardware::PciFunction& function) {
  const auto type =
      read_file(kernel_path("/sys/bus/pci/devices") / function.address / "nvidia/current_vgpu_type");
  return type && parse_int(trim(*type)).value_or(0) > 0;
}

}  // namespace

std::string workload_of(const Json& node, std::string_view default_workload) {
  const auto label = kube::label(node, "nvidia.com/gpu.workload.config");
  if (is_workload(label)) return std::string(label);
  return std::string(is_workload(default_workload) ? default_workload : kPassthrough);
}

Result<> check_vfio(const fs::path& host) {
  const std::string doing = "check that VFIO has the GPUs";
  const auto gpus = TRY(physical_gpus(doing));
  const std::string aliases = TRY_IN(hardware::read_module_aliases(host), doing);
  std::vector<std::string> wrong;
  for (const auto& gpu : gpus) {
    const std::string wanted = TRY_IN(hardware::best_vfio_driver_of(gpu.address, aliases), doing);
    if (!hardware::same_driver(gpu.driver, wanted)) wrong.push_back(not_bound(gpu, wanted));
  }
  if (wrong.empty()) return {};
  return fail(Code::kUnavailable, doing + ": " + some_of(wrong));
}

Result<bool> find_vgpu_manager(const DriverPaths& paths, const RunSmi& run) {
  if (TRY(find_host_driver(paths, run))) return true;
  TRY(check_driver_mount(paths));
  const std::string doing = "look for the vGPU manager's driver";
  const Root root = TRY_IN(Root::open(paths.install_dir_ctr), doing);
  const auto program = hardware::find_program(root, "nvidia-smi");
  if (!program)
    return fail(Code::kNotFound, doing + ": no nvidia-smi beneath '" + paths.install_dir_ctr.string() +
                                     "', nor one on the host; its container has not installed it yet");
  Command command{{program->string()}, {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}};
  command.chroot = paths.install_dir_ctr;
  TRY(check_smi(command, run, "the vGPU manager container"));
  return false;
}

Result<> check_vgpu_parents() {
  const std::string doing = "check that the GPUs can be shared";
  const auto gpus = TRY(physical_gpus(doing));
  if (std::ranges::none_of(gpus, [](const auto& gpu) { return gpu.sriov_num_vfs.value_or(0) > 0; })) {
    const auto parents = TRY_IN(names_in("/sys/class/mdev_bus"), doing);
    if (!parents.empty()) return {};
    return fail(Code::kNotFound, doing +
                                     ": no GPU has virtual functions, and /sys/class/mdev_bus has no parent "
                                     "of mediated devices; the vGPU manager enables them");
  }
  std::vector<std::string> wrong;
  for (const auto& gpu : gpus) {
    const unsigned all = gpu.sriov_total_vfs.value_or(0);
    const unsigned enabled = gpu.sriov_num_vfs.value_or(0);
    if (enabled != all)
      wrong.push_back("GPU '" + gpu.address + "' has " + std::to_string(enabled) + " of its " +
                      std::to_string(all) + " virtual functions enabled");
  }
  if (wrong.empty()) return {};
  return fail(Code::kNotFound, doing + ": " + some_of(wrong));
}

Result<> check_vgpus() {
  const std::string doing = "check that there are vGPUs";
  for (const auto& name : TRY_IN(names_in("/sys/bus/mdev/devices"), doing))
    if (parent_is_nvidia(kernel_path("/sys/bus/mdev/devices") / name)) return {};
  const auto functions = TRY_IN(hardware::scan_nvidia_gpus(), doing);
  if (std::ranges::any_of(functions, holds_vgpu)) return {};
  return fail(Code::kNotFound,
              doing +
                  ": no mediated device of NVIDIA under /sys/bus/mdev/devices, and no virtual function "
                  "with a vGPU type; the vGPU device manager makes them by the node's label "
                  "nvidia.com/vgpu.config");
}

}  // namespace gpuop::validate
