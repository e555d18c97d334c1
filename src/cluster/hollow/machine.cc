#include "cluster/hollow/machine.h"

#include <algorithm>

#include "base/text.h"
#include "cluster/faults/faults.h"
#include "features/sources.h"
#include "sim/node_tree.h"
#include "sim/profile.h"
#include "validate/validator.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kControlNodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                         "/dev/nvidia-modeset"};

std::string hex(std::uint32_t value, int digits) {
  std::string out(static_cast<std::size_t>(digits), '0');
  for (auto at = out.rbegin(); at != out.rend(); ++at, value >>= 4) *at = "0123456789abcdef"[value & 15];
  return out;
}

std::string bus_id(const sim::Board& board) {
  return hex(board.domain, 4) + ":" + hex(board.bus, 2) + ":" + hex(board.device, 2) + ".0";
}

hardware::Gpu gpu_of(const sim::Board& board, unsigned index) {
  hardware::Gpu gpu;
  gpu.index = index;
  gpu.minor = board.minor;
  gpu.uuid = board.uuid;
  gpu.name = board.name;
  gpu.serial = board.serial;
  gpu.bus_id = bus_id(board);
  gpu.pci_device_id = board.pci_id;
  gpu.pci_subsystem_id = board.subsystem_id;
  if (board.unified_memory == 0) gpu.memory_bytes = board.memory_bytes;
  gpu.compute_capability = {static_cast<int>(board.cc_major), static_cast<int>(board.cc_minor)};
  gpu.brand = static_cast<int>(board.brand);
  gpu.architecture = board.architecture;
  gpu.addressing_mode = board.addressing_mode;
  gpu.numa_node = board.numa_node;
  gpu.mig_capable = board.mig_capable != 0;
  return gpu;
}

// What two boards of one machine have between them.
plugin::Link link_of(const sim::Board& a, const sim::Board& b) {
  plugin::Link link;
  link.topology = a.numa_node == b.numa_node ? 40 : 50;
  return link;
}

}  // namespace

int cuda_version_of(std::string_view driver) {
  struct Branch {
    int from, cuda;
  };
  static constexpr Branch kBranches[] = {{590, 13010}, {580, 13000}, {575, 12090}, {570, 12080},
                                         {565, 12070}, {560, 12060}, {555, 12050}, {550, 12040},
                                         {545, 12030}, {535, 12020}, {530, 12010}};
  const int branch = static_cast<int>(parse_int(driver.substr(0, driver.find('.'))).value_or(0));
  for (const Branch& known : kBranches) {
    if (branch >= known.from) return known.cuda;
  }
  return 12000;
}

Result<HollowHardware> make_hardware(const FleetNode& node, std::uint64_t seed, const fs::path& profiles,
                                     std::map<std::string, sim::GpuProfile>& read) {
  HollowHardware out;
  if (node.gpu_count == 0) return out;
  auto known = read.find(node.gpu_model);
  if (known == read.end()) {
    known = read.emplace(node.gpu_model, TRY(sim::load_profile(profiles, node.gpu_model))).first;
  }
  const sim::GpuProfile& profile = known->second;
  // Each node its own UUIDs.
  const std::uint64_t own = seed ^ fnv1a64(node.name);
  for (int i = 0; i < node.gpu_count; ++i) {
    out.boards.push_back(TRY(sim::make_board(profile, own, i, node.gpu_count, node.numa_nodes)));
  }
  out.product = profile.machine_product;
  return out;
}

HollowMachine::HollowMachine(Loop& loop, FleetNode node, HollowHardware hardware)
    : loop_(loop), node_(std::move(node)), hardware_(std::move(hardware)), kernel_(node_.kernel) {
  for (const sim::Board& board : hardware_.boards) uuids_.emplace_back(board.uuid);
  if (driver_is_host() && gpus() > 0) driver_ = node_.driver_version;
}

std::string HollowMachine::boot_id() const {
  const std::string digest = sha256_hex("boot/" + node_.name + "/" + std::to_string(boots_));
  return digest.substr(0, 8) + "-" + digest.substr(8, 4) + "-4" + digest.substr(13, 3) + "-a" +
         digest.substr(17, 3) + "-" + digest.substr(20, 12);
}

void HollowMachine::changed() {
  if (std::exchange(telling_, true)) return;
  loop_.post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    telling_ = false;
    std::vector<std::uint64_t> ids;
    for (const auto& [id, listener] : listeners_) ids.push_back(id);
    // One listener may drop another.
    for (const std::uint64_t id : ids) {
      const auto found = listeners_.find(id);
      if (found == listeners_.end()) continue;
      const auto call = found->second;
      call();
    }
  });
}

Handle HollowMachine::on_change(std::function<void()> listener) {
  const std::uint64_t id = next_++;
  listeners_[id] = std::move(listener);
  return Handle([this, id, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) listeners_.erase(id);
  });
}

Handle HollowMachine::on_xid(std::function<void(std::size_t, int)> listener) {
  const std::uint64_t id = next_++;
  xid_listeners_[id] = std::move(listener);
  return Handle([this, id, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) xid_listeners_.erase(id);
  });
}

void HollowMachine::load_driver(const std::string& version) {
  if (driver_ == version) return;
  driver_ = version;
  changed();
}
void HollowMachine::unload_driver() {
  if (driver_is_host() || driver_.empty()) return;
  driver_.clear();
  changed();
}

void HollowMachine::open_gate(const std::string& name) {
  if (gates_.insert(name).second) changed();
}
void HollowMachine::decide_gates(const validate::GateDecision& decision) {
  if (decision.remove) {
    for (const std::string& gate : validate::gates()) remove_gates(gate);
  }
  if (gate_owner_ == decision.owner) return;
  gate_owner_ = decision.owner;
  changed();
}
void HollowMachine::remove_gates(std::string_view pattern) {
  // As a shell's '*': it does not match a leading dot.
  const auto removed = std::erase_if(gates_, [pattern](const std::string& name) {
    return (pattern.starts_with('*') && name.starts_with('.')) ? false : fits(pattern, name);
  });
  if (removed > 0) changed();
}

void HollowMachine::wire_toolkit() {
  if (!std::exchange(toolkit_, true)) changed();
}

void HollowMachine::serve(int port, bool on) {
  int& servers = ports_[port];
  servers += on ? 1 : -1;
  if (servers <= 0) ports_.erase(port);
}

void HollowMachine::write_feature_file(std::map<std::string, std::string> labels) {
  if (feature_files_ == labels) return;
  feature_files_ = std::move(labels);
  changed();
}

void HollowMachine::lose_gpu(std::size_t gpu, bool is_lost) {
  if (gpu >= gpus() || lost_.contains(gpu) == is_lost) return;
  if (is_lost) {
    lost_.insert(gpu);
    xid(gpu, 79);
  } else {
    lost_.erase(gpu);
  }
  changed();
}

void HollowMachine::xid(std::size_t gpu, int code) {
  if (gpu >= gpus() || driver_.empty()) return;
  std::vector<std::function<void(std::size_t, int)>> calls;
  for (const auto& [id, listener] : xid_listeners_) calls.push_back(listener);
  for (const auto& call : calls) call(gpu, code);
}

void HollowMachine::reboot(const std::string& kernel) {
  ++boots_;
  if (!kernel.empty()) kernel_ = kernel;
  gates_.clear();
  gate_owner_ = {};
  ports_.clear();
  lost_.clear();
  driver_ = driver_is_host() && gpus() > 0 ? node_.driver_version : "";
  // The runtime's drop-in is on disk, so its handlers are there after a boot, and so are features files.
  changed();
}

std::vector<std::size_t> HollowMachine::present() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < gpus(); ++i) {
    if (!lost(i)) out.push_back(i);
  }
  return out;
}

hardware::Inventory HollowMachine::inventory() const {
  hardware::Inventory out;
  out.driver_version = driver_;
  out.nvml_version = "12." + driver_;
  out.cuda_version = cuda_version_of(driver_);
  for (const std::size_t i : present())
    out.gpus.push_back(gpu_of(hardware_.boards[i], static_cast<unsigned>(i)));
  for (std::size_t i = 0; i < gpus(); ++i) {
    if (lost(i)) out.warnings.push_back("GPU " + std::to_string(i) + ": GPU is lost");
  }
  return out;
}

plugin::Facts HollowMachine::plugin_facts() const {
  plugin::Facts out;
  out.platform = plugin::Platform::kNvml;
  if (driver_.empty()) {
    out.init_error = "nvmlInit_v2: Driver Not Loaded";
    return out;
  }
  out.inventory = inventory();
  const auto there = present();
  for (const std::size_t i : there) {
    const int numa = hardware_.boards[i].numa_node;
    out.numa_nodes.push_back(numa < 0 ? std::nullopt : std::optional<int>(numa));
  }
  out.links.assign(there.size(), std::vector<plugin::Link>(there.size()));
  for (std::size_t a = 0; a < there.size(); ++a) {
    for (std::size_t b = 0; b < there.size(); ++b) {
      if (a != b) out.links[a][b] = link_of(hardware_.boards[there[a]], hardware_.boards[there[b]]);
    }
  }
  out.control_nodes.assign(std::begin(kControlNodes), std::end(kControlNodes));
  return out;
}

labels::Facts HollowMachine::label_facts() const {
  labels::Facts out;
  out.platform = hardware::Platform::kNvml;
  if (!hardware_.product.empty()) out.machine = hardware_.product + "\n";
  out.vgpus.emplace();
  if (driver_.empty()) {
    out.init_error = "nvmlInit_v2: Driver Not Loaded";
    return out;
  }
  out.inventory = inventory();
  for (const std::size_t i : present()) {
    const sim::Board& board = hardware_.boards[i];
    out.pci_classes.emplace_back(board.pci_class);
    labels::FabricFact fabric;
    if (board.fabric_supported != 0) {
      hardware::Fabric info;
      info.cluster_uuid = "00000000-0000-0000-0000-000000000000";
      info.clique_id = board.fabric_clique;
      info.status = board.fabric_status;
      info.state = board.fabric_state;
      fabric.info = info;
    }
    out.fabrics.push_back(std::move(fabric));
  }
  return out;
}

features::FeatureSet HollowMachine::features() const {
  features::FeatureSet out;
  out.attributes["kernel.version"] = features::kernel_version(kernel_);
  out.attributes["system.name"] = {{"nodename", node_.name}};
  if (const auto text = sim::os_release_text(node_.os_id, node_.os_version)) {
    out.attributes["system.osrelease"] = features::parse_os_release(*text);
  }
  out.attributes["memory.numa"] = {{"is_numa", node_.numa_nodes > 1 ? "true" : "false"},
                                   {"node_count", std::to_string(node_.numa_nodes)}};
  out.attributes["kernel.selinux"] = {{"enabled", "false"}};
  auto& loaded = out.flags["kernel.loadedmodule"];
  if (!driver_.empty()) loaded = {"nvidia", "nvidia_modeset", "nvidia_uvm"};
  auto& devices = out.instances["pci.device"];
  for (const sim::Board& board : hardware_.boards) {
    devices.push_back({{"class", hex(board.pci_class >> 8, 4)},
                       {"vendor", hex(board.pci_id & 0xffff, 4)},
                       {"device", hex(board.pci_id >> 16, 4)},
                       {"subsystem_vendor", hex(board.subsystem_id & 0xffff, 4)},
                       {"subsystem_device", hex(board.subsystem_id >> 16, 4)}});
  }
  return out;
}

}  // namespace gpuop::cluster
