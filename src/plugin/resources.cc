#include "plugin/resources.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/wildcard.h"

namespace gpuop::plugin {
namespace {

using sharing::ResourcePattern;
using sharing::Settings;

constexpr std::string_view kGpuResource = "nvidia.com/gpu";
constexpr std::size_t kMaxDeviceId = 63;

std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::string mig_resource(std::string_view profile) {
  return "nvidia.com/mig-" + replace_all(std::string(profile), "+", ".");
}

class Planner {
 public:
  Planner(const Settings& settings, const Facts& facts) : settings_(settings), facts_(facts) {}

  Result<Plan> plan() {
    TRY(add_devices());
    TRY(check_mps());
    replicate();
    TRY(imex());
    for (auto& [name, devices] : devices_) {
      if (devices.empty()) continue;
      std::ranges::sort(devices, [](const Device& a, const Device& b) {
        return std::tie(a.gpu_index, a.mig_index, a.replica) < std::tie(b.gpu_index, b.mig_index, b.replica);
      });
      check_lengths(devices);
      plan_.resources.push_back({name, std::move(devices)});
    }
    plan_.control_nodes = facts_.control_nodes;
    for (const auto& row : facts_.links) {
      auto& scores = plan_.scores.emplace_back();
      for (const Link& link : row) scores.push_back(pair_score(link));
    }
    return std::move(plan_);
  }

 private:
  Result<> add_devices() {
    switch (facts_.platform) {
      case Platform::kWsl: {
        Device all;
        all.id = all.uuid = all.index = "all";
        all.paths = {"/dev/dxg"};
        devices_[std::string(kGpuResource)].push_back(std::move(all));
        return {};
      }
      case Platform::kTegra: {
        Device tegra;
        tegra.id = tegra.uuid = "tegra";
        tegra.index = "0";
        devices_[std::string(kGpuResource)].push_back(std::move(tegra));
        return {};
      }
      case Platform::kNone:
      case Platform::kNvml:
        break;
    }
    if (!facts_.init_error.empty()) return no_nvml();
    for (const std::string& warning : facts_.inventory.warnings) plan_.warnings.push_back(warning);
    if (settings_.mig_strategy == "single") return add_single();
    if (settings_.mig_strategy == "mixed") return add_mixed();
    for (std::size_t i = 0; i < facts_.inventory.gpus.size(); ++i) TRY(add_gpu(i));
    return {};
  }

  Result<> no_nvml() {
    std::string doing =
        settings_.mig_strategy == "mixed" ? "failed to initialize NVML: " : "nvml init failed: ";
    if (settings_.fail_on_init_error) {
      return fail(
          Code::kUnavailable,
          doing + facts_.init_error +
              "; if this is not a GPU node, set up a toleration or nodeSelector so that the plugin does "
              "not run here");
    }
    plan_.warnings.push_back(doing + facts_.init_error + "; running without devices");
    return {};
  }

  Result<> add_single() {
    bool full = false;
    std::set<std::string> types;
    for (const hardware::Gpu& gpu : facts_.inventory.gpus) {
      if (!gpu.mig_mode.current) {
        full = true;
        continue;
      }
      if (gpu.mig_devices.empty()) {
        return fail(Code::kInvalid,
                    "invalid MIG configuration: at least one device with migEnabled=true was not configured "
                    "correctly: device " +
                        std::to_string(gpu.index) + " has no MIG devices configured");
      }
    }
    for (const hardware::Gpu& gpu : facts_.inventory.gpus) {
      for (const hardware::MigDevice& mig : gpu.mig_devices) types.insert(type_of(mig));
    }
    if (types.size() > 1) {
      return fail(Code::kInvalid, "invalid MIG configuration: more than one MIG device type present on node");
    }
    if (full && !types.empty()) {
      return fail(Code::kInvalid,
                  "all devices on the node must be configured with the same migEnabled value");
    }
    for (std::size_t i = 0; i < facts_.inventory.gpus.size(); ++i) {
      const hardware::Gpu& gpu = facts_.inventory.gpus[i];
      if (!gpu.mig_mode.current) TRY(add_gpu(i));
      for (const hardware::MigDevice& mig : gpu.mig_devices) {
        auto name = match(settings_.mig_patterns, mig.profile, std::string(kGpuResource));
        if (!name) return no_match("MIG profile", mig.profile);
        TRY(add_mig(i, mig, *name));
      }
    }
    return {};
  }

  static std::string type_of(const hardware::MigDevice& mig) {
    const auto& a = mig.attributes;
    std::string text;
    for (std::uint64_t value :
         {std::uint64_t{a.multiprocessor_count}, std::uint64_t{a.shared_copy_engine_count},
          std::uint64_t{a.shared_decoder_count}, std::uint64_t{a.shared_encoder_count},
          std::uint64_t{a.shared_jpeg_count}, std::uint64_t{a.shared_ofa_count},
          std::uint64_t{a.gpu_instance_slice_count}, std::uint64_t{a.compute_instance_slice_count},
          a.memory_size_mib}) {
      text += std::to_string(value) + " ";
    }
    return text;
  }

  Result<> add_mixed() {
    for (std::size_t i = 0; i < facts_.inventory.gpus.size(); ++i) {
      const hardware::Gpu& gpu = facts_.inventory.gpus[i];
      if (!gpu.mig_mode.current) {
        TRY(add_gpu(i));
        continue;
      }
      if (gpu.mig_devices.empty()) {
        plan_.warnings.push_back("device " + std::to_string(gpu.index) +
                                 " has MIG enabled and no MIG devices: it contributes nothing");
      }
      for (const hardware::MigDevice& mig : gpu.mig_devices) {
        // A subdivided compute instance ("1c.2g.10gb") has no resource of its own.
        bool divided = mig.profile.empty() || mig.profile.find("c.") != std::string::npos;
        auto name =
            match(settings_.mig_patterns, mig.profile, divided ? std::string() : mig_resource(mig.profile));
        if (name && name->empty()) name.reset();
        if (!name) {
          plan_.warnings.push_back("MIG device " + quote(mig.uuid) + ": MIG profile " + quote(mig.profile) +
                                   " does not match any resource patterns: skipped");
          continue;
        }
        TRY(add_mig(i, mig, *name));
      }
    }
    return {};
  }

  // The name that the first matching pattern gives; without patterns of the user everything is `standard`.
  static std::optional<std::string> match(const std::vector<ResourcePattern>& patterns, std::string_view text,
                                          std::string standard) {
    if (patterns.empty()) return standard;
    for (const ResourcePattern& pattern : patterns) {
      if (matches_pattern(pattern.pattern, text)) return pattern.name;
    }
    return std::nullopt;
  }
  static std::unexpected<Error> no_match(std::string_view what, std::string_view text) {
    return fail(Code::kInvalid,
                std::string(what) + " " + quote(text) + " does not match any resource patterns");
  }

  Result<> add_gpu(std::size_t i) {
    const hardware::Gpu& gpu = facts_.inventory.gpus[i];
    auto name = match(settings_.gpu_patterns, gpu.name, std::string(kGpuResource));
    if (!name) return no_match("GPU name", gpu.name);
    Device device = of_gpu(i);
    device.id = device.uuid = gpu.uuid;
    device.index = std::to_string(gpu.index);
    devices_[*name].push_back(std::move(device));
    return {};
  }

  Result<> add_mig(std::size_t i, const hardware::MigDevice& mig, const std::string& name) {
    const hardware::Gpu& gpu = facts_.inventory.gpus[i];
    Device device = of_gpu(i);
    device.id = device.uuid = mig.uuid;
    device.index = std::to_string(gpu.index) + ":" + std::to_string(mig.index);
    device.mig_index = static_cast<int>(mig.index);
    device.gpu_instance = mig.gpu_instance_id;
    device.compute_instance = mig.compute_instance_id;
    auto gi = facts_.mig_minors.gpu_instance(gpu.minor, mig.gpu_instance_id);
    auto ci = facts_.mig_minors.compute_instance(gpu.minor, mig.gpu_instance_id, mig.compute_instance_id);
    if (!gi || !ci) {
      return fail(Code::kNotFound, "MIG device " + quote(mig.uuid) + ": no capability of its " +
                                       (gi ? "compute" : "GPU") +
                                       " instance in /proc/driver/nvidia-caps/mig-minors");
    }
    device.paths.push_back("/dev/nvidia-caps/nvidia-cap" + std::to_string(*gi));
    device.paths.push_back("/dev/nvidia-caps/nvidia-cap" + std::to_string(*ci));
    devices_[name].push_back(std::move(device));
    return {};
  }

  Device of_gpu(std::size_t i) const {
    const hardware::Gpu& gpu = facts_.inventory.gpus[i];
    Device device;
    device.gpu_uuid = gpu.uuid;
    device.gpu = static_cast<int>(i);
    device.gpu_index = static_cast<int>(gpu.index);
    device.paths = {"/dev/nvidia" + std::to_string(gpu.minor)};
    if (i < facts_.numa_nodes.size()) device.numa_node = facts_.numa_nodes[i];
    return device;
  }

  Result<> check_mps() const {
    if (sharing::active_strategy(settings_) != sharing::SharingStrategy::kMps) return {};
    for (const auto& [name, devices] : devices_) {
      if (!sharing::find_shared(settings_, name)) continue;
      if (std::ranges::any_of(devices, &Device::mig)) {
        return fail(Code::kUnsupported,
                    "sharing using MPS is not supported for MIG devices: resource " + quote(name));
      }
    }
    return {};
  }

  void replicate() {
    const sharing::ReplicatedResources* sharing = sharing::active_sharing(settings_);
    if (!sharing) return;
    // Entries look at the devices as they were discovered, not at what an earlier entry made of them.
    std::map<std::string, std::vector<Device>> shared;
    for (const sharing::SharedResource& entry : sharing->resources) {
      auto found = devices_.find(entry.name);
      if (found == devices_.end() || found->second.empty()) {
        plan_.warnings.push_back("sharing: resource " + quote(entry.name) + " has no devices on this node");
        continue;
      }
      auto& out = shared[entry.rename.empty() ? entry.name : entry.rename];
      std::vector<Device> rest;
      int taken = 0;
      for (Device& device : found->second) {
        if (!selected(entry.devices, device, taken)) {
          rest.push_back(std::move(device));
          continue;
        }
        ++taken;
        for (int n = 0; n < entry.replicas; ++n) {
          Device copy = device;
          copy.id = device.uuid + "::" + std::to_string(n);
          copy.replica = n;
          out.push_back(std::move(copy));
        }
      }
      found->second = std::move(rest);
    }
    for (auto& [name, devices] : shared) {
      auto& out = devices_[name];
      std::ranges::move(devices, std::back_inserter(out));
    }
  }

  static bool selected(const sharing::DeviceSelection& selection, const Device& device, int taken) {
    if (selection.all) return true;
    if (selection.count > 0) return taken < selection.count;
    return std::ranges::any_of(selection.list, [&](const std::string& reference) {
      return reference == device.index || reference == device.uuid;
    });
  }

  Result<> imex() {
    if (settings_.imex_channel_ids.empty()) return {};
    plan_.imex = facts_.imex_channel0;
    if (plan_.imex) return {};
    const std::string why = "requested IMEX channel channel0 does not exist";
    if (settings_.imex_required) return fail(Code::kNotFound, why);
    plan_.warnings.push_back(why);
    return {};
  }

  void check_lengths(const std::vector<Device>& devices) {
    for (const Device& device : devices) {
      if (device.id.size() <= kMaxDeviceId) continue;
      plan_.warnings.push_back("device ID " + quote(device.id) + " is longer than the kubelet's limit of 63");
      return;
    }
  }

  const Settings& settings_;
  const Facts& facts_;
  std::map<std::string, std::vector<Device>> devices_;
  Plan plan_;
};

}  // namespace

std::string Resource::endpoint() const {
  return "nvidia-" + name.substr(name.find('/') + 1) + ".sock";
}

Result<Plan> plan_resources(const Settings& settings, const Facts& facts) {
  return Planner(settings, facts).plan();
}

int pair_score(const Link& link) {
  int score = 100 * link.nvlinks;
  if (!link.topology) return score;
  switch (*link.topology) {
    case 0:
      return score + 60;  // same board
    case 10:
      return score + 50;  // one switch
    case 20:
      return score + 40;  // several switches
    case 30:
      return score + 30;  // host bridge
    case 40:
      return score + 20;  // same CPU
    case 50:
      return score + 10;  // across CPUs
    default:
      return score;
  }
}

}  // namespace gpuop::plugin
