// The table that a bare nvidia-smi prints, and -q.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <vector>

#include "sim/smi/nvml.h"

namespace gpuop::sim::smi {

namespace {

std::string field(Nvml& n, const char* name, Device d, bool nounits = true) {
  std::string out;
  return query_field(n, name, d, nounits, &out) && out != "[N/A]" ? out : "N/A";
}

void print_rule(char c) {
  printf("+%s+%s+%s+\n", std::string(41, c).c_str(), std::string(24, c).c_str(), std::string(22, c).c_str());
}

std::vector<nvml::ProcessInfo> processes(Nvml& n, Device d) {
  std::vector<nvml::ProcessInfo> list(64);
  unsigned count = 64;
  if (n.call("nvmlDeviceGetComputeRunningProcesses_v3", d, &count, list.data())) count = 0;
  list.resize(count);
  return list;
}

void print_board(Nvml& n, Device d, unsigned index) {
  std::string name = n.text("nvmlDeviceGetName", d), bus = field(n, "pci.bus_id", d);
  std::string ecc = field(n, "ecc.errors.uncorrected.volatile.total", d);
  printf("| %3u  %-26.26s %6s  | %-16s  %3s  | %20s |\n", index, name.c_str(),
         field(n, "persistence_mode", d) == "Enabled" ? "On" : "Off", bus.c_str(), "Off", ecc.c_str());
  std::string power = field(n, "power.draw", d), limit = field(n, "power.limit", d);
  power = power.substr(0, power.find('.')) + "W";
  limit = limit.substr(0, limit.find('.')) + "W";
  std::string util = field(n, "utilization.gpu", d);
  printf("| %-4s%4sC%6s%13s / %8s | %7sMiB / %6sMiB | %7s  %11.11s |\n", "N/A",
         field(n, "temperature.gpu", d).c_str(), field(n, "pstate", d).c_str(), power.c_str(), limit.c_str(),
         field(n, "memory.used", d).c_str(), field(n, "memory.total", d).c_str(),
         util == "N/A" ? "N/A" : (util + "%").c_str(), field(n, "compute_mode", d).c_str());
  printf("|%41s|%24s| %20s |\n", "", "", field(n, "mig.mode.current", d).c_str());
  print_rule('-');
}

}  // namespace

void print_table(Nvml& n, const std::string& driver, int cuda, const std::string& version, unsigned count) {
  time_t now = time(nullptr);
  tm parts;
  localtime_r(&now, &parts);
  char date[64];
  strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", &parts);
  printf("%s       \n", date);
  printf("+%s+\n", std::string(89, '-').c_str());
  char cuda_text[16];
  snprintf(cuda_text, sizeof cuda_text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
  printf("| NVIDIA-SMI %-22.22s Driver Version: %-14.14s CUDA Version: %-8.8s |\n", version.c_str(),
         driver.c_str(), cuda_text);
  print_rule('-');
  puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
  puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
  puts("|                                         |                        |               MIG M. |");
  print_rule('=');
  std::string lines;
  for (unsigned i = 0; i < count; ++i) {
    Device d = nullptr;
    if (int code = n.call("nvmlDeviceGetHandleByIndex_v2", i, &d)) {
      printf("| %3u  Unable to determine the device handle: %-42.42s |\n", i, n.error(code));
      print_rule('-');
      continue;
    }
    print_board(n, d, i);
    for (const auto& p : processes(n, d)) {
      char name[256] = "[Not Found]", line[160];
      n.call("nvmlSystemGetProcessName", p.pid, static_cast<char*>(name), static_cast<unsigned>(sizeof name));
      char gi[12] = "N/A", ci[12] = "N/A";
      if (p.gi != 0xFFFFFFFFu) snprintf(gi, sizeof gi, "%u", p.gi);
      if (p.ci != 0xFFFFFFFFu) snprintf(ci, sizeof ci, "%u", p.ci);
      snprintf(line, sizeof line, "| %4u %5s %4s %15u      C   %-31.31s %11lluMiB |\n", i, gi, ci, p.pid,
               name, static_cast<unsigned long long>(p.memory >> 20));
      lines += line;
    }
  }
  printf("\n+%s+\n", std::string(89, '-').c_str());
  puts("| Processes:                                                                              |");
  puts("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |");
  puts("|        ID   ID                                                               Usage      |");
  printf("|%s|\n", std::string(89, '=').c_str());
  if (lines.empty())
    puts("|  No running processes found                                                             |");
  fputs(lines.c_str(), stdout);
  printf("+%s+\n", std::string(89, '-').c_str());
}

void print_details(Nvml& n, Device d, unsigned) {
  auto line = [](int depth, const char* name, const std::string& value) {
    printf("%*s%-*s: %s\n", depth * 4, "", 42 - depth * 4, name, value.c_str());
  };
  auto show = [&](int depth, const char* name, const char* query) {
    line(depth, name, field(n, query, d, false));
  };
  printf("\nGPU %s\n", field(n, "pci.bus_id", d).c_str());
  show(1, "Product Name", "name");
  int brand = 0;
  n.call("nvmlDeviceGetBrand", d, &brand);
  line(1, "Product Brand", brand == 2 ? "Tesla" : brand == 14 ? "NVIDIA" : "GeForce");
  unsigned architecture = 0;
  n.call("nvmlDeviceGetArchitecture", d, &architecture);
  const char* names[] = {"Kepler", "Maxwell",      "Pascal", "Volta",    "Turing",
                         "Ampere", "Ada Lovelace", "Hopper", "Blackwell"};
  line(1, "Product Architecture",
       architecture >= 2 && architecture <= 10 ? names[architecture - 2] : "Unknown");
  show(1, "Persistence Mode", "persistence_mode");
  puts("    MIG Mode");
  show(2, "Current", "mig.mode.current");
  show(2, "Pending", "mig.mode.pending");
  show(1, "Serial Number", "serial");
  show(1, "GPU UUID", "uuid");
  unsigned minor = 0;
  n.call("nvmlDeviceGetMinorNumber", d, &minor);
  line(1, "Minor Number", std::to_string(minor));
  show(1, "VBIOS Version", "vbios_version");
  puts("    PCI");
  show(2, "Bus", "pci.bus");
  show(2, "Device", "pci.device");
  show(2, "Domain", "pci.domain");
  show(2, "Device Id", "pci.device_id");
  show(2, "Bus Id", "pci.bus_id");
  show(2, "Sub System Id", "pci.sub_device_id");
  show(1, "Performance State", "pstate");
  puts("    FB Memory Usage");
  show(2, "Total", "memory.total");
  show(2, "Reserved", "memory.reserved");
  show(2, "Used", "memory.used");
  show(2, "Free", "memory.free");
  show(1, "Compute Mode", "compute_mode");
  puts("    Utilization");
  show(2, "GPU", "utilization.gpu");
  show(2, "Memory", "utilization.memory");
  puts("    ECC Mode");
  show(2, "Current", "ecc.mode.current");
  show(2, "Pending", "ecc.mode.pending");
  puts("    ECC Errors");
  puts("        Volatile");
  show(3, "DRAM Correctable", "ecc.errors.corrected.volatile.total");
  show(3, "DRAM Uncorrectable", "ecc.errors.uncorrected.volatile.total");
  puts("    Temperature");
  line(2, "GPU Current Temp", field(n, "temperature.gpu", d) + " C");
  puts("    GPU Power Readings");
  show(2, "Power Draw", "power.draw");
  show(2, "Current Power Limit", "power.limit");
  show(2, "Default Power Limit", "power.default_limit");
  puts("    Clocks");
  show(2, "Graphics", "clocks.gr");
  show(2, "SM", "clocks.sm");
  show(2, "Memory", "clocks.mem");
  show(2, "Video", "clocks.current.video");
  auto list = processes(n, d);
  if (list.empty())
    line(1, "Processes", "None");
  else
    puts("    Processes");
  for (const auto& p : list) {
    line(2, "Process ID", std::to_string(p.pid));
    line(3, "Used GPU Memory", std::to_string(p.memory >> 20) + " MiB");
  }
}

}  // namespace gpuop::sim::smi
