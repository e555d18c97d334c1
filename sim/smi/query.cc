// --query-gpu: names, titles, units and values.
#include <stdio.h>
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

std::string memory_temperature(Nvml& n, Device d) {
  nvml::FieldValue f{};
  f.field = 82;
  return n.call("nvmlDeviceGetFieldValues", d, 1, &f) || f.result ? kNotAvailable : std::to_string(f.value.u);
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
    {"temperature.memory", "", memory_temperature},
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

}  // namespace gpuop::sim::smi
