#include "sim/node_tree.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/json.h"
#include "base/text.h"
#include "sim/modules.h"
#include "sim/profile.h"
#include "sim/tree_files.h"

namespace gpuop::sim {

namespace {

template <class... Args>
std::string text(const char* format, Args... args) {
  char out[512];
  std::snprintf(out, sizeof out, format, args...);
  return out;
}

struct PciFunction {
  std::uint32_t domain = 0, bus = 0, device = 0, function = 0;
  std::uint32_t vendor = 0, id = 0, subsystem_vendor = 0, subsystem = 0, pci_class = 0;
  int numa = 0;
  std::uint64_t bar_bytes = 0;  // the large prefetchable one; 0: none
  std::string driver;           // bound from the start
};

std::string pci_address(const PciFunction& f) {
  return text("%04x:%02x:%02x.%x", f.domain, f.bus, f.device, f.function);
}

// The 256 bytes of configuration space: a type 0 header and power management, MSI and PCI Express
// capabilities.
std::string pci_config(const PciFunction& f) {
  std::array<unsigned char, 256> c{};
  auto put16 = [&](std::size_t at, std::uint32_t v) {
    c[at] = static_cast<unsigned char>(v);
    c[at + 1] = static_cast<unsigned char>(v >> 8);
  };
  put16(0x00, f.vendor);
  put16(0x02, f.id);
  put16(0x04, 0x0406);  // memory, bus master, no legacy interrupt
  put16(0x06, 0x0010);  // has a capability list
  c[0x08] = 0xA1;
  c[0x09] = static_cast<unsigned char>(f.pci_class);
  put16(0x0A, f.pci_class >> 8);
  put16(0x2C, f.subsystem_vendor);
  put16(0x2E, f.subsystem);
  c[0x34] = 0x60;
  c[0x60] = 0x01, c[0x61] = 0x68, put16(0x62, 0x0003);
  c[0x68] = 0x05, c[0x69] = 0x78, put16(0x6A, 0x0080);
  c[0x78] = 0x10, c[0x79] = 0x00, put16(0x7A, 0x0002);
  return std::string(reinterpret_cast<const char*>(c.data()), c.size());
}

std::string pci_resources(const PciFunction& f) {
  std::string out;
  std::uint64_t base = 0x380000000000ULL + (std::uint64_t{f.bus} << 38);
  auto line = [&](std::uint64_t start, std::uint64_t size, std::uint64_t flags) {
    out +=
        size ? text("0x%016llx 0x%016llx 0x%016llx\n", static_cast<unsigned long long>(start),
                    static_cast<unsigned long long>(start + size - 1), static_cast<unsigned long long>(flags))
             : text("0x%016x 0x%016x 0x%016x\n", 0, 0, 0);
  };
  line(0x90000000ULL + (std::uint64_t{f.bus} << 20), 16u << 20, 0x40200);
  line(base, f.bar_bytes, 0x14220c);
  line(0, 0, 0);
  line(f.bar_bytes ? base + (std::uint64_t{1} << 37) : 0, f.bar_bytes ? 32u << 20 : 0, 0x14220c);
  for (int i = 4; i < 13; ++i) line(0, 0, 0);
  return out;
}

Result<> put_pci_function(const fs::path& root, const PciFunction& f, int iommu_group) {
  std::string address = pci_address(f);
  fs::path bridge = text("devices/pci%04x:%02x", f.domain, f.bus & 0xF0);
  fs::path dir = root / "sys" / bridge / address;
  auto hex = [](std::uint32_t v, int digits) { return text("0x%0*x\n", digits, v); };
  TRY(put(dir / "vendor", hex(f.vendor, 4)));
  TRY(put(dir / "device", hex(f.id, 4)));
  TRY(put(dir / "subsystem_vendor", hex(f.subsystem_vendor, 4)));
  TRY(put(dir / "subsystem_device", hex(f.subsystem, 4)));
  TRY(put(dir / "class", hex(f.pci_class, 6)));
  TRY(put(dir / "revision", "0xa1\n"));
  TRY(put(dir / "irq", std::to_string(100 + f.bus) + "\n"));
  TRY(put(dir / "enable", "1\n"));
  TRY(put(dir / "numa_node", std::to_string(f.numa) + "\n"));
  TRY(put(dir / "config", pci_config(f)));
  TRY(put(dir / "resource", pci_resources(f)));
  TRY(put(dir / "driver_override", "(null)\n"));
  std::string modalias =
      text("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X\n", f.vendor, f.id, f.subsystem_vendor, f.subsystem,
           f.pci_class >> 16, f.pci_class >> 8 & 0xFF, f.pci_class & 0xFF);
  TRY(put(dir / "modalias", modalias));
  TRY(put(dir / "uevent",
          text("PCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=",
               f.pci_class, f.vendor, f.id, f.subsystem_vendor, f.subsystem, address.c_str()) +
              modalias));
  TRY(put_link(fs::path("../../..") / bridge / address, root / "sys/bus/pci/devices" / address));
  fs::path group = root / "sys/kernel/iommu_groups" / std::to_string(iommu_group);
  TRY(put(group / "type", "DMA-FQ\n"));
  TRY(put_link(fs::path("../../../..") / bridge / address, group / "devices" / address));
  TRY(put_link(fs::path("../../../kernel/iommu_groups") / std::to_string(iommu_group), dir / "iommu_group"));
  if (!f.driver.empty()) {
    TRY(put_link(fs::path("../../../bus/pci/drivers") / f.driver, dir / "driver"));
    TRY(put_link(fs::path("../../../..") / bridge / address,
                 root / "sys/bus/pci/drivers" / f.driver / address));
  }
  return {};
}

Result<> put_pci(const fs::path& root, const NodeHardware& hw, const State& state) {
  TRY(drop(root / "sys/bus/pci"));
  TRY(drop(root / "sys/kernel/iommu_groups"));
  TRY(make_dirs(root / "sys/bus/pci/devices"));
  TRY(make_dirs(root / "sys/bus/pci/drivers/vfio-pci"));
  std::vector<PciFunction> functions;
  functions.push_back({.bus = 0,
                       .device = 0,
                       .vendor = 0x8086,
                       .id = 0x09a2,
                       .subsystem_vendor = 0x8086,
                       .pci_class = 0x060000});
  functions.push_back({.bus = 2,
                       .device = 0,
                       .vendor = 0x1a03,
                       .id = 0x2000,
                       .subsystem_vendor = 0x1a03,
                       .subsystem = 0x2000,
                       .pci_class = 0x030000,
                       .driver = "ast"});
  functions.push_back({.bus = 4,
                       .device = 0,
                       .vendor = 0x8086,
                       .id = 0x1563,
                       .subsystem_vendor = 0x8086,
                       .subsystem = 0x0001,
                       .pci_class = 0x020000,
                       .driver = "ixgbe"});
  functions.push_back({.bus = 5,
                       .device = 0,
                       .vendor = 0x144d,
                       .id = 0xa80a,
                       .subsystem_vendor = 0x144d,
                       .subsystem = 0xa801,
                       .pci_class = 0x010802,
                       .driver = "nvme"});
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const Board& b = state.gpus[g].board;
    functions.push_back({.domain = b.domain,
                         .bus = b.bus,
                         .device = b.device,
                         .vendor = b.pci_id & 0xFFFF,
                         .id = b.pci_id >> 16,
                         .subsystem_vendor = b.subsystem_id & 0xFFFF,
                         .subsystem = b.subsystem_id >> 16,
                         .pci_class = b.pci_class,
                         .numa = b.numa_node,
                         .bar_bytes = b.bar1_bytes});
  }
  int group = 0;
  for (PciFunction& f : functions) {
    if (hw.numa_nodes == 0) f.numa = -1;
    TRY(put_pci_function(root, f, group++));
  }
  return {};
}

std::string cpu_list(int first, int count) {
  return count <= 0 ? "\n" : count == 1 ? text("%d\n", first) : text("%d-%d\n", first, first + count - 1);
}

Result<> put_cpus(const fs::path& root, const NodeHardware& hw) {
  fs::path cpu = root / "sys/devices/system/cpu", node = root / "sys/devices/system/node";
  TRY(drop(cpu));
  TRY(drop(node));
  int nodes = std::max(hw.numa_nodes, 1), per_node = std::max(1, hw.cpus / nodes);
  std::string all = cpu_list(0, hw.cpus);
  for (const char* name : {"online", "present", "possible"}) TRY(put(cpu / name, all));
  TRY(put(cpu / "kernel_max", "8191\n"));
  TRY(put(cpu / "offline", "\n"));
  for (int i = 0; i < hw.cpus; ++i) {
    fs::path topology = cpu / text("cpu%d", i) / "topology";
    int package = std::min(i / per_node, nodes - 1), core = i % per_node / 2;
    // Two threads a core, next to each other.
    int first = i - i % 2, threads = first + 1 < hw.cpus ? 2 : 1;
    TRY(put(topology / "physical_package_id", text("%d\n", package)));
    TRY(put(topology / "core_id", text("%d\n", core)));
    TRY(put(topology / "thread_siblings_list", cpu_list(first, threads)));
    TRY(put(topology / "core_cpus_list", cpu_list(first, threads)));
  }
  TRY(put(cpu / "smt/active", hw.cpus > 1 ? "1\n" : "0\n"));
  TRY(put(cpu / "smt/control", "on\n"));
  std::string numbers = cpu_list(0, nodes);
  for (const char* name : {"online", "possible", "has_cpu", "has_memory", "has_normal_memory"}) {
    TRY(put(node / name, numbers));
  }
  for (int n = 0; n < nodes; ++n) {
    fs::path dir = node / text("node%d", n);
    int count = n == nodes - 1 ? hw.cpus - n * per_node : per_node;
    std::string distance;
    for (int m = 0; m < nodes; ++m) distance += text(m ? " %d" : "%d", m == n ? 10 : 21);
    TRY(put(dir / "cpulist", cpu_list(n * per_node, count)));
    for (int i = n * per_node; i < n * per_node + count; ++i)
      TRY(put_link(text("../../cpu/cpu%d", i), dir / text("cpu%d", i)));
    TRY(put(dir / "distance", distance + "\n"));
    long long kib = hw.memory_mib * 1024 / nodes;
    TRY(put(dir / "meminfo", text("Node %d MemTotal:       %lld kB\nNode %d MemFree:        %lld kB\n", n,
                                  kib, n, kib * 9 / 10)));
    for (int pages : {2048, 1048576}) {
      TRY(put(dir / text("hugepages/hugepages-%dkB/nr_hugepages", pages), "0\n"));
    }
  }
  return {};
}

Result<> put_dmi(const fs::path& root, const NodeHardware& hw, const GpuProfile* profile) {
  fs::path dmi = root / "sys/class/dmi/id";
  std::string serial = text("SIM%08llX", static_cast<unsigned long long>(hw.seed & 0xFFFFFFFF));
  auto entry = [&](const char* name, const std::string& value) { return put(dmi / name, value + "\n"); };
  TRY(entry("sys_vendor", profile ? profile->machine_vendor : "Dell Inc."));
  TRY(entry("product_name", profile ? profile->machine_product : "PowerEdge R650"));
  TRY(entry("board_name", profile ? profile->machine_board : "0PYXKY"));
  TRY(entry("board_vendor", profile ? profile->machine_vendor : "Dell Inc."));
  TRY(entry("bios_vendor", profile ? profile->machine_vendor : "Dell Inc."));
  TRY(entry("bios_version", "2.4.4"));
  TRY(entry("product_serial", serial));
  TRY(entry("chassis_type", "23"));
  return {};
}

Result<> put_proc(const fs::path& root, const NodeHardware& hw) {
  fs::path proc = root / "proc";
  // Always there, whatever drivers there are: it is bound where the node's /proc/driver shows.
  TRY(make_dirs(proc / "driver"));
  TRY(put(proc / "sys/kernel/osrelease", hw.kernel_release + "\n"));
  TRY(put(proc / "sys/kernel/ostype", "Linux\n"));
  TRY(put(proc / "version", "Linux version " + hw.kernel_release +
                                " (buildd@lcy02) (gcc 13.3.0, GNU ld 2.42) #63 SMP PREEMPT_DYNAMIC\n"));
  TRY(put(proc / "cmdline", "BOOT_IMAGE=/boot/vmlinuz-" + hw.kernel_release + " root=/dev/nvme0n1p2 ro\n"));
  long long kib = hw.memory_mib * 1024;
  TRY(put(proc / "meminfo",
          text("MemTotal:       %lld kB\nMemFree:        %lld kB\nMemAvailable:   %lld kB\n", kib,
               kib * 9 / 10, kib * 19 / 20)));
  std::string cpus;
  for (int i = 0; i < hw.cpus; ++i) {
    cpus += text(
        "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: Intel(R) Xeon(R) Platinum 8480C\nstepping\t: 8\n"
        "flags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2 avx avx2 avx512f avx512bw avx512vl amx_tile\n\n",
        i);
  }
  TRY(put(proc / "cpuinfo", cpus));
  return {};
}

Result<> put_kernel(const fs::path& root, const NodeHardware& hw) {
  fs::path modules = root / "lib/modules" / hw.kernel_release;
  TRY(put(root / "boot" / ("config-" + hw.kernel_release),
          "CONFIG_MODULES=y\nCONFIG_NUMA=y\nCONFIG_IOMMU_SUPPORT=y\nCONFIG_VFIO=m\nCONFIG_VFIO_PCI=m\nCONFIG_"
          "PREEMPT=n\n"
          "CONFIG_NO_HZ=y\nCONFIG_NO_HZ_IDLE=y\nCONFIG_HZ=1000\nCONFIG_CGROUPS=y\nCONFIG_SECCOMP=y\n"));
  TRY(put(modules / "modules.builtin", "kernel/drivers/i2c/i2c-core.ko\nkernel/fs/overlayfs/overlay.ko\n"));
  TRY(put(modules / "modules.alias", "# Aliases extracted from modules themselves.\n"));
  // Names need no hyphen rule here: files are as the kernel ships them.
  for (const char* name : {"drivers/char/ipmi/ipmi_msghandler", "drivers/char/ipmi/ipmi_devintf",
                           "drivers/vfio/pci/vfio-pci", "drivers/video/video", "drivers/i2c/i2c_core"}) {
    TRY(put(modules / "kernel" / (std::string(name) + ".ko"), module_text("", hw.kernel_release)));
  }
  return {};
}

Result<State> initial_state(const NodeHardware& hw, const GpuProfile* profile) {
  State state{};
  state.seed = hw.seed;
  state.boot_us = now_us();
  state.gpu_count = static_cast<std::uint32_t>(profile ? hw.count : 0);
  if (profile) {
    if (hw.vgpu_host && profile->vgpu_types.empty()) {
      return fail(Code::kInvalid,
                  "build node tree: a vGPU host of '" + profile->model + "': this model has no vGPU types");
    }
    state.vgpu_host = hw.vgpu_host ? 1 : 0;
    state.vgpu_type_count = static_cast<std::uint32_t>(profile->vgpu_types.size());
    std::copy(profile->vgpu_types.begin(), profile->vgpu_types.end(), state.vgpu_types);
  }
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    Gpu& gpu = state.gpus[g];
    gpu.board = TRY(make_board(*profile, hw.seed, static_cast<int>(g), hw.count, hw.numa_nodes,
                               {hw.fabric_seed, hw.fabric_clique}));
    gpu.live.load_since_us = state.boot_us;
    gpu.live.ecc_current = gpu.live.ecc_pending = gpu.board.ecc_supported;
  }
  return state;
}

// Whether `kept` is of the same boards; their UUIDs follow from model, seed and place.
bool same_hardware(const State& kept, const State& wanted) {
  if (kept.gpu_count != wanted.gpu_count || kept.seed != wanted.seed || kept.vgpu_host != wanted.vgpu_host)
    return false;
  for (std::uint32_t g = 0; g < kept.gpu_count; ++g) {
    const Board &a = kept.gpus[g].board, &b = wanted.gpus[g].board;
    if (std::strcmp(a.uuid, b.uuid) != 0 || a.memory_bytes != b.memory_bytes || a.bus != b.bus ||
        a.numa_node != b.numa_node || a.gi_profile_count != b.gi_profile_count) {
      return false;
    }
  }
  return true;
}

Result<> check(const NodeHardware& hw) {
  auto range = [](const char* what, long long v, long long low, long long high) -> Result<> {
    if (v >= low && v <= high) return {};
    return fail(Code::kInvalid,
                text("build node tree: %s: must be %lld to %lld; got %lld", what, low, high, v));
  };
  TRY(range("GPUs", hw.count, 0, kMaxGpus));
  TRY(range("cpus", hw.cpus, 1, 1024));
  TRY(range("NUMA nodes", hw.numa_nodes, 0, 64));
  TRY(range("memory_mib", hw.memory_mib, 1, 1LL << 32));
  if (hw.kernel_release.empty() || hw.kernel_release.find('/') != std::string::npos) {
    return fail(Code::kInvalid, "build node tree: kernel release '" + hw.kernel_release + "': not a release");
  }
  if (hw.count > 0 && hw.model.empty()) return fail(Code::kInvalid, "build node tree: GPUs without a model");
  return {};
}

}  // namespace

Result<> build_node_tree(const NodeHardware& hw, const fs::path& root) {
  TRY(check(hw));
  std::optional<GpuProfile> profile;
  if (hw.count > 0) profile = TRY(load_profile(hw.profiles, hw.model));
  // Large: not on the stack.
  auto wanted = std::make_unique<State>(TRY(initial_state(hw, profile ? &*profile : nullptr)));

  fs::path state_file = hardware_state_path(root);
  TRY(make_dirs(state_file.parent_path()));
  StateFile file;
  bool keep = file.open(state_file.string()) == StateFault::kNone && same_hardware(*file.read(), *wanted);
  if (!keep && StateFile::create(state_file.string(), *wanted) != StateFault::kNone) {
    return fail(Code::kIo, "build node tree: write hardware state '" + state_file.string() + "'");
  }
  const State* state = keep ? file.read() : wanted.get();
  bool driver_was_loaded = state->driver_loaded != 0;

  TRY(put_pci(root, hw, *state));
  TRY(put_cpus(root, hw));
  TRY(put_dmi(root, hw, profile ? &*profile : nullptr));
  TRY(put_proc(root, hw));
  TRY(put_kernel(root, hw));
  // Profiles alone (tests of the tree) bring no programs.
  fs::path sim_dir = hw.profiles.parent_path();
  if (file_exists(sim_dir / "bin/modprobe")) TRY(install_module_tools(sim_dir, root));
  TRY(put(root / "sys/module/firmware_class/parameters/path", "\n"));
  if (!keep || !driver_was_loaded) {
    TRY(drop(root / "proc/driver/nvidia"));
    TRY(put(root / "proc/modules", ""));
    TRY(put(root / "proc/devices", base_devices()));
  } else {
    TRY(bind_gpu_driver(root, *state));
  }
  return {};
}

Result<std::string> os_release_text(std::string_view id, std::string_view version) {
  std::string v(version);
  if (id == "ubuntu") {
    std::string codename = v == "22.04" ? "jammy" : v == "24.04" ? "noble" : v == "26.04" ? "resolute" : "";
    if (codename.empty()) {
      return fail(Code::kInvalid, "os-release of 'ubuntu " + v + "': known versions are 22.04, 24.04, 26.04");
    }
    return "PRETTY_NAME=\"Ubuntu " + v + " LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"" + v +
           "\"\nVERSION_CODENAME=" + codename + "\nID=ubuntu\nID_LIKE=debian\n";
  }
  if (id == "rhel" || id == "rocky" || id == "ol") {
    std::string name = id == "rhel"    ? "Red Hat Enterprise Linux"
                       : id == "rocky" ? "Rocky Linux"
                                       : "Oracle Linux";
    return "NAME=\"" + name + "\"\nVERSION=\"" + v + "\"\nID=\"" + std::string(id) +
           "\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"" + v + "\"\nPRETTY_NAME=\"" + name + " " + v + "\"\n";
  }
  if (id == "sles") {
    return "NAME=\"SLES\"\nVERSION=\"" + v + "\"\nVERSION_ID=\"" + v + "\"\nID=\"sles\"\nID_LIKE=\"suse\"\n";
  }
  if (id == "debian") {
    return "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"" + v + "\"\nID=debian\nPRETTY_NAME=\"Debian GNU/Linux " +
           v + "\"\n";
  }
  if (id == "flatcar")
    return "NAME=\"Flatcar Container Linux by Kinvolk\"\nID=flatcar\nID_LIKE=coreos\nVERSION_ID=" + v + "\n";
  const std::vector<std::string> known = {"ubuntu", "rhel", "rocky", "ol", "sles", "debian", "flatcar"};
  return fail(Code::kInvalid, "os-release of '" + std::string(id) +
                                  "': unknown operating system; known are " + join(known, ", ") +
                                  did_you_mean(id, known));
}

}  // namespace gpuop::sim
