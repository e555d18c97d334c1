// What the parts of nvidia-smi share.
#include <stdio.h>
#include <stdlib.h>

#include "sim/smi/nvml.h"

namespace gpuop::sim::smi {

std::string Versions::cuda_text() const {
  return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::size_t from = 0;
  while (from <= text.size()) {
    std::size_t to = text.find(separator, from);
    if (to == std::string::npos) to = text.size();
    std::string item = text.substr(from, to - from);
    while (!item.empty() && item.front() == ' ') item.erase(0, 1);
    while (!item.empty() && item.back() == ' ') item.pop_back();
    if (!item.empty()) out.push_back(item);
    from = to + 1;
  }
  return out;
}

std::string bus_of(Nvml& n, Device d) {
  std::string out;
  query_field(n, "pci.bus_id", d, true, &out);
  return out;
}

std::vector<std::pair<unsigned, Device>> mig_devices(Nvml& n, Device d) {
  std::vector<std::pair<unsigned, Device>> out;
  unsigned most = n.number("nvmlDeviceGetMaxMigDeviceCount", d);
  for (unsigned m = 0; m < most; ++m) {
    Device mig = nullptr;
    if (n.call("nvmlDeviceGetMigDeviceHandleByIndex", d, m, &mig) == 0) out.emplace_back(m, mig);
  }
  return out;
}

std::vector<nvml::ProcessInfo> processes(Nvml& n, Device d) {
  std::vector<nvml::ProcessInfo> list(256);
  unsigned count = 256;
  if (n.call("nvmlDeviceGetComputeRunningProcesses_v3", d, &count, list.data())) count = 0;
  list.resize(count);
  return list;
}

std::string process_name(Nvml& n, unsigned pid) {
  char name[256] = {};
  int code =
      n.call("nvmlSystemGetProcessName", pid, static_cast<char*>(name), static_cast<unsigned>(sizeof name));
  return code == 0 ? name : "[Not Found]";
}

int select_devices(Nvml& n, const std::string& id, std::vector<Device>& devices) {
  unsigned count = 0;
  if (int code = n.call("nvmlDeviceGetCount_v2", &count)) return code;
  std::vector<std::string> wanted = split(id);
  if (wanted.empty()) {
    for (unsigned i = 0; i < count; ++i) wanted.push_back(std::to_string(i));
  }
  for (const auto& w : wanted) {
    Device d = nullptr;
    int code = 0;
    if (w.find_first_not_of("0123456789") == std::string::npos) {
      code =
          n.call("nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(strtoul(w.c_str(), nullptr, 10)), &d);
    } else if (w.find(':') != std::string::npos) {
      code = n.call("nvmlDeviceGetHandleByPciBusId_v2", w.c_str(), &d);
    } else {
      code = n.call("nvmlDeviceGetHandleByUUID", w.c_str(), &d);
    }
    if (code == 0) {
      devices.push_back(d);
      continue;
    }
    printf("Unable to determine the device handle for GPU%s: %s\n", w.c_str(), n.error(code));
    return code;
  }
  return 0;
}

}  // namespace gpuop::sim::smi
