// --query-gpu and --query-compute-apps: names, titles, units and values.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <functional>

#include "sim/smi/nvml.h"

namespace gpuop::sim::smi {

namespace {

using Get = std::function<std::string(Nvml&, Device)>;
struct Field {
  const char* name;
  const char* unit;  // "" for none
  Get get;
};

constexpr const char* kNotAvailable = "[N/A]";

std::string number(const char* format, double v) {
  char out[64];
  snprintf(out, sizeof out, format, v);
  return out;
}

Get uint_of(const char* symbol, double scale = 1, const char* format = "%.0f") {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned v = 0;
    return n.call(symbol, d, &v) ? kNotAvailable : number(format, v * scale);
  };
}

Get text_of(const char* symbol) {
  return [=](Nvml& n, Device d) { return n.text(symbol, d); };
}

Get memory(int part) {
  return [=](Nvml& n, Device d) -> std::string {
    nvml::MemoryV2 m{};
    m.version = nvml::version_word(sizeof m, 2);
    if (n.call("nvmlDeviceGetMemoryInfo_v2", d, &m)) return kNotAvailable;
    const std::uint64_t values[] = {m.total, m.reserved, m.used, m.free};
    return std::to_string(values[part] >> 20);
  };
}

Get utilization(bool of_memory) {
  return [=](Nvml& n, Device d) -> std::string {
    nvml::Utilization u{};
    return n.call("nvmlDeviceGetUtilizationRates", d, &u) ? kNotAvailable
                                                          : std::to_string(of_memory ? u.memory : u.gpu);
  };
}

Get clock(const char* symbol, int type) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned v = 0;
    return n.call(symbol, d, type, &v) ? kNotAvailable : std::to_string(v);
  };
}

Get switched(const char* symbol, const char* off, const char* on) {
  return [=](Nvml& n, Device d) -> std::string {
    int v = 0;
    return n.call(symbol, d, &v) ? kNotAvailable : v ? on : off;
  };
}

Get pair(const char* symbol, bool second) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned a = 0, b = 0;
    if (n.call(symbol, d, &a, &b)) return kNotAvailable;
    return (second ? b : a) ? "Enabled" : "Disabled";
  };
}

Get limits(bool high) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned a = 0, b = 0;
    if (n.call("nvmlDeviceGetPowerManagementLimitConstraints", d, &a, &b)) return kNotAvailable;
    return number("%.2f", (high ? b : a) / 1000.0);
  };
}

Get pci(int part) {
  return [=](Nvml& n, Device d) -> std::string {
    nvml::PciInfo p{};
    if (n.call("nvmlDeviceGetPciInfo_v3", d, &p)) return kNotAvailable;
    char out[32];
    switch (part) {
      case 0:
        return p.bus_id;
      case 1:
        snprintf(out, sizeof out, "0x%04X", p.domain);
        break;
      case 2:
        snprintf(out, sizeof out, "0x%02X", p.bus);
        break;
      case 3:
        snprintf(out, sizeof out, "0x%02X", p.device);
        break;
      case 4:
        snprintf(out, sizeof out, "0x%08X", p.pci_device_id);
        break;
      default:
        snprintf(out, sizeof out, "0x%08X", p.pci_subsystem_id);
        break;
    }
    return out;
  };
}

Get ecc(int error, int counter) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned long long v = 0;
    return n.call("nvmlDeviceGetTotalEccErrors", d, error, counter, &v) ? kNotAvailable : std::to_string(v);
  };
}

std::string compute_mode(Nvml& n, Device d) {
  int v = 0;
  const char* names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
  return n.call("nvmlDeviceGetComputeMode", d, &v) || v < 0 || v > 3 ? kNotAvailable : names[v];
}

std::string compute_capability(Nvml& n, Device d) {
  int major = 0, minor = 0;
  if (n.call("nvmlDeviceGetCudaComputeCapability", d, &major, &minor)) return kNotAvailable;
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string pstate(Nvml& n, Device d) {
  int v = 0;
  return n.call("nvmlDeviceGetPerformanceState", d, &v) ? kNotAvailable : "P" + std::to_string(v);
}

std::string driver_version(Nvml& n, Device) {
  char out[80] = {};
  return n.call("nvmlSystemGetDriverVersion", static_cast<char*>(out), 80u) ? kNotAvailable : out;
}

std::string count(Nvml& n, Device) {
  unsigned v = 0;
  return n.call("nvmlDeviceGetCount_v2", &v) ? kNotAvailable : std::to_string(v);
}

std::string timestamp(Nvml&, Device) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  localtime_r(&now.tv_sec, &parts);
  char day[32], out[48];
  strftime(day, sizeof day, "%Y/%m/%d %H:%M:%S", &parts);
  snprintf(out, sizeof out, "%s.%03ld", day, now.tv_nsec / 1000000);
  return out;
}

Get field_value(unsigned id, double scale = 1, const char* format = "%.0f") {
  return [=](Nvml& n, Device d) -> std::string {
    nvml::FieldValue f{};
    f.field = id;
    f.scope = 0xFFFFFFFFu;
    if (n.call("nvmlDeviceGetFieldValues", d, 1, &f) || f.result) return kNotAvailable;
    double v = f.type == nvml::kUlonglong ? static_cast<double>(f.value.ull) : f.value.u;
    return number(format, v * scale);
  };
}

Get yes_no(unsigned field) {
  return [=](Nvml& n, Device d) -> std::string {
    std::string v = field_value(field)(n, d);
    return v == kNotAvailable ? v : v == "0" ? "No" : "Yes";
  };
}

Get engine(const char* symbol) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned v = 0, period = 0;
    return n.call(symbol, d, &v, &period) ? kNotAvailable : std::to_string(v);
  };
}

Get inforom(int object) {
  return [=](Nvml& n, Device d) -> std::string {
    char out[64] = {};
    return n.call("nvmlDeviceGetInforomVersion", d, object, static_cast<char*>(out), 64u) ? kNotAvailable
                                                                                          : out;
  };
}

Get memory_errors(int error, int counter, int location) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned long long v = 0;
    return n.call("nvmlDeviceGetMemoryErrorCounter", d, error, counter, location, &v) ? kNotAvailable
                                                                                      : std::to_string(v);
  };
}

Get reason(unsigned long long bit) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned long long v = 0;
    if (n.call("nvmlDeviceGetCurrentClocksEventReasons", d, &v)) return kNotAvailable;
    return v & bit ? "Active" : "Not Active";
  };
}

std::string all_reasons(Nvml& n, Device d) {
  unsigned long long v = 0;
  char out[32];
  if (n.call("nvmlDeviceGetCurrentClocksEventReasons", d, &v)) return kNotAvailable;
  snprintf(out, sizeof out, "0x%016llX", v);
  return out;
}

std::string recovery_action(Nvml& n, Device d) {
  const char* names[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"};
  std::string v = field_value(230)(n, d);
  if (v == kNotAvailable) return v;
  unsigned long at = strtoul(v.c_str(), nullptr, 10);
  return at < std::size(names) ? names[at] : "Unknown";
}

std::string addressing_mode(Nvml& n, Device d) {
  nvml::AddressingMode m{};
  m.version = nvml::version_word(sizeof m, 1);
  if (n.call("nvmlDeviceGetAddressingMode", d, &m)) return kNotAvailable;
  return m.value == 2 ? "ATS" : m.value == 1 ? "HMM" : "None";
}

std::string virtualization(Nvml& n, Device d) {
  int v = 0;
  const char* names[] = {"None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"};
  return n.call("nvmlDeviceGetVirtualizationMode", d, &v) || v < 0 || v > 4 ? kNotAvailable : names[v];
}

std::string gsp_mode(Nvml& n, Device d) {
  unsigned on = 0, by_default = 0;
  if (n.call("nvmlDeviceGetGspFirmwareMode", d, &on, &by_default)) return kNotAvailable;
  return on ? "Enabled" : "Disabled";
}

std::string multi_board(Nvml& n, Device d) {
  unsigned v = 0;
  return n.call("nvmlDeviceGetMultiGpuBoard", d, &v) ? kNotAvailable : v ? "Yes" : "No";
}

std::string temperature_margin(Nvml& n, Device d) {
  nvml::MarginTemperature m{};
  m.version = nvml::version_word(sizeof m, 1);
  return n.call("nvmlDeviceGetMarginTemperature", d, &m) ? kNotAvailable : std::to_string(m.margin);
}

bool fabric_info(Nvml& n, Device d, nvml::FabricInfoV3& f) {
  f.version = nvml::version_word(sizeof f, 3);
  return n.call("nvmlDeviceGetGpuFabricInfoV", d, &f) == 0 && f.state != 0;
}
std::string fabric_state(Nvml& n, Device d) {
  nvml::FabricInfoV3 f{};
  const char* names[] = {"N/A", "Not Started", "In Progress", "Completed"};
  return fabric_info(n, d, f) && f.state < 4 ? names[f.state] : kNotAvailable;
}
std::string fabric_status(Nvml& n, Device d) {
  nvml::FabricInfoV3 f{};
  return fabric_info(n, d, f) && f.state == 3 ? n.error(static_cast<int>(f.status)) : kNotAvailable;
}
std::string fabric_clique(Nvml& n, Device d) {
  nvml::FabricInfoV3 f{};
  return fabric_info(n, d, f) && f.state == 3 ? std::to_string(f.clique) : kNotAvailable;
}
std::string fabric_cluster(Nvml& n, Device d) {
  nvml::FabricInfoV3 f{};
  if (!fabric_info(n, d, f) || f.state != 3) return kNotAvailable;
  std::string out;
  for (int i = 0; i < 16; ++i) {
    char two[3];
    snprintf(two, sizeof two, "%02x", f.cluster[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += two;
  }
  return out;
}
std::string fabric_health(Nvml& n, Device d) {
  nvml::FabricInfoV3 f{};
  const char* names[] = {kNotAvailable, "Healthy", "Unhealthy", "Limited Capacity"};
  return fabric_info(n, d, f) && f.health_summary < 4 ? names[f.health_summary] : kNotAvailable;
}

Get retired(int cause) {
  return [=](Nvml& n, Device d) -> std::string {
    unsigned count = 0;
    int code =
        n.call("nvmlDeviceGetRetiredPages", d, cause, &count, static_cast<unsigned long long*>(nullptr));
    return code && code != nvml::kInsufficientSize ? kNotAvailable : std::to_string(count);
  };
}
std::string retired_pending(Nvml& n, Device d) {
  int v = 0;
  return n.call("nvmlDeviceGetRetiredPagesPendingStatus", d, &v) ? kNotAvailable : v ? "Yes" : "No";
}

std::string temperature(Nvml& n, Device d) {
  unsigned v = 0;
  return n.call("nvmlDeviceGetTemperature", d, 0, &v) ? kNotAvailable : std::to_string(v);
}

const Field kFields[] = {
    {"timestamp", "", timestamp},
    {"driver_version", "", driver_version},
    {"count", "", count},
    {"name", "", text_of("nvmlDeviceGetName")},
    {"gpu_name", "", text_of("nvmlDeviceGetName")},
    {"serial", "", text_of("nvmlDeviceGetSerial")},
    {"gpu_serial", "", text_of("nvmlDeviceGetSerial")},
    {"uuid", "", text_of("nvmlDeviceGetUUID")},
    {"gpu_uuid", "", text_of("nvmlDeviceGetUUID")},
    {"vbios_version", "", text_of("nvmlDeviceGetVbiosVersion")},
    {"inforom.img", "", text_of("nvmlDeviceGetInforomImageVersion")},
    {"index", "", uint_of("nvmlDeviceGetIndex")},
    {"pci.bus_id", "", pci(0)},
    {"gpu_bus_id", "", pci(0)},
    {"pci.domain", "", pci(1)},
    {"pci.bus", "", pci(2)},
    {"pci.device", "", pci(3)},
    {"pci.device_id", "", pci(4)},
    {"pci.sub_device_id", "", pci(5)},
    {"pcie.link.gen.current", "", uint_of("nvmlDeviceGetCurrPcieLinkGeneration")},
    {"pcie.link.gen.max", "", uint_of("nvmlDeviceGetMaxPcieLinkGeneration")},
    {"pcie.link.width.current", "", uint_of("nvmlDeviceGetCurrPcieLinkWidth")},
    {"pcie.link.width.max", "", uint_of("nvmlDeviceGetMaxPcieLinkWidth")},
    {"persistence_mode", "", switched("nvmlDeviceGetPersistenceMode", "Disabled", "Enabled")},
    {"display_mode", "", switched("nvmlDeviceGetDisplayMode", "Disabled", "Enabled")},
    {"display_active", "", switched("nvmlDeviceGetDisplayActive", "Disabled", "Enabled")},
    {"compute_mode", "", compute_mode},
    {"compute_cap", "", compute_capability},
    {"mig.mode.current", "", pair("nvmlDeviceGetMigMode", false)},
    {"mig.mode.pending", "", pair("nvmlDeviceGetMigMode", true)},
    {"ecc.mode.current", "", pair("nvmlDeviceGetEccMode", false)},
    {"ecc.mode.pending", "", pair("nvmlDeviceGetEccMode", true)},
    {"ecc.errors.corrected.volatile.total", "", ecc(0, 0)},
    {"ecc.errors.corrected.aggregate.total", "", ecc(0, 1)},
    {"ecc.errors.uncorrected.volatile.total", "", ecc(1, 0)},
    {"ecc.errors.uncorrected.aggregate.total", "", ecc(1, 1)},
    {"pstate", "", pstate},
    {"fan.speed", "%", uint_of("nvmlDeviceGetFanSpeed")},
    {"memory.total", "MiB", memory(0)},
    {"memory.reserved", "MiB", memory(1)},
    {"memory.used", "MiB", memory(2)},
    {"memory.free", "MiB", memory(3)},
    {"utilization.gpu", "%", utilization(false)},
    {"utilization.memory", "%", utilization(true)},
    {"temperature.gpu", "", temperature},
    {"temperature.memory", "", field_value(82)},
    {"power.draw", "W", uint_of("nvmlDeviceGetPowerUsage", 0.001, "%.2f")},
    {"power.limit", "W", uint_of("nvmlDeviceGetPowerManagementLimit", 0.001, "%.2f")},
    {"enforced.power.limit", "W", uint_of("nvmlDeviceGetEnforcedPowerLimit", 0.001, "%.2f")},
    {"power.default_limit", "W", uint_of("nvmlDeviceGetPowerManagementDefaultLimit", 0.001, "%.2f")},
    {"power.min_limit", "W", limits(false)},
    {"power.max_limit", "W", limits(true)},
    {"clocks.current.graphics", "MHz", clock("nvmlDeviceGetClockInfo", 0)},
    {"clocks.gr", "MHz", clock("nvmlDeviceGetClockInfo", 0)},
    {"clocks.current.sm", "MHz", clock("nvmlDeviceGetClockInfo", 1)},
    {"clocks.sm", "MHz", clock("nvmlDeviceGetClockInfo", 1)},
    {"clocks.current.memory", "MHz", clock("nvmlDeviceGetClockInfo", 2)},
    {"clocks.mem", "MHz", clock("nvmlDeviceGetClockInfo", 2)},
    {"clocks.current.video", "MHz", clock("nvmlDeviceGetClockInfo", 3)},
    {"clocks.max.graphics", "MHz", clock("nvmlDeviceGetMaxClockInfo", 0)},
    {"clocks.max.sm", "MHz", clock("nvmlDeviceGetMaxClockInfo", 1)},
    {"clocks.max.memory", "MHz", clock("nvmlDeviceGetMaxClockInfo", 2)},
    {"clocks.max.mem", "MHz", clock("nvmlDeviceGetMaxClockInfo", 2)},
    {"clocks.max.gr", "MHz", clock("nvmlDeviceGetMaxClockInfo", 0)},
    {"clocks.max.video", "MHz", clock("nvmlDeviceGetMaxClockInfo", 3)},
    {"clocks.video", "MHz", clock("nvmlDeviceGetClockInfo", 3)},
    {"clocks.applications.graphics", "MHz", clock("nvmlDeviceGetApplicationsClock", 0)},
    {"clocks.applications.gr", "MHz", clock("nvmlDeviceGetApplicationsClock", 0)},
    {"clocks.applications.memory", "MHz", clock("nvmlDeviceGetApplicationsClock", 2)},
    {"clocks.applications.mem", "MHz", clock("nvmlDeviceGetApplicationsClock", 2)},
    {"clocks.default_applications.graphics", "MHz", clock("nvmlDeviceGetDefaultApplicationsClock", 0)},
    {"clocks.default_applications.memory", "MHz", clock("nvmlDeviceGetDefaultApplicationsClock", 2)},
    {"accounting.mode", "", switched("nvmlDeviceGetAccountingMode", "Disabled", "Enabled")},
    {"accounting.buffer_size", "", uint_of("nvmlDeviceGetAccountingBufferSize")},
    {"addressing_mode", "", addressing_mode},
    {"minor_number", "", uint_of("nvmlDeviceGetMinorNumber")},
    {"module_id", "", uint_of("nvmlDeviceGetModuleId")},
    {"multigpu_board", "", multi_board},
    {"board_part_number", "", text_of("nvmlDeviceGetBoardPartNumber")},
    {"virtualization_mode", "", virtualization},
    {"gsp.mode.current", "", gsp_mode},
    {"gpu_recovery_action", "", recovery_action},
    {"inforom.image", "", text_of("nvmlDeviceGetInforomImageVersion")},
    {"inforom.oem", "", inforom(0)},
    {"inforom.ecc", "", inforom(1)},
    {"inforom.pwr", "", inforom(2)},
    {"pcie.replays", "", uint_of("nvmlDeviceGetPcieReplayCounter")},
    {"pcie.link.gen.gpucurrent", "", uint_of("nvmlDeviceGetCurrPcieLinkGeneration")},
    {"pcie.link.gen.gpumax", "", uint_of("nvmlDeviceGetGpuMaxPcieLinkGeneration")},
    {"pcie.link.gen.hostmax", "", uint_of("nvmlDeviceGetMaxPcieLinkGeneration")},
    {"utilization.encoder", "%", engine("nvmlDeviceGetEncoderUtilization")},
    {"utilization.decoder", "%", engine("nvmlDeviceGetDecoderUtilization")},
    {"utilization.jpeg", "%", engine("nvmlDeviceGetJpgUtilization")},
    {"utilization.ofa", "%", engine("nvmlDeviceGetOfaUtilization")},
    {"temperature.gpu.tlimit", "", temperature_margin},
    {"power.management", "", switched("nvmlDeviceGetPowerManagementMode", "Disabled", "Enabled")},
    {"power.draw.average", "W", field_value(185, 0.001, "%.2f")},
    {"power.draw.instant", "W", field_value(186, 0.001, "%.2f")},
    {"ecc.errors.corrected.volatile.dram", "", memory_errors(0, 0, 2)},
    {"ecc.errors.corrected.volatile.device_memory", "", memory_errors(0, 0, 2)},
    {"ecc.errors.corrected.volatile.sram", "", memory_errors(0, 0, 7)},
    {"ecc.errors.corrected.aggregate.dram", "", memory_errors(0, 1, 2)},
    {"ecc.errors.corrected.aggregate.device_memory", "", memory_errors(0, 1, 2)},
    {"ecc.errors.corrected.aggregate.sram", "", memory_errors(0, 1, 7)},
    {"ecc.errors.uncorrected.volatile.dram", "", memory_errors(1, 0, 2)},
    {"ecc.errors.uncorrected.volatile.device_memory", "", memory_errors(1, 0, 2)},
    {"ecc.errors.uncorrected.volatile.sram", "", memory_errors(1, 0, 7)},
    {"ecc.errors.uncorrected.aggregate.dram", "", memory_errors(1, 1, 2)},
    {"ecc.errors.uncorrected.aggregate.device_memory", "", memory_errors(1, 1, 2)},
    {"ecc.errors.uncorrected.aggregate.sram", "", memory_errors(1, 1, 7)},
    {"retired_pages.single_bit_ecc.count", "", retired(0)},
    {"retired_pages.sbe", "", retired(0)},
    {"retired_pages.double_bit.count", "", retired(1)},
    {"retired_pages.dbe", "", retired(1)},
    {"retired_pages.pending", "", retired_pending},
    {"remapped_rows.correctable", "", field_value(142)},
    {"remapped_rows.uncorrectable", "", field_value(143)},
    {"remapped_rows.pending", "", yes_no(144)},
    {"remapped_rows.failure", "", yes_no(145)},
    {"clocks_event_reasons.active", "", all_reasons},
    {"clocks_throttle_reasons.active", "", all_reasons},
    {"clocks_event_reasons.gpu_idle", "", reason(0x1)},
    {"clocks_throttle_reasons.gpu_idle", "", reason(0x1)},
    {"clocks_event_reasons.applications_clocks_setting", "", reason(0x2)},
    {"clocks_throttle_reasons.applications_clocks_setting", "", reason(0x2)},
    {"clocks_event_reasons.sw_power_cap", "", reason(0x4)},
    {"clocks_throttle_reasons.sw_power_cap", "", reason(0x4)},
    {"clocks_event_reasons.hw_slowdown", "", reason(0x8)},
    {"clocks_throttle_reasons.hw_slowdown", "", reason(0x8)},
    {"clocks_event_reasons.sync_boost", "", reason(0x10)},
    {"clocks_throttle_reasons.sync_boost", "", reason(0x10)},
    {"clocks_event_reasons.sw_thermal_slowdown", "", reason(0x20)},
    {"clocks_throttle_reasons.sw_thermal_slowdown", "", reason(0x20)},
    {"clocks_event_reasons.hw_thermal_slowdown", "", reason(0x40)},
    {"clocks_throttle_reasons.hw_thermal_slowdown", "", reason(0x40)},
    {"clocks_event_reasons.hw_power_brake_slowdown", "", reason(0x80)},
    {"clocks_throttle_reasons.hw_power_brake_slowdown", "", reason(0x80)},
    {"fabric.state", "", fabric_state},
    {"fabric.status", "", fabric_status},
    {"fabric.cliqueId", "", fabric_clique},
    {"fabric.clusterUuid", "", fabric_cluster},
    {"fabric.health.summary", "", fabric_health},
};

const Field* find(const std::string& name) {
  for (const Field& f : kFields) {
    if (name == f.name) return &f;
  }
  return nullptr;
}

}  // namespace

bool query_field(Nvml& nvml, const std::string& name, Device device, bool nounits, std::string* out) {
  const Field* f = find(name);
  if (!f) return false;
  *out = f->get(nvml, device);
  if (*f->unit && !nounits && *out != kNotAvailable) *out += std::string(" ") + f->unit;
  return true;
}

bool query_title(const std::string& name, bool nounits, std::string* out) {
  const Field* f = find(name);
  if (!f) return false;
  *out = name;
  if (*f->unit && !nounits) *out += std::string(" [") + f->unit + "]";
  return true;
}

void print_query_help() {
  puts("List of valid properties to query for the switch \"--query-gpu\":\n");
  for (const Field& f : kFields) printf("\"%s\"%s%s\n", f.name, *f.unit ? "  in " : "", f.unit);
}

namespace {

// One field of a process; empty for an unknown one.
std::string app_field(Nvml& n, Device d, const nvml::ProcessInfo& p, const std::string& name, bool nounits) {
  if (name == "pid") return std::to_string(p.pid);
  if (name == "process_name" || name == "name") return process_name(n, p.pid);
  if (name == "used_memory" || name == "used_gpu_memory")
    return std::to_string(p.memory >> 20) + (nounits ? "" : " MiB");
  if (name == "gpu_uuid") return n.text("nvmlDeviceGetUUID", d);
  if (name == "gpu_name") return n.text("nvmlDeviceGetName", d);
  if (name == "gpu_bus_id") return bus_of(n, d);
  if (name == "gpu_serial") return n.text("nvmlDeviceGetSerial", d);
  return name == "timestamp" ? timestamp(n, d) : "";
}

}  // namespace

int query_apps(Nvml& n, const std::string& list, const std::string& format,
               const std::vector<Device>& devices) {
  auto fields = split(list);
  bool nounits = format.find("nounits") != std::string::npos;
  std::string titles;
  for (const auto& f : fields) {
    if (app_field(n, devices[0], {}, f, true).empty()) {
      printf("Field \"%s\" is not a valid field to query.\n\n", f.c_str());
      return 2;
    }
    bool memory = f == "used_memory" || f == "used_gpu_memory";
    titles += (titles.empty() ? "" : ", ") + f + (memory && !nounits ? " [MiB]" : "");
  }
  if (format.find("noheader") == std::string::npos) printf("%s\n", titles.c_str());
  for (Device d : devices) {
    for (const auto& p : processes(n, d)) {
      std::string line;
      for (const auto& f : fields) line += (line.empty() ? "" : ", ") + app_field(n, d, p, f, nounits);
      printf("%s\n", line.c_str());
    }
  }
  return 0;
}

}  // namespace gpuop::sim::smi
