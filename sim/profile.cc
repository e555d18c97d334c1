#include "sim/profile.h"

#include <cstdio>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"

namespace gpuop::sim {

namespace {

// Reads one map strictly: every key must be asked for, and every wanted key must be there.
class Map {
 public:
  Map(const YamlDocument& document, std::string file, std::string path, const Json* value, Error** error)
      : document_(document), file_(std::move(file)), path_(std::move(path)), error_(error) {
    if (value && value->is_object())
      object_ = &value->as_object();
    else if (value)
      complain("", Code::kInvalid, "must be a map");
  }

  bool has(std::string_view key) { return known(key) != nullptr; }

  std::string text(std::string_view key, std::size_t limit, bool required = true) {
    const Json* v = want(key, required);
    if (!v) return {};
    if (!v->is_string()) return complain(key, Code::kInvalid, "must be text"), std::string();
    std::string out = str(as_text(*v));
    if (out.size() >= limit)
      complain(key, Code::kInvalid, "longer than " + std::to_string(limit - 1) + " characters");
    return out;
  }

  template <std::size_t N>
  void text(std::string_view key, char (&out)[N], bool required = true) {
    std::string value = text(key, N, required);
    if (value.size() < N) std::memcpy(out, value.c_str(), value.size() + 1);
  }

  std::uint64_t number(std::string_view key, std::uint64_t low, std::uint64_t high, bool required = true) {
    const Json* v = want(key, required);
    return v ? as_number(key, *v, low, high) : 0;
  }

  bool flag(std::string_view key, bool required = true) {
    const Json* v = want(key, required);
    if (!v) return false;
    if (!v->is_bool()) return complain(key, Code::kInvalid, "must be true or false"), false;
    return v->as_bool();
  }

  std::string choice(std::string_view key, const std::vector<std::string>& choices) {
    std::string value = text(key, 64);
    for (const auto& c : choices) {
      if (c == value) return value;
    }
    complain(
        key, Code::kInvalid,
        "must be one of " + join(choices, ", ") + "; got '" + value + "'" + did_you_mean(value, choices));
    return {};
  }

  std::vector<std::uint32_t> numbers(std::string_view key, std::uint64_t high, std::size_t most,
                                     bool required = true) {
    std::vector<std::uint32_t> out;
    for (const Json* item : list(key, most, required)) {
      out.push_back(static_cast<std::uint32_t>(as_number(key, *item, 0, high)));
    }
    return out;
  }

  std::vector<std::string> texts(std::string_view key, bool required = true) {
    std::vector<std::string> out;
    for (const Json* item : list(key, 64, required)) {
      if (item->is_string())
        out.push_back(str(as_text(*item)));
      else
        complain(key, Code::kInvalid, "must be a list of text");
    }
    return out;
  }

  Map map(std::string_view key, bool required = true) {
    return Map(document_, file_, below(key), want(key, required), error_);
  }

  std::vector<Map> maps(std::string_view key, std::size_t most) {
    std::vector<Map> out;
    for (const Json* item : list(key, most, true)) {
      out.emplace_back(document_, file_, below(key) + "[" + std::to_string(out.size()) + "]", item, error_);
    }
    return out;
  }

  void complain(std::string_view key, Code code, const std::string& why) {
    if (*error_) return;  // the first one is the one to fix
    std::string path = below(key);
    *error_ =
        new Error(code, "read profile '" + file_ + "': line " + std::to_string(document_.line_of(path)) +
                            ": " + (path.empty() ? why : path + ": " + why));
  }

  // Call when all keys have been asked for.
  void finish() {
    if (!object_) return;
    for (const auto& entry : *object_) {
      std::string_view key(entry.key().data(), entry.key().size());
      bool asked = false;
      for (const auto& k : keys_) asked = asked || k == key;
      if (!asked) complain(key, Code::kInvalid, "unknown key" + did_you_mean(key, keys_));
    }
  }

 private:
  std::string below(std::string_view key) const {
    return path_.empty() || key.empty() ? path_ + std::string(key) : path_ + "." + std::string(key);
  }

  const Json* known(std::string_view key) {
    keys_.emplace_back(key);
    if (!object_) return nullptr;
    auto it = object_->find(boost::json::string_view(key.data(), key.size()));
    return it == object_->end() ? nullptr : &it->value();
  }

  const Json* want(std::string_view key, bool required) {
    const Json* v = known(key);
    if (!v && required && object_) complain(key, Code::kInvalid, "is missing");
    return v;
  }

  std::uint64_t as_number(std::string_view key, const Json& v, std::uint64_t low, std::uint64_t high) {
    std::uint64_t n = 0;
    if (v.is_int64() && v.as_int64() >= 0)
      n = static_cast<std::uint64_t>(v.as_int64());
    else if (v.is_uint64())
      n = v.as_uint64();
    else
      return complain(key, Code::kInvalid, "must be a whole number"), 0;
    if (n < low || n > high) {
      complain(
          key, Code::kInvalid,
          "must be " + std::to_string(low) + " to " + std::to_string(high) + "; got " + std::to_string(n));
      return 0;
    }
    return n;
  }

  std::vector<const Json*> list(std::string_view key, std::size_t most, bool required) {
    std::vector<const Json*> out;
    const Json* v = want(key, required);
    if (!v) return out;
    if (!v->is_array()) return complain(key, Code::kInvalid, "must be a list"), out;
    if (v->as_array().size() > most) {
      return complain(key, Code::kInvalid, "has more than " + std::to_string(most) + " entries"), out;
    }
    for (const Json& item : v->as_array()) out.push_back(&item);
    return out;
  }

  const YamlDocument& document_;
  std::string file_, path_;
  Error** error_;
  const JsonObject* object_ = nullptr;
  std::vector<std::string> keys_;
};

std::uint32_t u32(std::uint64_t v) {
  return static_cast<std::uint32_t>(v);
}

void read_pci(Map pci, GpuProfile& p) {
  Board& b = p.board;
  b.pci_id = u32(pci.number("device", 1, 0xFFFF)) << 16 | 0x10DE;
  b.subsystem_id = u32(pci.number("subsystem_device", 0, 0xFFFF)) << 16 | 0x10DE;
  p.domains = pci.numbers("domains", 0xFFFF, kMaxGpus, false);
  b.pci_class = u32(pci.number("class", 0, 0xFFFFFF));
  b.pcie_gen = u32(pci.number("generation", 1, 7));
  b.pcie_width = u32(pci.number("width", 1, 32));
  p.buses = pci.numbers("buses", 0xFF, kMaxGpus);
  if (p.buses.empty()) pci.complain("buses", Code::kInvalid, "must name at least one bus");
  if (!p.domains.empty() && p.domains.size() != p.buses.size())
    pci.complain("domains", Code::kInvalid, "must name one for each bus");
  pci.finish();
}

void read_limits(Map& root, Board& b) {
  Map clocks = root.map("clocks_mhz");
  auto pair = [&](const char* key, std::uint32_t& idle, std::uint32_t& max) {
    Map m = clocks.map(key);
    idle = u32(m.number("idle", 1, 20000));
    max = u32(m.number("max", 1, 20000));
    if (idle > max) m.complain("idle", Code::kInvalid, "must not exceed max");
    m.finish();
  };
  pair("sm", b.sm_clock_idle, b.sm_clock_max);
  pair("memory", b.mem_clock_idle, b.mem_clock_max);
  pair("video", b.video_clock_idle, b.video_clock_max);
  clocks.finish();

  Map power = root.map("power_w");
  b.power_idle_mw = 1000 * u32(power.number("idle", 1, 10000));
  b.power_min_mw = 1000 * u32(power.number("min", 1, 10000));
  b.power_default_mw = 1000 * u32(power.number("default", 1, 10000));
  b.power_max_mw = 1000 * u32(power.number("max", 1, 10000));
  if (b.power_default_mw > b.power_max_mw) power.complain("default", Code::kInvalid, "must not exceed max");
  if (b.power_idle_mw > b.power_default_mw) power.complain("idle", Code::kInvalid, "must not exceed default");
  power.finish();

  Map heat = root.map("temperature_c");
  b.temp_idle = u32(heat.number("idle", 0, 150));
  b.temp_full = u32(heat.number("full", 0, 150));
  b.temp_max_op = u32(heat.number("max_operating", 0, 150));
  b.temp_slowdown = u32(heat.number("slowdown", 0, 150));
  b.temp_shutdown = u32(heat.number("shutdown", 0, 150));
  b.mem_temp_max = u32(heat.number("memory_max", 0, 150, false));
  if (b.temp_idle > b.temp_full) heat.complain("idle", Code::kInvalid, "must not exceed full");
  heat.finish();
}

void read_mig(Map mig, Board& b) {
  b.mig_capable = 1;
  b.mig_slices = u32(mig.number("slices", 1, 8));
  b.mig_units = u32(mig.number("units", 1, 32));
  b.mig_immediate = mig.flag("immediate");
  for (Map& m : mig.maps("profiles", kMaxGiProfiles)) {
    GiProfile& row = b.gi_profiles[b.gi_profile_count++];
    m.text("name", row.name);
    row.profile = u32(m.number("profile", 0, 0x11));
    if ((row.profile >= 0xA && row.profile <= 0xC) || row.profile == 0x11) row.capabilities = kMigGraphics;
    row.id = u32(m.number("id", 0, 255));
    row.slices = u32(m.number("slices", 1, b.mig_slices ? b.mig_slices : 1));
    row.instances = u32(m.number("max", 1, kMaxGis));
    row.memory_mib = m.number("memory_mib", 1, b.memory_bytes >> 20 ? b.memory_bytes >> 20 : 1);
    row.multiprocessors = u32(m.number("sm", 1, 1000));
    row.copy_engines = u32(m.number("copy", 0, 64));
    row.decoders = u32(m.number("decoders", 0, 64));
    row.encoders = u32(m.number("encoders", 0, 64, false));
    row.jpegs = u32(m.number("jpeg", 0, 64));
    row.ofas = u32(m.number("ofa", 0, 64));
    row.size = u32(m.number("size", 1, b.mig_units ? b.mig_units : 1));
    for (std::uint32_t start : m.numbers("starts", b.mig_units ? b.mig_units - 1 : 0, 8)) {
      if (start + row.size > b.mig_units) m.complain("starts", Code::kInvalid, "placement leaves the board");
      row.starts[row.start_count++] = start;
    }
    m.finish();
  }
  mig.finish();
}

void read_memory(Map memory, Board& b) {
  b.memory_bytes = memory.number("total_mib", 1, 1u << 24) << 20;
  b.reserved_bytes = memory.number("reserved_mib", 0, 1u << 20) << 20;
  b.bar1_bytes = memory.number("bar1_mib", 1, 1u << 24) << 20;
  b.memory_bus_bits = u32(memory.number("bus_bits", 1, 1u << 16));
  b.l2_kib = u32(memory.number("l2_kib", 1, 1u << 20));
  b.has_memory_temp = memory.flag("temperature");
  b.unified_memory = memory.flag("unified", false);
  // The CPU reaches it as a NUMA node of its own, and both share page tables.
  if (memory.flag("coherent", false)) b.addressing_mode = kAddressingAts;
  if (b.reserved_bytes >= b.memory_bytes)
    memory.complain("reserved_mib", Code::kInvalid, "must be less than total_mib");
  memory.finish();
}

void read_vgpu(Map vgpu, GpuProfile& p) {
  p.board.sriov_vfs = u32(vgpu.number("vfs", 0, kMaxVfs));
  for (Map& m : vgpu.maps("types", kMaxVgpuTypes)) {
    VgpuType t;
    m.text("name", t.name);
    m.text("class", t.kind);
    t.id = u32(m.number("id", 1, 100000));
    t.memory_mib = m.number("memory_mib", 1, p.board.memory_bytes >> 20 ? p.board.memory_bytes >> 20 : 1);
    t.instances = u32(m.number("max", 1, 64));
    if (m.has("mig_profile")) {
      t.gi_profile = u32(m.number("mig_profile", 0, 0x11));
      t.per_gi = u32(m.number("per_instance", 1, 16));
    }
    t.heads = t.kind == std::string_view("Compute") ? 1 : 4;
    t.max_x = t.heads == 1 ? 4096 : 7680;
    t.max_y = t.heads == 1 ? 2160 : 4320;
    t.frame_limit = 60;
    m.finish();
    p.vgpu_types.push_back(t);
  }
  vgpu.finish();
}

}  // namespace

Result<GpuProfile> parse_profile(std::string_view text, std::string_view file) {
  YamlDocument document = TRY(parse_yaml_one(text, file));
  Error* error = nullptr;
  GpuProfile p;
  Board& b = p.board;
  Map root(document, std::string(file), "", &document.value, &error);
  for (const auto& key : document.duplicate_keys) root.complain(key, Code::kInvalid, "occurs twice");
  p.model = root.text("model", 64);
  p.aliases = root.texts("aliases", false);
  root.text("product", b.name);
  Map machine = root.map("machine");
  p.machine_vendor = machine.text("vendor", 64);
  p.machine_product = machine.text("product", 64);
  p.machine_board = machine.text("board", 64);
  machine.finish();
  std::string brand = root.choice("brand", {"tesla", "nvidia", "quadro-rtx", "nvidia-rtx", "geforce-rtx"});
  b.brand = brand == "tesla"        ? 2
            : brand == "nvidia"     ? 14
            : brand == "quadro-rtx" ? 12
            : brand == "nvidia-rtx" ? 13
                                    : 15;
  const std::vector<std::string> architectures = {"kepler", "maxwell", "pascal", "volta",    "turing",
                                                  "ampere", "ada",     "hopper", "blackwell"};
  std::string architecture = root.choice("architecture", architectures);
  for (std::size_t i = 0; i < architectures.size(); ++i) {
    if (architectures[i] == architecture) b.architecture = u32(i) + 2;
  }
  Map compute = root.map("compute");
  b.cc_major = u32(compute.number("major", 1, 99));
  b.cc_minor = u32(compute.number("minor", 0, 9));
  compute.finish();
  root.text("board_part", b.board_part);
  p.serial_prefix = root.text("serial_prefix", 16);
  root.text("vbios", b.vbios);
  Map inforom = root.map("inforom");
  inforom.text("image", b.inforom_image);
  inforom.text("oem", b.inforom_oem);
  inforom.text("ecc", b.inforom_ecc);
  inforom.text("power", b.inforom_power);
  inforom.finish();
  read_pci(root.map("pci"), p);
  read_memory(root.map("memory"), b);
  Map sm = root.map("sm");
  b.multiprocessors = u32(sm.number("multiprocessors", 1, 1000));
  b.cores = u32(sm.number("cores", 1, 1000000));
  b.copy_engines = u32(sm.number("copy_engines", 1, 64));
  sm.finish();
  read_limits(root, b);
  Map engines = root.map("engines");
  b.encoders = u32(engines.number("encoders", 0, 8));
  b.decoders = u32(engines.number("decoders", 0, 8));
  b.jpegs = u32(engines.number("jpegs", 0, 8, false));
  b.ofas = u32(engines.number("ofas", 0, 8, false));
  engines.finish();
  b.ecc_supported = root.flag("ecc");
  b.row_remap_supported = root.flag("row_remap");
  b.retired_pages_supported = root.flag("retired_pages", false);
  b.gpm_supported = root.flag("gpm");
  if (root.has("nvlink")) {
    Map links = root.map("nvlink");
    b.nvlink_count = u32(links.number("links", 1, kMaxLinks));
    b.nvlink_version = u32(links.number("version", 1, 9));
    b.nvlink_switched = links.flag("switched");
    b.nvlink_mbps = u32(links.number("mb_per_s", 1, 1000000));
    links.finish();
  }
  b.c2c_links = u32(root.number("c2c_links", 0, 16, false));
  if (root.has("fabric"))
    p.fabric = root.choice("fabric", {"chassis", "rack"}) == "rack" ? Fabric::kRack : Fabric::kChassis;
  if (root.has("mig")) read_mig(root.map("mig"), b);
  if (root.has("vgpu")) read_vgpu(root.map("vgpu"), p);
  root.finish();
  if (error) {
    Error out = *error;
    delete error;
    return fail(std::move(out));
  }
  return p;
}

Result<std::vector<std::string>> profile_models(const fs::path& dir) {
  std::vector<std::string> models;
  for (const auto& name : TRY_IN(list_dir(dir), "list GPU profiles")) {
    if (!name.ends_with(".yaml")) continue;
    models.push_back(TRY(parse_profile(TRY(read_file(dir / name)), (dir / name).string())).model);
  }
  return models;
}

Result<std::vector<std::string>> vgpu_models(const fs::path& dir) {
  std::vector<std::string> models;
  for (const auto& name : TRY_IN(list_dir(dir), "list GPU profiles")) {
    if (!name.ends_with(".yaml")) continue;
    GpuProfile p = TRY(parse_profile(TRY(read_file(dir / name)), (dir / name).string()));
    if (p.vgpu_types.empty()) continue;
    models.push_back(p.model);
    models.insert(models.end(), p.aliases.begin(), p.aliases.end());
  }
  return models;
}

Result<GpuProfile> load_profile(const fs::path& dir, std::string_view name) {
  std::vector<std::string> names;
  std::string wanted = to_lower(name);
  for (const auto& file : TRY_IN(list_dir(dir), "list GPU profiles")) {
    if (!file.ends_with(".yaml")) continue;
    GpuProfile p = TRY(parse_profile(TRY(read_file(dir / file)), (dir / file).string()));
    names.push_back(p.model);
    if (to_lower(p.model) == wanted) return p;
    for (const auto& alias : p.aliases) {
      names.push_back(alias);
      if (to_lower(alias) == wanted) return p;
    }
  }
  return fail(Code::kNotFound, "load GPU profile '" + std::string(name) + "': no such model in '" +
                                   dir.string() + "'; there are " + join(names, ", ") +
                                   did_you_mean(name, names));
}

Result<Board> make_board(const GpuProfile& profile, std::uint64_t seed, int index, int count, int numa_nodes,
                         const Rack& rack) {
  if (index < 0 || index >= count || count > static_cast<int>(profile.buses.size())) {
    return fail(Code::kInvalid, "make board " + std::to_string(index) + " of '" + profile.model +
                                    "': a node holds " + std::to_string(profile.buses.size()) +
                                    " of them at most");
  }
  Board b = profile.board;
  auto i = static_cast<std::uint32_t>(index);
  // Text that differs by seed and index only, so a node comes back with the same boards.
  std::string digest = sha256_hex(profile.model + "/" + std::to_string(seed) + "/" + std::to_string(index));
  std::snprintf(b.uuid, sizeof b.uuid, "GPU-%.8s-%.4s-4%.3s-a%.3s-%.12s", digest.c_str(), digest.c_str() + 8,
                digest.c_str() + 12, digest.c_str() + 15, digest.c_str() + 18);
  std::snprintf(b.serial, sizeof b.serial, "%s%06u", profile.serial_prefix.c_str(),
                static_cast<unsigned>(parse_hex(digest.substr(40, 5)).value_or(0) % 1000000));
  b.minor = i;
  b.bus = profile.buses[i];
  if (!profile.domains.empty()) b.domain = profile.domains[i];
  b.module_id = i + 1;
  if (numa_nodes > 1)
    b.numa_node = index * numa_nodes / (count > 1 ? count : 1);
  else
    b.numa_node = numa_nodes == 1 ? 0 : -1;
  // Coherent memory follows the CPUs' nodes, one node a board.
  if (b.addressing_mode == kAddressingAts) b.memory_numa_node = std::max(numa_nodes, 1) + index;
  if (profile.fabric == Fabric::kNone) return b;
  b.fabric_supported = 1;
  b.fabric_state = 3;
  // One chassis is a fabric of its own: no cluster, registration done. A rack's boards share a cluster.
  if (profile.fabric == Fabric::kRack) {
    std::string cluster = sha256_hex("fabric/" + std::to_string(rack.seed));
    for (std::size_t k = 0; k < sizeof b.fabric_cluster; ++k)
      b.fabric_cluster[k] = static_cast<std::uint8_t>(parse_hex(cluster.substr(2 * k, 2)).value_or(0));
    b.fabric_clique = rack.clique;
  }
  return b;
}

}  // namespace gpuop::sim
