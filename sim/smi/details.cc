// nvidia-smi -q: an outline of a board, as text or as XML.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/smi/nvml.h"

namespace gpuop::sim::smi {

namespace {

// A heading with lines and headings beneath it.
struct Outline {
  std::string name, xml, value;  // no value: a heading
  std::vector<std::unique_ptr<Outline>> parts;

  Outline& add(const std::string& name_, const std::string& xml_, const std::string& value_ = "") {
    parts.push_back(std::make_unique<Outline>());
    parts.back()->name = name_;
    parts.back()->xml = xml_;
    parts.back()->value = value_;
    return *parts.back();
  }
};

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

void print_text(const Outline& o, int depth) {
  for (const auto& p : o.parts) {
    if (p->value.empty()) {
      printf("%*s%s\n", depth * 4, "", p->name.c_str());
      print_text(*p, depth + 1);
    } else {
      printf("%*s%-*s: %s\n", depth * 4, "", 50 - depth * 4, p->name.c_str(), p->value.c_str());
    }
  }
}

void print_xml(const Outline& o, int depth) {
  std::string indent(static_cast<std::size_t>(depth), '\t');
  for (const auto& p : o.parts) {
    if (!p->value.empty()) {
      printf("%s<%s>%s</%s>\n", indent.c_str(), p->xml.c_str(), escaped(p->value).c_str(), p->xml.c_str());
      continue;
    }
    printf("%s<%s>\n", indent.c_str(), p->xml.c_str());
    print_xml(*p, depth + 1);
    printf("%s</%s>\n", indent.c_str(), p->xml.c_str());
  }
}

struct Board {
  Nvml& n;
  Device d;
  std::string field(const char* query) const {
    std::string out;
    return query_field(n, query, d, false, &out) && out != "[N/A]" && !out.empty() ? out : "N/A";
  }
};

struct Line {
  const char *name, *xml, *query;
};

void add_lines(Outline& o, const Board& b, std::initializer_list<Line> lines) {
  for (const Line& l : lines) o.add(l.name, l.xml, b.field(l.query));
}

std::string brand(const Board& b) {
  int brand = 0;
  b.n.call("nvmlDeviceGetBrand", b.d, &brand);
  const char* names[] = {"Unknown", "Quadro", "Tesla", "NVS", "GRID", "GeForce", "Titan"};
  if (brand >= 0 && brand <= 6) return names[brand];
  return brand == 12 ? "Quadro RTX" : brand == 13 ? "NVIDIA RTX" : brand == 14 ? "NVIDIA" : "GeForce RTX";
}

std::string architecture(const Board& b) {
  unsigned a = b.n.number("nvmlDeviceGetArchitecture", b.d);
  const char* names[] = {"Kepler", "Maxwell",      "Pascal", "Volta",    "Turing",
                         "Ampere", "Ada Lovelace", "Hopper", "Blackwell"};
  return a >= 2 && a <= 10 ? names[a - 2] : "Unknown";
}

void add_product(Outline& o, const Board& b) {
  o.add("Product Name", "product_name", b.field("name"));
  o.add("Product Brand", "product_brand", brand(b));
  o.add("Product Architecture", "product_architecture", architecture(b));
  add_lines(o, b,
            {{"Display Mode", "display_mode", "display_mode"},
             {"Display Active", "display_active", "display_active"},
             {"Persistence Mode", "persistence_mode", "persistence_mode"},
             {"Addressing Mode", "addressing_mode", "addressing_mode"}});
  Outline& mig = o.add("MIG Mode", "mig_mode");
  add_lines(mig, b,
            {{"Current", "current_mig", "mig.mode.current"}, {"Pending", "pending_mig", "mig.mode.pending"}});
}

void add_identity(Outline& o, const Board& b) {
  add_lines(o, b,
            {{"Accounting Mode", "accounting_mode", "accounting.mode"},
             {"Serial Number", "serial", "serial"},
             {"GPU UUID", "uuid", "uuid"},
             {"Minor Number", "minor_number", "minor_number"},
             {"VBIOS Version", "vbios_version", "vbios_version"},
             {"MultiGPU Board", "multigpu_board", "multigpu_board"},
             {"Board Part Number", "board_part_number", "board_part_number"},
             {"Module ID", "gpu_module_id", "module_id"}});
  Outline& inforom = o.add("Inforom Version", "inforom_version");
  add_lines(inforom, b,
            {{"Image Version", "img_version", "inforom.img"},
             {"OEM Object", "oem_object", "inforom.oem"},
             {"ECC Object", "ecc_object", "inforom.ecc"},
             {"Power Management Object", "pwr_object", "inforom.pwr"}});
  Outline& virt = o.add("GPU Virtualization Mode", "gpu_virtualization_mode");
  add_lines(virt, b, {{"Virtualization Mode", "virtualization_mode", "virtualization_mode"}});
  o.add("GPU Recovery Action", "gpu_recovery_action", b.field("gpu_recovery_action"));
}

void add_pci(Outline& o, const Board& b) {
  Outline& pci = o.add("PCI", "pci");
  add_lines(pci, b,
            {{"Bus", "pci_bus", "pci.bus"},
             {"Device", "pci_device", "pci.device"},
             {"Domain", "pci_domain", "pci.domain"},
             {"Device Id", "pci_device_id", "pci.device_id"},
             {"Bus Id", "pci_bus_id", "pci.bus_id"},
             {"Sub System Id", "pci_sub_system_id", "pci.sub_device_id"}});
  Outline& link = pci.add("GPU Link Info", "pci_gpu_link_info");
  Outline& gen = link.add("PCIe Generation", "pcie_gen");
  add_lines(gen, b,
            {{"Max", "max_link_gen", "pcie.link.gen.max"},
             {"Current", "current_link_gen", "pcie.link.gen.current"}});
  Outline& width = link.add("Link Width", "link_widths");
  add_lines(width, b,
            {{"Max", "max_link_width", "pcie.link.width.max"},
             {"Current", "current_link_width", "pcie.link.width.current"}});
  pci.add("Replays Since Reset", "replay_counter", b.field("pcie.replays"));
}

void add_performance(Outline& o, const Board& b) {
  add_lines(o, b,
            {{"Fan Speed", "fan_speed", "fan.speed"}, {"Performance State", "performance_state", "pstate"}});
  Outline& reasons = o.add("Clocks Event Reasons", "clocks_event_reasons");
  add_lines(reasons, b,
            {{"Idle", "clocks_event_reason_gpu_idle", "clocks_event_reasons.gpu_idle"},
             {"Applications Clocks Setting", "clocks_event_reason_applications_clocks_setting",
              "clocks_event_reasons.applications_clocks_setting"},
             {"SW Power Cap", "clocks_event_reason_sw_power_cap", "clocks_event_reasons.sw_power_cap"},
             {"HW Slowdown", "clocks_event_reason_hw_slowdown", "clocks_event_reasons.hw_slowdown"},
             {"HW Thermal Slowdown", "clocks_event_reason_hw_thermal_slowdown",
              "clocks_event_reasons.hw_thermal_slowdown"},
             {"HW Power Brake Slowdown", "clocks_event_reason_hw_power_brake_slowdown",
              "clocks_event_reasons.hw_power_brake_slowdown"},
             {"SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown",
              "clocks_event_reasons.sw_thermal_slowdown"}});
}

void add_memory(Outline& o, const Board& b) {
  Outline& fb = o.add("FB Memory Usage", "fb_memory_usage");
  add_lines(fb, b,
            {{"Total", "total", "memory.total"},
             {"Reserved", "reserved", "memory.reserved"},
             {"Used", "used", "memory.used"},
             {"Free", "free", "memory.free"}});
  nvml::Bar1Memory m{};
  int code = b.n.call("nvmlDeviceGetBAR1MemoryInfo", b.d, &m);
  auto mib = [&](std::uint64_t bytes) { return code ? "N/A" : std::to_string(bytes >> 20) + " MiB"; };
  Outline& bar1 = o.add("BAR1 Memory Usage", "bar1_memory_usage");
  bar1.add("Total", "total", mib(m.total));
  bar1.add("Used", "used", mib(m.used));
  bar1.add("Free", "free", mib(m.free));
}

void add_utilization(Outline& o, const Board& b) {
  Outline& u = o.add("Utilization", "utilization");
  add_lines(u, b,
            {{"GPU", "gpu_util", "utilization.gpu"},
             {"Memory", "memory_util", "utilization.memory"},
             {"Encoder", "encoder_util", "utilization.encoder"},
             {"Decoder", "decoder_util", "utilization.decoder"},
             {"JPEG", "jpeg_util", "utilization.jpeg"},
             {"OFA", "ofa_util", "utilization.ofa"}});
}

void add_ecc(Outline& o, const Board& b) {
  Outline& mode = o.add("ECC Mode", "ecc_mode");
  add_lines(mode, b,
            {{"Current", "current_ecc", "ecc.mode.current"}, {"Pending", "pending_ecc", "ecc.mode.pending"}});
  Outline& errors = o.add("ECC Errors", "ecc_errors");
  Outline& now = errors.add("Volatile", "volatile");
  add_lines(now, b,
            {{"SRAM Correctable", "sram_correctable", "ecc.errors.corrected.volatile.sram"},
             {"SRAM Uncorrectable", "sram_uncorrectable", "ecc.errors.uncorrected.volatile.sram"},
             {"DRAM Correctable", "dram_correctable", "ecc.errors.corrected.volatile.dram"},
             {"DRAM Uncorrectable", "dram_uncorrectable", "ecc.errors.uncorrected.volatile.dram"}});
  Outline& ever = errors.add("Aggregate", "aggregate");
  add_lines(ever, b,
            {{"SRAM Correctable", "sram_correctable", "ecc.errors.corrected.aggregate.sram"},
             {"SRAM Uncorrectable", "sram_uncorrectable", "ecc.errors.uncorrected.aggregate.sram"},
             {"DRAM Correctable", "dram_correctable", "ecc.errors.corrected.aggregate.dram"},
             {"DRAM Uncorrectable", "dram_uncorrectable", "ecc.errors.uncorrected.aggregate.dram"}});
}

void add_retired(Outline& o, const Board& b) {
  Outline& pages = o.add("Retired Pages", "retired_pages");
  add_lines(pages, b,
            {{"Single Bit ECC", "multiple_single_bit_retirement", "retired_pages.single_bit_ecc.count"},
             {"Double Bit ECC", "double_bit_retirement", "retired_pages.double_bit.count"},
             {"Pending Page Blacklist", "pending_blacklist", "retired_pages.pending"}});
}

void add_remapped(Outline& o, const Board& b) {
  Outline& rows = o.add("Remapped Rows", "remapped_rows");
  add_lines(rows, b,
            {{"Correctable Error", "remapped_row_corr", "remapped_rows.correctable"},
             {"Uncorrectable Error", "remapped_row_unc", "remapped_rows.uncorrectable"},
             {"Pending", "remapped_row_pending", "remapped_rows.pending"},
             {"Remapping Failure Occurred", "remapped_row_failure", "remapped_rows.failure"}});
}

std::string threshold(const Board& b, int kind) {
  unsigned v = 0;
  return b.n.call("nvmlDeviceGetTemperatureThreshold", b.d, kind, &v) ? "N/A" : std::to_string(v) + " C";
}

void add_temperature(Outline& o, const Board& b) {
  Outline& t = o.add("Temperature", "temperature");
  auto degrees = [&](const char* query) {
    std::string v = b.field(query);
    return v == "N/A" ? v : v + " C";
  };
  t.add("GPU Current Temp", "gpu_temp", degrees("temperature.gpu"));
  t.add("GPU T.Limit Temp", "gpu_temp_tlimit", degrees("temperature.gpu.tlimit"));
  t.add("GPU Shutdown Temp", "gpu_temp_max_threshold", threshold(b, 0));
  t.add("GPU Slowdown Temp", "gpu_temp_slow_threshold", threshold(b, 1));
  t.add("GPU Max Operating Temp", "gpu_temp_max_gpu_threshold", threshold(b, 3));
  t.add("Memory Current Temp", "memory_temp", degrees("temperature.memory"));
  t.add("Memory Max Operating Temp", "gpu_temp_max_mem_threshold", threshold(b, 2));
}

void add_power(Outline& o, const Board& b) {
  Outline& p = o.add("GPU Power Readings", "gpu_power_readings");
  add_lines(p, b,
            {{"Average Power Draw", "average_power_draw", "power.draw.average"},
             {"Instantaneous Power Draw", "instant_power_draw", "power.draw.instant"},
             {"Current Power Limit", "current_power_limit", "enforced.power.limit"},
             {"Requested Power Limit", "requested_power_limit", "power.limit"},
             {"Default Power Limit", "default_power_limit", "power.default_limit"},
             {"Min Power Limit", "min_power_limit", "power.min_limit"},
             {"Max Power Limit", "max_power_limit", "power.max_limit"}});
}

void add_clocks(Outline& o, const Board& b) {
  Outline& now = o.add("Clocks", "clocks");
  add_lines(now, b,
            {{"Graphics", "graphics_clock", "clocks.gr"},
             {"SM", "sm_clock", "clocks.sm"},
             {"Memory", "mem_clock", "clocks.mem"},
             {"Video", "video_clock", "clocks.current.video"}});
  Outline& app = o.add("Applications Clocks", "applications_clocks");
  add_lines(app, b,
            {{"Graphics", "graphics_clock", "clocks.applications.graphics"},
             {"Memory", "mem_clock", "clocks.applications.memory"}});
  Outline& max = o.add("Max Clocks", "max_clocks");
  add_lines(max, b,
            {{"Graphics", "graphics_clock", "clocks.max.graphics"},
             {"SM", "sm_clock", "clocks.max.sm"},
             {"Memory", "mem_clock", "clocks.max.memory"},
             {"Video", "video_clock", "clocks.max.video"}});
}

void add_supported_clocks(Outline& o, const Board& b) {
  Outline& all = o.add("Supported Clocks", "supported_clocks");
  unsigned memory[8], count = 8;
  if (b.n.call("nvmlDeviceGetSupportedMemoryClocks", b.d, &count, static_cast<unsigned*>(memory))) return;
  for (unsigned i = 0; i < count; ++i) {
    Outline& m = all.add("Memory " + std::to_string(memory[i]) + " MHz", "supported_mem_clock");
    m.add("Memory", "value", std::to_string(memory[i]) + " MHz");
    std::vector<unsigned> graphics(512);
    unsigned have = 512;
    if (b.n.call("nvmlDeviceGetSupportedGraphicsClocks", b.d, memory[i], &have, graphics.data())) continue;
    for (unsigned g = 0; g < have; ++g)
      m.add("Graphics", "supported_graphics_clock", std::to_string(graphics[g]) + " MHz");
  }
}

void add_fabric(Outline& o, const Board& b) {
  Outline& f = o.add("Fabric", "fabric");
  add_lines(f, b,
            {{"State", "state", "fabric.state"},
             {"Status", "status", "fabric.status"},
             {"CliqueId", "cliqueId", "fabric.cliqueId"},
             {"ClusterUUID", "clusterUuid", "fabric.clusterUuid"}});
  Outline& health = f.add("Health", "health");
  add_lines(health, b, {{"Summary", "summary", "fabric.health.summary"}});
}

void add_mig_devices(Outline& o, const Board& b) {
  auto all = mig_devices(b.n, b.d);
  if (all.empty()) return;
  Outline& devices = o.add("MIG Devices", "mig_devices");
  for (const auto& [index, mig] : all) {
    Outline& m = devices.add("Device " + std::to_string(index), "mig_device");
    m.add("Index", "index", std::to_string(index));
    m.add("GPU Instance ID", "gpu_instance_id",
          std::to_string(b.n.number("nvmlDeviceGetGpuInstanceId", mig)));
    m.add("Compute Instance ID", "compute_instance_id",
          std::to_string(b.n.number("nvmlDeviceGetComputeInstanceId", mig)));
    nvml::DeviceAttributes a{};
    b.n.call("nvmlDeviceGetAttributes_v2", mig, &a);
    Outline& shared = m.add("Device Attributes", "device_attributes").add("Shared", "shared");
    shared.add("Multiprocessor count", "multiprocessor_count", std::to_string(a.multiprocessors));
    shared.add("Copy Engine count", "copy_engine_count", std::to_string(a.copy_engines));
    shared.add("Encoder count", "encoder_count", std::to_string(a.encoders));
    shared.add("Decoder count", "decoder_count", std::to_string(a.decoders));
    shared.add("OFA count", "ofa_count", std::to_string(a.ofas));
    shared.add("JPG count", "jpg_count", std::to_string(a.jpegs));
    add_memory(m, Board{b.n, mig});
  }
}

void add_processes(Outline& o, const Board& b) {
  auto list = processes(b.n, b.d);
  if (list.empty()) {
    o.add("Processes", "processes", "None");
    return;
  }
  Outline& all = o.add("Processes", "processes");
  for (const auto& p : list) {
    Outline& one = all.add("Process", "process_info");
    auto id = [](std::uint32_t v) { return v == 0xFFFFFFFFu ? "N/A" : std::to_string(v); };
    one.add("GPU Instance ID", "gpu_instance_id", id(p.gi));
    one.add("Compute Instance ID", "compute_instance_id", id(p.ci));
    one.add("Process ID", "pid", std::to_string(p.pid));
    one.add("Type", "type", "C");
    one.add("Name", "process_name", process_name(b.n, p.pid));
    one.add("Used GPU Memory", "used_memory", std::to_string(p.memory >> 20) + " MiB");
  }
}

void add_compute(Outline& o, const Board& b) {
  o.add("Compute Mode", "compute_mode", b.field("compute_mode"));
}

struct Section {
  const char* name;  // of -d; "" for those that only the whole outline has
  void (*add)(Outline&, const Board&);
};
constexpr Section kSections[] = {
    {"", add_product},
    {"", add_mig_devices},
    {"", add_identity},
    {"", add_pci},
    {"PERFORMANCE", add_performance},
    {"MEMORY", add_memory},
    {"COMPUTE", add_compute},
    {"UTILIZATION", add_utilization},
    {"ECC", add_ecc},
    {"PAGE_RETIREMENT", add_retired},
    {"ROW_REMAPPER", add_remapped},
    {"TEMPERATURE", add_temperature},
    {"POWER", add_power},
    {"CLOCK", add_clocks},
    {"SUPPORTED_CLOCKS", add_supported_clocks},
    {"", add_fabric},
    {"PIDS", add_processes},
};

// Supported clocks are hundreds of lines: shown on demand only.
bool wanted(const Section& s, const std::vector<std::string>& names) {
  if (names.empty()) return strcmp(s.name, "SUPPORTED_CLOCKS") != 0;
  return std::find(names.begin(), names.end(), s.name) != names.end();
}

}  // namespace

int print_details(Nvml& n, const Versions& versions, const std::vector<Device>& devices,
                  const std::string& sections, bool xml) {
  auto names = split(sections);
  for (auto& name : names) {
    for (char& c : name) c = static_cast<char>(toupper(c));
    bool known = std::any_of(std::begin(kSections), std::end(kSections),
                             [&](const Section& s) { return *s.name && name == s.name; });
    if (known) continue;
    printf("Invalid display type \"%s\".\n", name.c_str());
    return 2;
  }
  unsigned count = 0;
  n.call("nvmlDeviceGetCount_v2", &count);
  if (xml) {
    printf(
        "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "
        "\"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n");
    printf(
        "\t<driver_version>%s</driver_version>\n\t<cuda_version>%s</cuda_version>\n\t<attached_gpus>%u</"
        "attached_gpus>\n",
        versions.driver.c_str(), versions.cuda_text().c_str(), count);
  } else {
    puts("\n==============NVSMI LOG==============\n");
    printf("%-50s: %s\n%-50s: %s\n\n%-50s: %u\n", "Driver Version", versions.driver.c_str(), "CUDA Version",
           versions.cuda_text().c_str(), "Attached GPUs", count);
  }
  for (Device d : devices) {
    Board board{n, d};
    Outline outline;
    for (const Section& s : kSections) {
      if (wanted(s, names)) s.add(outline, board);
    }
    std::string bus = bus_of(n, d);
    if (xml) {
      printf("\t<gpu id=\"%s\">\n", bus.c_str());
      print_xml(outline, 2);
      puts("\t</gpu>");
    } else {
      printf("GPU %s\n", bus.c_str());
      print_text(outline, 1);
      puts("");
    }
  }
  if (xml) puts("</nvidia_smi_log>");
  return 0;
}

}  // namespace gpuop::sim::smi
