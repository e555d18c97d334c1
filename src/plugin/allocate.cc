#include "plugin/allocate.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::plugin {
namespace {

constexpr std::string_view kCdiVendor = "k8s.device-plugin.nvidia.com";
constexpr std::string_view kMountRoot = "/var/run/nvidia-container-devices";
constexpr std::string_view kImexChannel = "/dev/nvidia-caps-imex-channels/channel0";

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

std::string cdi_name(std::string_view cls, std::string_view device) {
  std::string name(kCdiVendor);
  name += '/';
  name += cls;
  name += '=';
  name += device;
  return name;
}

std::vector<std::string> cdi_names(const Offer& offer, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (std::ranges::find(offer.not_in_cdi, name) == offer.not_in_cdi.end())
      out.push_back(cdi_name("gpu", name));
  }
  if (offer.imex) out.push_back(cdi_name("imex-channel", "0"));
  for (const std::string& cls : offer.cdi_classes) out.push_back(cdi_name(cls, "all"));
  return out;
}

void add_cdi(const Offer& offer, const std::vector<std::string>& names, std::string_view unique,
             Allocation& out) {
  std::vector<std::string> qualified = cdi_names(offer, names);
  if (qualified.empty()) return;
  if (offer.settings.has_strategy("cdi-annotations")) {
    out.annotations[offer.settings.cdi_annotation_prefix + "nvidia-device-plugin_" + std::string(unique)] =
        join(qualified, ",");
  }
  if (offer.settings.has_strategy("cdi-cri")) out.cdi_devices = std::move(qualified);
}

void add_mps(const Offer& offer, Allocation& out) {
  if (sharing::active_strategy(offer.settings) != sharing::SharingStrategy::kMps) return;
  const std::string pipe = "/" + offer.resource.name + "/pipe";
  out.envs["CUDA_MPS_PIPE_DIRECTORY"] = "/mps" + pipe;
  out.mounts.push_back({offer.settings.mps_root + pipe, "/mps" + pipe});
  out.mounts.push_back({offer.settings.mps_root + "/shm", "/dev/shm"});
}

void add_volume_mounts(const Offer& offer, const std::vector<std::string>& names, Allocation& out) {
  out.envs["NVIDIA_VISIBLE_DEVICES"] = std::string(kMountRoot);
  auto mount = [&](const std::string& name) {
    out.mounts.push_back({"/dev/null", std::string(kMountRoot) + "/" + name});
  };
  for (const std::string& name : names) mount(name);
  if (offer.imex) mount("imex/0");
}

void add_device_nodes(const Offer& offer, std::span<const Device* const> devices, Allocation& out) {
  bool nvml = std::ranges::all_of(devices, [](const Device* d) { return !d->gpu_uuid.empty(); });
  std::vector<std::string> paths;
  if (nvml) paths = offer.control_nodes;
  for (const Device* device : devices) {
    for (const std::string& path : device->paths) add_once(paths, path);
  }
  if (nvml && offer.imex) add_once(paths, std::string(kImexChannel));
  std::string root = offer.settings.dev_root;
  while (!root.empty() && root.back() == '/') root.pop_back();
  for (const std::string& path : paths) out.devices.push_back({root + path, path, "rw"});
}

}  // namespace

const Device* Offer::find(std::string_view id) const {
  auto found = by_id.find(id);
  return found == by_id.end() ? nullptr : found->second;
}

std::shared_ptr<const Offer> make_offer(Offer parts) {
  auto offer = std::make_shared<Offer>(std::move(parts));
  offer->by_id.clear();
  for (const Device& device : offer->resource.devices) offer->by_id.emplace(device.id, &device);
  return offer;
}

const std::string& device_name(const Offer& offer, const Device& device) {
  return offer.settings.device_id_strategy == "index" ? device.index : device.uuid;
}

Result<Allocation> allocate(const Offer& offer, std::span<const std::string> ids, std::string_view unique) {
  const std::string doing =
      "invalid allocation request for \"" + offer.resource.name + "\": invalid request: ";
  std::vector<const Device*> devices;
  bool annotated = false;
  for (const std::string& id : ids) {
    const Device* device = offer.find(id);
    if (!device) return fail(Code::kInvalid, doing + "unknown device: " + id);
    annotated = annotated || device->annotated();
    devices.push_back(device);
  }
  if (annotated && ids.size() > 1 && sharing::fail_requests_greater_than_one(offer.settings)) {
    return fail(Code::kInvalid, doing + "maximum request size for shared resources is 1; found " +
                                    std::to_string(ids.size()));
  }
  std::vector<std::string> names;
  for (const Device* device : devices) add_once(names, device_name(offer, *device));

  Allocation out;
  if (offer.settings.any_cdi()) add_cdi(offer, names, unique, out);
  add_mps(offer, out);
  if (offer.settings.gdrcopy) out.envs["NVIDIA_GDRCOPY"] = "enabled";
  if (offer.settings.gds) out.envs["NVIDIA_GDS"] = "enabled";
  if (offer.settings.mofed) out.envs["NVIDIA_MOFED"] = "enabled";
  if (offer.settings.all_cdi() || offer.settings.device_list_strategies.empty()) return out;

  if (offer.settings.has_strategy("envvar")) {
    out.envs["NVIDIA_VISIBLE_DEVICES"] = join(names, ",");
    if (offer.imex) out.envs["NVIDIA_IMEX_CHANNELS"] = "0";
  }
  if (offer.settings.has_strategy("volume-mounts")) add_volume_mounts(offer, names, out);
  if (offer.settings.pass_device_specs) add_device_nodes(offer, devices, out);
  return out;
}

}  // namespace gpuop::plugin
