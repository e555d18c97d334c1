#include "cdigen/generate.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace gpuop::cdigen {

namespace {

constexpr std::string_view kControlNodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                              "/dev/nvidia-modeset"};

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::ranges::find(list, item) != list.end();
}

std::string under(const std::string& root, const std::string& inner) {
  if (root.empty() || root == "/") return inner;
  return (root.ends_with('/') ? root.substr(0, root.size() - 1) : root) + inner;
}

const std::string& dev_root(const Options& options) {
  return options.dev_root.empty() ? options.driver_root : options.dev_root;
}

// --- hooks ---

bool hook_wanted(std::string_view name, const Options& options) {
  if (contains(options.enabled_hooks, name)) return true;
  if (contains(options.disabled_hooks, "all") || contains(options.disabled_hooks, name)) return false;
  return name != "chmod";  // only on request
}

void add_hook(cdi::Edits& edits, const Options& options, std::string_view name,
              const std::vector<std::string>& args) {
  if (!hook_wanted(name, options)) return;
  std::string base = options.hook_path.substr(options.hook_path.rfind('/') + 1);
  cdi::Hook hook{"createContainer", options.hook_path, {base}, {"NVIDIA_CTK_DEBUG=false"}, std::nullopt};
  if (base == "nvidia-ctk") hook.args.emplace_back("hook");
  hook.args.emplace_back(name);
  hook.args.insert(hook.args.end(), args.begin(), args.end());
  edits.hooks.push_back(std::move(hook));
}

std::vector<std::string> flagged(std::string_view flag, const std::vector<std::string>& values) {
  std::vector<std::string> args;
  for (const auto& value : values) {
    args.emplace_back(flag);
    args.push_back(value);
  }
  return args;
}

// --- mounts and links ---

void add_mount(cdi::Edits& edits, const Options& options, const std::string& host,
               const std::string& container, bool ipc = false) {
  cdi::Mount mount{under(options.driver_root, host), container, {}, {}};
  if (ipc) {
    mount.options = {"nosuid", "nodev", "rbind", "rprivate", "noexec"};
  } else {
    mount.options = {"ro", "nosuid", "nodev", "rbind", "rprivate"};
  }
  edits.mounts.push_back(std::move(mount));
}

// "lib?*.so*" whose text after the last ".so" is empty or begins with a dot.
bool is_library(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  auto so = name.rfind(".so");
  if (!name.starts_with("lib") || so == std::string_view::npos || so < 4) return false;
  return so + 3 == name.size() || name[so + 3] == '.';
}

std::vector<std::string> library_folders(const cdi::Edits& edits) {
  std::vector<std::string> folders;
  for (const auto& mount : edits.mounts) {
    if (!is_library(mount.container_path)) continue;
    std::string dir = mount.container_path.substr(0, mount.container_path.rfind('/'));
    if (dir.empty()) dir = "/";
    if (!contains(folders, dir)) folders.push_back(dir);
  }
  return folders;
}

void add_link(std::vector<std::string>& links, const std::string& target, const std::string& link) {
  std::string spec = target + "::" + link;
  if (!contains(links, spec)) links.push_back(std::move(spec));
}

// "libx.so.580.95.05", not "libx.so.4": names of the former kind alone have links to them (§2.6).
bool has_long_version(std::string_view file) {
  auto so = file.find(".so.");
  if (so == std::string_view::npos) return false;
  auto parts = split(file.substr(so + 4), '.');
  return parts.size() >= 2 && std::ranges::all_of(parts, [](const std::string& part) {
           return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
         });
}

void add_library_links(const Library& library, std::vector<std::string>& links) {
  auto slash = library.path.rfind('/');
  std::string dir = library.path.substr(0, slash);
  std::string file = library.path.substr(slash + 1);
  if (file.starts_with("libcuda.so.")) add_link(links, "libcuda.so.1", dir + "/libcuda.so");
  if (file.starts_with("libGLX_nvidia.so.")) add_link(links, file, dir + "/libGLX_indirect.so.0");
  if (file.starts_with("libnvidia-opticalflow.so.")) {
    add_link(links, "libnvidia-opticalflow.so.1", dir + "/libnvidia-opticalflow.so");
  }
  if (!library.readable || !has_long_version(file)) return;
  std::string soname = library.soname.empty() ? file : library.soname;
  if (library.has_soname_link && soname != file) add_link(links, file, dir + "/" + soname);
  if (library.has_plain_link) add_link(links, soname, dir + "/" + file.substr(0, file.find(".so") + 3));
}

// --- device nodes ---

std::optional<cdi::DeviceNode> node_edit(const Facts& facts, const Options& options,
                                         const std::string& path) {
  auto it = facts.devices.nodes.find(path);
  if (it == facts.devices.nodes.end()) return std::nullopt;
  const Node& node = it->second;
  cdi::DeviceNode edit{
      path, under(dev_root(options), path), "", node.major, node.minor, node.mode, "rwm", std::nullopt, {}};
  if (edit.host_path == path) edit.host_path.clear();
  if (node.gid != 0) edit.gid = node.gid;
  return edit;
}

void add_node(cdi::Edits& edits, const Facts& facts, const Options& options, const std::string& path) {
  auto node = node_edit(facts, options, path);
  if (!node) return;
  bool everybody = (*node->file_mode & 06) == 06;
  if (node->gid && !everybody && !contains(options.features, "no-additional-gids-for-device-nodes") &&
      std::ranges::find(edits.additional_gids, *node->gid) == edits.additional_gids.end()) {
    edits.additional_gids.push_back(*node->gid);
  }
  edits.device_nodes.push_back(std::move(*node));
}

void add_drm(cdi::Edits& edits, const Facts& facts, const Options& options, const std::string& bus_id) {
  auto it = facts.devices.drm.find(bus_id);
  if (it == facts.devices.drm.end()) return;
  std::vector<std::string> links;
  for (const auto& name : it->second) add_node(edits, facts, options, "/dev/dri/" + name);
  for (std::string_view suffix : {"-card", "-render"}) {
    std::string path = "/dev/dri/by-path/pci-" + bus_id + std::string(suffix);
    auto link = facts.devices.links.find(path);
    if (link == facts.devices.links.end()) continue;
    std::string name = link->second.substr(link->second.rfind('/') + 1);
    if (contains(it->second, name)) add_link(links, link->second, path);
  }
  if (!links.empty()) add_hook(edits, options, "create-symlinks", flagged("--link", links));
}

cdi::Edits gpu_edits(const Facts& facts, const Options& options, const hardware::Gpu& gpu) {
  cdi::Edits edits;
  add_node(edits, facts, options, "/dev/nvidia" + std::to_string(gpu.minor));
  add_drm(edits, facts, options, gpu.bus_id);
  return edits;
}

cdi::Edits mig_edits(const Facts& facts, const Options& options, const hardware::Gpu& gpu,
                     const hardware::MigDevice& mig) {
  cdi::Edits edits;
  add_node(edits, facts, options, "/dev/nvidia" + std::to_string(gpu.minor));
  const auto& minors = facts.devices.mig_minors;
  for (auto minor : {minors.gpu_instance(gpu.minor, mig.gpu_instance_id),
                     minors.compute_instance(gpu.minor, mig.gpu_instance_id, mig.compute_instance_id)}) {
    if (minor) add_node(edits, facts, options, "/dev/nvidia-caps/nvidia-cap" + std::to_string(*minor));
  }
  if (mig.profile.find("gfx") != std::string::npos) add_drm(edits, facts, options, gpu.bus_id);
  return edits;
}

// --- which devices, and their names ---

struct Chosen {
  const hardware::Gpu* gpu;
  const hardware::MigDevice* mig;  // nullptr: the whole GPU
};

std::vector<std::string> names_of(const Chosen& device, const Options& options) {
  std::vector<std::string> names;
  std::string index = std::to_string(device.gpu->index);
  std::string full = device.mig == nullptr ? index : index + ":" + std::to_string(device.mig->index);
  for (const auto& strategy : options.strategies) {
    if (strategy == "index") names.push_back(full);
    if (strategy == "type-index") names.push_back((device.mig == nullptr ? "gpu" : "mig") + full);
    if (strategy == "uuid") names.push_back(device.mig == nullptr ? device.gpu->uuid : device.mig->uuid);
  }
  return names;
}

std::vector<Chosen> every_device(const hardware::Inventory& inventory) {
  std::vector<Chosen> devices;
  for (const auto& gpu : inventory.gpus) {
    if (!gpu.mig_mode.current) devices.push_back({&gpu, nullptr});
  }
  for (const auto& gpu : inventory.gpus) {
    for (const auto& mig : gpu.mig_devices) devices.push_back({&gpu, &mig});
  }
  return devices;
}

std::string why_no_device(const hardware::Inventory& inventory) {
  if (!awaits_mig_instances(inventory)) return "invalid spec, no devices: there is no GPU";
  std::vector<std::string> gpus;
  gpus.reserve(inventory.gpus.size());
  for (const auto& gpu : inventory.gpus) gpus.push_back(std::to_string(gpu.index));
  return "invalid spec, no devices: MIG is on and no instance has been made on GPU " + join(gpus, ", ");
}

const hardware::Gpu* gpu_by_index(const hardware::Inventory& inventory, std::int64_t index) {
  for (const auto& gpu : inventory.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

Result<Chosen> choose(const hardware::Inventory& inventory, const std::string& id) {
  auto unknown = [&](std::string_view why) {
    return fail(Code::kNotFound, "find device '" + id + "': " + std::string(why));
  };
  if (id.starts_with("GPU-")) {
    const auto* gpu = inventory.by_uuid(id);
    if (gpu == nullptr) return unknown("no GPU has this UUID");
    return Chosen{gpu, nullptr};
  }
  if (id.starts_with("MIG-GPU-")) {
    auto parts = split(std::string_view(id).substr(4), '/');
    const auto* gpu = inventory.by_uuid(parts[0]);
    for (std::size_t i = 0; gpu != nullptr && parts.size() == 3 && i < gpu->mig_devices.size(); ++i) {
      const auto& mig = gpu->mig_devices[i];
      if (std::to_string(mig.gpu_instance_id) == parts[1] &&
          std::to_string(mig.compute_instance_id) == parts[2]) {
        return Chosen{gpu, &mig};
      }
    }
    return unknown("no MIG device has this name");
  }
  if (id.starts_with("MIG-")) {
    auto [gpu, mig] = inventory.mig_by_uuid(id);
    if (mig == nullptr) return unknown("no MIG device has this UUID");
    return Chosen{gpu, mig};
  }
  auto colon = id.find(':');
  auto first = parse_int(std::string_view(id).substr(0, colon));
  if (!first) return fail(Code::kInvalid, "identifier is not a valid UUID or index: \"" + id + "\"");
  const auto* gpu = gpu_by_index(inventory, *first);
  if (gpu == nullptr) {
    return unknown("failed to get device handle from index: there are " +
                   std::to_string(inventory.gpus.size()) + " GPUs");
  }
  if (colon == std::string::npos) return Chosen{gpu, nullptr};
  auto second = parse_int(std::string_view(id).substr(colon + 1));
  if (!second) return fail(Code::kInvalid, "identifier is not a valid UUID or index: \"" + id + "\"");
  for (const auto& mig : gpu->mig_devices) {
    if (mig.index == *second) return Chosen{gpu, &mig};
  }
  return unknown("GPU " + std::to_string(*first) + " has no such MIG device");
}

Result<std::vector<cdi::Device>> gpu_devices(const Facts& facts, const Options& options) {
  std::vector<Chosen> chosen;
  for (const auto& id : options.device_ids) {
    if (id == "all") {
      for (auto device : every_device(facts.inventory)) chosen.push_back(device);
    } else if (id != "none") {
      chosen.push_back(TRY(choose(facts.inventory, id)));
    }
  }
  std::vector<cdi::Device> devices;
  for (const auto& device : chosen) {
    auto edits = device.mig == nullptr ? gpu_edits(facts, options, *device.gpu)
                                       : mig_edits(facts, options, *device.gpu, *device.mig);
    for (const auto& name : names_of(device, options)) {
      if (std::ranges::any_of(devices, [&](const auto& old) { return old.name == name; })) {
        return fail(Code::kInvalid, "invalid spec, multiple device \"" + name + "\"");
      }
      devices.push_back({name, {}, edits});
    }
  }
  return devices;
}

// --- modes ---

void add_graphics(cdi::Edits& edits, const DriverFiles& driver, const Options& options) {
  std::vector<std::string> links;
  for (const auto& library : driver.graphics_libraries) {
    add_mount(edits, options, library.path, library.path);
    add_library_links(library, links);
    auto slash = library.path.rfind('/');
    std::string file = library.path.substr(slash + 1);
    if (file.starts_with("libnvidia-vulkan-producer.so.")) {
      add_link(links, file, library.path.substr(0, slash) + "/libnvidia-vulkan-producer.so");
    }
  }
  if (driver.allocator_dir) {
    add_link(links, "../libnvidia-allocator.so.1", *driver.allocator_dir + "/gbm/nvidia-drm_gbm.so");
  }
  for (const auto& path : driver.xorg) {
    add_mount(edits, options, path, path);
    auto slash = path.rfind('/');
    std::string file = path.substr(slash + 1);
    if (file.starts_with("libglxserver_nvidia.so."))
      add_link(links, file, path.substr(0, slash) + "/libglxserver_nvidia.so");
  }
  for (const auto& config : driver.configs) add_mount(edits, options, config.host, config.container);
  for (const auto& path : driver.graphics_binaries) add_mount(edits, options, path, path);
  if (!links.empty()) add_hook(edits, options, "create-symlinks", flagged("--link", links));
}

void add_driver(cdi::Edits& edits, const DriverFiles& driver, const Options& options) {
  std::vector<std::string> links;
  for (const auto& library : driver.libraries) {
    add_mount(edits, options, library.path, library.path);
    add_library_links(library, links);
  }
  if (contains(options.features, "enable-compat32")) {
    for (const auto& library : driver.compat32) add_mount(edits, options, library.path, library.path);
  }
  for (const auto& path : driver.binaries) add_mount(edits, options, path, path);
  for (const auto& path : driver.firmware) add_mount(edits, options, path, path);
  if (!contains(options.features, "disable-ipc-discoverer")) {
    for (const auto& path : driver.ipc) add_mount(edits, options, path, path, true);
  }
  if (!links.empty()) add_hook(edits, options, "create-symlinks", flagged("--link", links));
  add_hook(edits, options, "enable-cuda-compat", {"--host-driver-version=" + driver.version});
  auto folders = library_folders(edits);
  if (folders.empty()) return;
  std::vector<std::string> args;
  if (!options.ldconfig_path.empty()) args = {"--ldconfig-path", options.ldconfig_path};
  for (auto& arg : flagged("--folder", folders)) args.push_back(std::move(arg));
  add_hook(edits, options, "update-ldcache", args);
}

void add_common_env(cdi::Edits& edits, const DriverFiles* driver) {
  edits.env.emplace_back("NVIDIA_VISIBLE_DEVICES=void");
  if (driver == nullptr) return;
  std::string dirs;
  for (const auto& dir : driver->library_dirs) dirs += (dirs.empty() ? "" : ":") + dir;
  edits.env.push_back("NVIDIA_CTK_LIBCUDA_DIR=" + dirs);
}

void add_all(cdi::Spec& spec) {
  if (std::ranges::any_of(spec.devices, [](const auto& device) { return device.name == "all"; })) return;
  if (spec.devices.empty()) return;
  cdi::Device all{"all", {}, {}};
  for (const auto& device : spec.devices) all.edits.append(device.edits);
  spec.devices.push_back(std::move(all));
}

Result<> nvml_mode(cdi::Spec& spec, const Facts& facts, const Options& options) {
  bool none = options.device_ids == std::vector<std::string>{"none"};
  if (none) {
    cdi::Device device{"none", {}, {}};
    device.edits.env.emplace_back("NVCT_EMPTY_DEVICE=");
    spec.devices.push_back(std::move(device));
  } else {
    spec.devices = TRY(gpu_devices(facts, options));
    if (spec.devices.empty()) return fail(Code::kInvalid, why_no_device(facts.inventory));
  }
  add_common_env(spec.edits, &facts.driver);
  for (auto path : kControlNodes) add_node(spec.edits, facts, options, std::string(path));
  add_graphics(spec.edits, facts.driver, options);
  add_driver(spec.edits, facts.driver, options);
  add_hook(spec.edits, options, "chmod",
           {"--mode", "755", "--path", "/dev/dri", "--path", "/dev/nvidia-caps"});
  add_hook(spec.edits, options, "disable-device-node-modification", {});
  add_hook(spec.edits, options, "update-application-profile", {});
  return {};
}

Result<> management_mode(cdi::Spec& spec, const Facts& facts, const Options& options) {
  cdi::Device all{"all", {}, {}};
  for (const auto& [path, node] : facts.devices.nodes) {
    std::string name = path.substr(path.rfind('/') + 1);
    bool ours = path.starts_with("/dev/nvidia");
    bool other = name.starts_with("nvidia-fs") || name.starts_with("nvidia-nvswitch") ||
                 name.starts_with("nvidia-nvlink");
    if (ours && !other) add_node(all.edits, facts, options, path);
  }
  if (all.edits.device_nodes.empty()) return fail(Code::kNotFound, "no NVIDIA device nodes found");
  spec.devices.push_back(std::move(all));
  add_common_env(spec.edits, &facts.driver);
  add_driver(spec.edits, facts.driver, options);
  return {};
}

Result<> nodes_mode(cdi::Spec& spec, const Facts& facts, const Options& options) {
  auto wanted = [&](const std::string& path) {
    if (options.mode == "gds") return path.starts_with("/dev/nvidia-fs");
    if (options.mode == "gdrcopy") return path == "/dev/gdrdrv";
    if (options.mode == "mofed")
      return path.starts_with("/dev/infiniband/uverbs") || path == "/dev/infiniband/rdma_cm";
    return path.starts_with("/dev/nvidia-nvswitch");
  };
  cdi::Device all{"all", {}, {}};
  for (const auto& [path, node] : facts.devices.nodes) {
    if (wanted(path)) add_node(all.edits, facts, options, path);
  }
  if (options.mode == "gds" && !all.edits.device_nodes.empty()) {
    add_mount(all.edits, options, "/run/udev", "/run/udev");
    add_mount(all.edits, options, "/etc/cufile.json", "/etc/cufile.json");
  }
  spec.devices.push_back(std::move(all));
  add_common_env(spec.edits, nullptr);
  return {};
}

constexpr std::string_view kChannelDir = "/dev/nvidia-caps-imex-channels/channel";

Result<> imex_mode(cdi::Spec& spec, const Facts& facts, const Options& options) {
  std::vector<std::int64_t> channels;
  for (const auto& id : options.device_ids) {
    if (id == "none") return fail(Code::kInvalid, "invalid channel ID none");
    if (id == "all") {
      for (const auto& [path, node] : facts.devices.nodes) {
        if (!path.starts_with(kChannelDir)) continue;
        if (auto number = parse_int(path.substr(kChannelDir.size()))) channels.push_back(*number);
      }
      continue;
    }
    auto number = parse_int(id.starts_with("channel") ? id.substr(7) : id);
    if (!number) return fail(Code::kInvalid, "invalid channel ID " + id);
    if (*number < 0 || *number > 1048575) {
      return fail(Code::kInvalid, "invalid channel ID " + id + ": must be in the range 0 to 1048575");
    }
    channels.push_back(*number);
  }
  std::ranges::sort(channels);
  channels.erase(std::ranges::unique(channels).begin(), channels.end());
  for (auto channel : channels) {
    std::string path = std::string(kChannelDir) + std::to_string(channel);
    if (!facts.devices.nodes.contains(path)) {
      return fail(Code::kNotFound, "find IMEX channel '" + path + "': no such device node");
    }
    cdi::Device device{std::to_string(channel), {}, {}};
    cdi::DeviceNode node{path, under(dev_root(options), path), "", 0, 0, {}, "", {}, {}};
    if (node.host_path == path) node.host_path.clear();
    device.edits.device_nodes.push_back(std::move(node));
    spec.devices.push_back(std::move(device));
  }
  add_common_env(spec.edits, nullptr);
  return {};
}

}  // namespace

bool awaits_mig_instances(const hardware::Inventory& inventory) {
  return !inventory.gpus.empty() && std::ranges::all_of(inventory.gpus, [](const hardware::Gpu& gpu) {
    return gpu.mig_mode.current && gpu.mig_devices.empty();
  });
}

std::string default_kind(std::string_view mode) {
  if (mode == "management") return "management.nvidia.com/gpu";
  if (mode == "imex") return "nvidia.com/imex-channel";
  if (mode == "gds" || mode == "gdrcopy" || mode == "mofed" || mode == "nvswitch")
    return "nvidia.com/" + std::string(mode);
  return "nvidia.com/gpu";
}

cdi::Edits driver_edits(const DriverFiles& driver, const Options& options) {
  cdi::Edits edits;
  add_driver(edits, driver, options);
  return edits;
}

Result<cdi::Spec> generate(const Facts& facts, const Options& options) {
  if (contains(options.enabled_hooks, "all"))
    return fail(Code::kInvalid, "enabling all hooks is not supported");
  std::vector<std::string> modes(std::begin(kModes), std::end(kModes));
  if (!contains(modes, options.mode)) {
    return fail(Code::kInvalid,
                "invalid discovery mode: " + options.mode + did_you_mean(options.mode, modes));
  }
  cdi::Spec spec;
  std::string fallback = default_kind(options.mode);
  std::string device_class =
      options.device_class.empty() ? fallback.substr(fallback.find('/') + 1) : options.device_class;
  spec.kind = options.vendor + "/" + device_class;
  if (options.mode == "nvml") {
    TRY(nvml_mode(spec, facts, options));
  } else if (options.mode == "management") {
    TRY(management_mode(spec, facts, options));
  } else if (options.mode == "imex") {
    TRY(imex_mode(spec, facts, options));
  } else {
    TRY(nodes_mode(spec, facts, options));
  }
  simplify(spec);
  bool none = options.device_ids == std::vector<std::string>{"none"};
  if (options.all_device && !none) {
    add_all(spec);
    simplify(spec);
  }
  spec.version = cdi::minimum_version(spec);
  TRY(cdi::validate(spec));
  return spec;
}

}  // namespace gpuop::cdigen
