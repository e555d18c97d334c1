// The table that a bare nvidia-smi prints.
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

std::string line_of(char c) {
  return "+" + std::string(18, c) + "+" + std::string(34, c) + "+" + std::string(11, c) + "+" +
         std::string(23, c) + "+";
}

void print_mig_device(Nvml& n, unsigned gpu, unsigned index, Device mig) {
  nvml::MemoryV2 m{};
  m.version = nvml::version_word(sizeof m, 2);
  n.call("nvmlDeviceGetMemoryInfo_v2", mig, &m);
  nvml::Bar1Memory bar1{};
  n.call("nvmlDeviceGetBAR1MemoryInfo", mig, &bar1);
  nvml::DeviceAttributes a{};
  n.call("nvmlDeviceGetAttributes_v2", mig, &a);
  printf("| %2u  %3u  %2u  %2u  | %15lluMiB / %6lluMiB    | %3u      0 | %2u %3u  %3u  %3u  %3u  |\n", gpu,
         n.number("nvmlDeviceGetGpuInstanceId", mig), n.number("nvmlDeviceGetComputeInstanceId", mig), index,
         static_cast<unsigned long long>(m.used >> 20), static_cast<unsigned long long>(m.total >> 20),
         a.multiprocessors, a.copy_engines, a.encoders, a.decoders, a.ofas, a.jpegs);
  printf("|                  | %15lluMiB / %6lluMiB    |           |                       |\n",
         static_cast<unsigned long long>(bar1.used >> 20), static_cast<unsigned long long>(bar1.total >> 20));
  puts(line_of('-').c_str());
}

void print_mig_devices(Nvml& n, unsigned count) {
  bool any = false;
  for (unsigned i = 0; i < count; ++i) {
    Device d = nullptr;
    unsigned current = 0, pending = 0;
    if (n.call("nvmlDeviceGetHandleByIndex_v2", i, &d) ||
        n.call("nvmlDeviceGetMigMode", d, &current, &pending) || !current) {
      continue;
    }
    if (!any) {
      printf("\n+%s+\n", std::string(89, '-').c_str());
      puts("| MIG devices:                                                                            |");
      puts(line_of('-').c_str());
      puts("| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |");
      puts("|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |");
      puts("|                  |                                  |        ECC|                       |");
      puts("|==================+==================================+===========+=======================|");
    }
    any = true;
    auto all = mig_devices(n, d);
    for (const auto& [index, mig] : all) print_mig_device(n, i, index, mig);
    if (all.empty()) {
      puts("|  No MIG devices found                                                                   |");
      printf("+%s+\n", std::string(89, '-').c_str());
    }
  }
}

}  // namespace

void print_table(Nvml& n, const Versions& versions, unsigned count) {
  time_t now = time(nullptr);
  tm parts;
  localtime_r(&now, &parts);
  char date[64];
  strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", &parts);
  printf("%s       \n", date);
  printf("+%s+\n", std::string(89, '-').c_str());
  printf("| NVIDIA-SMI %-22.22s Driver Version: %-14.14s CUDA Version: %-8.8s |\n", versions.library.c_str(),
         versions.driver.c_str(), versions.cuda_text().c_str());
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
      char line[160];
      char gi[12] = "N/A", ci[12] = "N/A";
      if (p.gi != 0xFFFFFFFFu) snprintf(gi, sizeof gi, "%u", p.gi);
      if (p.ci != 0xFFFFFFFFu) snprintf(ci, sizeof ci, "%u", p.ci);
      snprintf(line, sizeof line, "| %4u %5s %4s %15u      C   %-31.31s %11lluMiB |\n", i, gi, ci, p.pid,
               process_name(n, p.pid).c_str(), static_cast<unsigned long long>(p.memory >> 20));
      lines += line;
    }
  }
  print_mig_devices(n, count);
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

}  // namespace gpuop::sim::smi
