#include "sim/vgpu_tree.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "sim/modules.h"
#include "sim/tree_files.h"

namespace gpuop::sim {

namespace {

constexpr std::uint32_t kAmpere = 7;

template <class... Args>
std::string text(const char* format, Args... args) {
  char out[512];
  std::snprintf(out, sizeof out, format, args...);
  return out;
}

struct Function {
  std::string address;
  fs::path dir;
};

// One board as its driver sees it: functions that can hold vGPUs, and those that there are.
struct Host {
  const Gpu* gpu = nullptr;
  fs::path root;
  Function physical;
  std::vector<Function> parents;  // virtual functions, or the board itself
  bool mediated = false;
};

std::string board_address(const Board& b, std::uint32_t offset = 0) {
  std::uint32_t at = b.device * 8 + offset;
  return text("%04x:%02x:%02x.%x", b.domain, b.bus, at / 8, at % 8);
}

fs::path device_dir(const fs::path& root, const Board& b, const std::string& address) {
  return root / "sys" / text("devices/pci%04x:%02x", b.domain, b.bus & 0xF0) / address;
}

// Kernel 6.8 took the mediated devices away from all but Turing.
Result<bool> has_mediated(const fs::path& root, const Board& b) {
  if (b.architecture < kAmpere) return true;
  std::string release = TRY(tree_release(root));
  auto parts = split(release, '.');
  auto number = [&](std::size_t i) { return i < parts.size() ? std::atoi(parts[i].c_str()) : 0; };
  return number(0) < 6 || (number(0) == 6 && number(1) < 8);
}

Result<Host> host_of(const fs::path& root, const Gpu& gpu) {
  const Board& b = gpu.board;
  Host h;
  h.gpu = &gpu;
  h.root = root;
  h.physical = {board_address(b), device_dir(root, b, board_address(b))};
  h.mediated = TRY(has_mediated(root, b));
  if (b.architecture < kAmpere) {
    h.parents = {h.physical};
    return h;
  }
  for (std::uint32_t v = 0; v < b.sriov_vfs; ++v) {
    std::string address = board_address(b, 4 + v);
    h.parents.push_back({address, device_dir(root, b, address)});
  }
  return h;
}

fs::path mdev_devices(const Host& h) {
  return h.root / "sys/bus/mdev/devices";
}

std::vector<std::string> names_in(const fs::path& dir) {
  auto names = list_dir(dir);
  return names ? *names : std::vector<std::string>();
}

std::string content(const fs::path& file) {
  auto read = read_file(file);
  return read ? std::string(trim(*read)) : "";
}

// The type that a parent holds; 0: none. A Turing board holds several of one type.
std::map<std::string, std::uint32_t> mediated_on(const Function& parent) {
  std::map<std::string, std::uint32_t> out;
  for (const auto& name : names_in(parent.dir)) {
    std::error_code why;
    fs::path link = parent.dir / name / "mdev_type";
    if (!fs::is_symlink(link, why)) continue;
    std::string type = fs::read_symlink(link, why).filename().string();
    out[name] = static_cast<std::uint32_t>(std::atoi(type.substr(type.find('-') + 1).c_str()));
  }
  return out;
}

std::uint32_t type_on(const Host& h, const Function& parent) {
  if (!h.mediated)
    return static_cast<std::uint32_t>(std::atoi(content(parent.dir / "nvidia/current_vgpu_type").c_str()));
  auto held = mediated_on(parent);
  return held.empty() ? 0 : held.begin()->second;
}

std::vector<std::uint32_t> held_types(const Host& h) {
  std::vector<std::uint32_t> out;
  for (const Function& f : h.parents) {
    if (h.mediated) {
      for (const auto& [uuid, type] : mediated_on(f)) out.push_back(type);
    } else if (std::uint32_t type = type_on(h, f)) {
      out.push_back(type);
    }
  }
  return out;
}

const VgpuType* find_type(const State& state, std::uint32_t id) {
  const VgpuType* end = state.vgpu_types + state.vgpu_type_count;
  const VgpuType* at = std::find_if(state.vgpu_types, end, [&](const VgpuType& t) { return t.id == id; });
  return at == end ? nullptr : at;
}

// How many more of a type the board takes. Time-sliced boards hold one type at a time; a partitioned board
// holds those that its GPU instances are for.
std::uint32_t room_for(const Gpu& gpu, const VgpuType& type, const std::vector<std::uint32_t>& held) {
  auto same = static_cast<std::uint32_t>(std::count(held.begin(), held.end(), type.id));
  if ((gpu.live.mig_current != 0) != (type.gi_profile != kNone)) return 0;
  if (type.gi_profile == kNone) {
    if (same != held.size()) return 0;
    return type.instances > same ? type.instances - same : 0;
  }
  auto instances = static_cast<std::uint32_t>(
      std::count_if(gpu.live.gis, gpu.live.gis + kMaxGis,
                    [&](const GpuInstance& gi) { return gi.used && gi.profile == type.gi_profile; }));
  return instances * type.per_gi > same ? instances * type.per_gi - same : 0;
}

Result<> put_function(const Host& h, std::size_t index) {
  const Board& b = h.gpu->board;
  const Function& f = h.parents[index];
  auto hex = [](std::uint32_t v, int digits) { return text("0x%0*x\n", digits, v); };
  TRY(put(f.dir / "vendor", hex(b.pci_id & 0xFFFF, 4)));
  TRY(put(f.dir / "device", hex(b.pci_id >> 16, 4)));
  TRY(put(f.dir / "subsystem_vendor", hex(b.subsystem_id & 0xFFFF, 4)));
  TRY(put(f.dir / "subsystem_device", hex(b.subsystem_id >> 16, 4)));
  TRY(put(f.dir / "class", hex(b.pci_class, 6)));
  TRY(put(f.dir / "numa_node", std::to_string(b.numa_node) + "\n"));
  TRY(put(f.dir / "config", std::string(256, '\0')));
  TRY(put(f.dir / "driver_override", "(null)\n"));
  TRY(put_link(fs::path("..") / h.physical.address, f.dir / "physfn"));
  TRY(put_link(fs::path("..") / f.address, h.physical.dir / text("virtfn%zu", index)));
  fs::path bridge = text("devices/pci%04x:%02x", b.domain, b.bus & 0xF0);
  TRY(put_link(fs::path("../../..") / bridge / f.address, h.root / "sys/bus/pci/devices" / f.address));
  TRY(put_link("../../../bus/pci/drivers/nvidia", f.dir / "driver"));
  TRY(put_link(fs::path("../../../..") / bridge / f.address,
               h.root / "sys/bus/pci/drivers/nvidia" / f.address));
  std::string group = std::to_string(1000 + b.minor * 64 + index);
  TRY(put(h.root / "sys/kernel/iommu_groups" / group / "type", "DMA-FQ\n"));
  TRY(put_link(fs::path("../../../..") / bridge / f.address,
               h.root / "sys/kernel/iommu_groups" / group / "devices" / f.address));
  return put_link(fs::path("../../../kernel/iommu_groups") / group, f.dir / "iommu_group");
}

Result<> put_mediated_types(const Host& h, const State& state, const Function& f) {
  const Board& b = h.gpu->board;
  fs::path bridge = text("../../devices/pci%04x:%02x", b.domain, b.bus & 0xF0);
  TRY(put_link(bridge / f.address, h.root / "sys/class/mdev_bus" / f.address));
  TRY(make_dirs(mdev_devices(h)));
  for (std::uint32_t i = 0; i < state.vgpu_type_count; ++i) {
    const VgpuType& t = state.vgpu_types[i];
    fs::path dir = f.dir / "mdev_supported_types" / text("nvidia-%u", t.id);
    TRY(put(dir / "name", std::string(t.name) + "\n"));
    TRY(put(dir / "device_api", "vfio-pci\n"));
    TRY(put(dir / "description",
            text("num_heads=%u, frl_config=%u, framebuffer=%lluM, max_resolution=%ux%u, max_instance=%u\n",
                 t.heads, t.frame_limit, static_cast<unsigned long long>(t.memory_mib), t.max_x, t.max_y,
                 t.instances)));
    TRY(put(dir / "create", "", 0200));
    TRY(make_dirs(dir / "devices"));
  }
  return {};
}

Result<> put_vendor_files(const Function& f) {
  if (!file_exists(f.dir / "nvidia/current_vgpu_type")) TRY(put(f.dir / "nvidia/current_vgpu_type", "0\n"));
  for (const char* name : {"gpu_instance_id", "placement_id"})
    TRY(put(f.dir / "nvidia" / name, "4294967295\n"));
  for (const char* name : {"vgpu_params", "warm_update"}) TRY(put(f.dir / "nvidia" / name, "\n"));
  return {};
}

// available_instances, or the list of creatable types, of every function. True when anything was written.
Result<bool> renew(const Host& h, const State& state) {
  auto held = held_types(h);
  bool changed = false;
  auto renew_file = [&](const fs::path& file, const std::string& now) -> Result<> {
    auto old = read_file(file);
    if (old && *old == now) return {};
    changed = true;
    return put(file, now);
  };
  for (const Function& f : h.parents) {
    bool full = h.gpu->board.architecture >= kAmpere && type_on(h, f) != 0;
    std::string creatable = "ID : vGPU Name\n";
    for (std::uint32_t i = 0; i < state.vgpu_type_count; ++i) {
      const VgpuType& t = state.vgpu_types[i];
      std::uint32_t room = full ? 0 : room_for(*h.gpu, t, held);
      if (h.gpu->board.architecture >= kAmpere) room = std::min(room, 1u);
      if (h.mediated)
        TRY(renew_file(f.dir / "mdev_supported_types" / text("nvidia-%u", t.id) / "available_instances",
                       text("%u\n", room)));
      if (room > 0) creatable += text("%u : %s\n", t.id, t.name);
    }
    if (!h.mediated) TRY(renew_file(f.dir / "nvidia/creatable_vgpu_types", creatable));
  }
  return changed;
}

bool is_uuid(const std::string& word) {
  if (word.size() != 36) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? word[i] != '-' : !std::isxdigit(static_cast<unsigned char>(word[i]))) return false;
  }
  return true;
}

// A mediated device is a group of its own; the lowest number that is free.
Result<> put_mediated_group(const Host& h, const fs::path& device, const fs::path& link) {
  const fs::path groups = h.root / "sys/kernel/iommu_groups";
  int number = 0;
  while (file_exists(groups / std::to_string(number))) ++number;
  const std::string name = std::to_string(number);
  TRY(put(groups / name / "type", "DMA-FQ\n"));
  TRY(put_link(fs::path("../../../..") / link, groups / name / "devices" / device.filename()));
  return put_link(fs::path("../../../../kernel/iommu_groups") / name, device / "iommu_group");
}

Result<> make_mediated(const Host& h, const Function& f, const VgpuType& t, const std::string& uuid) {
  fs::path dir = f.dir / uuid;
  TRY(put(dir / "remove", "", 0200));
  TRY(put_link(text("../mdev_supported_types/nvidia-%u", t.id), dir / "mdev_type"));
  const Board& b = h.gpu->board;
  const fs::path from_sys = fs::path(text("devices/pci%04x:%02x", b.domain, b.bus & 0xF0)) / f.address / uuid;
  TRY(put_link(fs::path("../../..") / from_sys, mdev_devices(h) / uuid));
  TRY(put_mediated_group(h, dir, from_sys));
  return put_link(fs::path("../../..") / uuid,
                  f.dir / "mdev_supported_types" / text("nvidia-%u", t.id) / "devices" / uuid);
}

Result<> remove_mediated(const Host& h, const Function& f, const std::string& uuid, std::uint32_t type) {
  std::error_code why;
  const fs::path group = fs::read_symlink(f.dir / uuid / "iommu_group", why);
  if (!why) TRY(drop(h.root / "sys/kernel/iommu_groups" / group.filename()));
  TRY(drop(mdev_devices(h) / uuid));
  TRY(drop(f.dir / "mdev_supported_types" / text("nvidia-%u", type) / "devices" / uuid));
  return drop(f.dir / uuid);
}

Result<bool> settle_mediated(const Host& h, const State& state, std::vector<std::string>* refused) {
  bool changed = false;
  for (const Function& f : h.parents) {
    for (const auto& [uuid, type] : mediated_on(f)) {
      if (content(f.dir / uuid / "remove") != "1") continue;
      TRY(remove_mediated(h, f, uuid, type));
      changed = true;
    }
    for (std::uint32_t i = 0; i < state.vgpu_type_count; ++i) {
      const VgpuType& t = state.vgpu_types[i];
      fs::path create = f.dir / "mdev_supported_types" / text("nvidia-%u", t.id) / "create";
      std::string uuid = content(create);
      if (uuid.empty()) continue;
      TRY(put(create, "", 0200));
      changed = true;
      bool full = h.gpu->board.architecture >= kAmpere && type_on(h, f) != 0;
      if (!is_uuid(uuid) || file_exists(mdev_devices(h) / uuid)) {
        refused->push_back("create '" + uuid + "' on '" + f.address + "': Invalid argument");
      } else if (full || room_for(*h.gpu, t, held_types(h)) == 0) {
        refused->push_back("create '" + uuid + "' on '" + f.address + "': No space left on device");
      } else {
        TRY(make_mediated(h, f, t, uuid));
      }
    }
  }
  return changed;
}

// A type stays when it fits beside the others; each function's is looked at once, in order.
Result<bool> settle_vendor(const Host& h, const State& state, std::vector<std::string>* refused) {
  std::vector<std::uint32_t> held;
  bool changed = false;
  for (const Function& f : h.parents) {
    std::uint32_t id = type_on(h, f);
    if (id == 0) continue;
    const VgpuType* t = find_type(state, id);
    if (t && room_for(*h.gpu, *t, held) > 0) {
      held.push_back(id);
      continue;
    }
    refused->push_back("vGPU type " + std::to_string(id) + " on '" + f.address +
                       "': " + (t ? "No space left on device" : "Invalid argument"));
    TRY(put(f.dir / "nvidia/current_vgpu_type", "0\n"));
    changed = true;
  }
  return changed;
}

}  // namespace

Result<> put_vgpus(const fs::path& root, const State& state) {
  if (!state.vgpu_host) return {};
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    Host h = TRY(host_of(root, state.gpus[g]));
    for (std::size_t i = 0; i < h.parents.size(); ++i) {
      if (h.parents[i].address != h.physical.address) TRY(put_function(h, i));
      if (h.mediated)
        TRY(put_mediated_types(h, state, h.parents[i]));
      else
        TRY(put_vendor_files(h.parents[i]));
    }
    // The vGPU manager enables all that the board has.
    if (state.gpus[g].board.architecture >= kAmpere) {
      for (const char* name : {"sriov_totalvfs", "sriov_numvfs"})
        TRY(put(h.physical.dir / name, std::to_string(h.parents.size()) + "\n"));
    }
    TRY(renew(h, state));
  }
  return {};
}

Result<> drop_vgpus(const fs::path& root) {
  for (const std::string& parent : names_in(root / "sys/class/mdev_bus")) {
    std::error_code why;
    // Virtual functions are gone already, with all that was in them.
    const fs::path dir = fs::canonical(root / "sys/class/mdev_bus" / parent, why);
    if (why) continue;
    for (const auto& [uuid, type] : mediated_on({parent, dir})) TRY(drop(dir / uuid));
    TRY(drop(dir / "mdev_supported_types"));
  }
  TRY(drop(root / "sys/class/mdev_bus"));
  return drop(root / "sys/bus/mdev");
}

Result<std::vector<fs::path>> vgpu_folders(const fs::path& root, const State& state) {
  std::vector<fs::path> out;
  auto add = [&](const fs::path& dir) {
    std::error_code why;
    if (fs::is_directory(dir, why)) out.push_back(dir);
  };
  for (std::uint32_t g = 0; state.vgpu_host && g < state.gpu_count; ++g) {
    const Host h = TRY(host_of(root, state.gpus[g]));
    for (const Function& f : h.parents) {
      add(f.dir / "nvidia");
      for (const std::string& type : names_in(f.dir / "mdev_supported_types"))
        add(f.dir / "mdev_supported_types" / type);
      for (const auto& [uuid, type] : mediated_on(f)) add(f.dir / uuid);
    }
    const fs::path mig =
        root / "proc/driver/nvidia/capabilities" / ("gpu" + std::to_string(h.gpu->board.minor)) / "mig";
    add(mig.parent_path());
    add(mig);
  }
  return out;
}

bool is_vgpu_request(std::string_view name) {
  return name == "create" || name == "remove" || name == "current_vgpu_type";
}

Result<bool> settle_vgpus(const fs::path& root, const State& state, std::vector<std::string>* refused) {
  bool changed = false;
  for (std::uint32_t g = 0; state.vgpu_host && g < state.gpu_count; ++g) {
    Host h = TRY(host_of(root, state.gpus[g]));
    bool settled =
        h.mediated ? TRY(settle_mediated(h, state, refused)) : TRY(settle_vendor(h, state, refused));
    bool renewed = TRY(renew(h, state));
    changed = changed || settled || renewed;
  }
  return changed;
}

}  // namespace gpuop::sim
