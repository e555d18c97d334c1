// nvidia-smi topo and nvlink: how boards are connected.
#include <stdio.h>
#include <string.h>

#include <vector>

#include "sim/smi/nvml.h"

namespace gpuop::sim::smi {

namespace {

constexpr unsigned kMaxLinks = 36;

bool link_up(Nvml& n, Device d, unsigned link) {
  int up = 0;
  return n.call("nvmlDeviceGetNvLinkState", d, link, &up) == 0 && up;
}

// Links between two boards: those to a switch count for every board behind it.
unsigned links_between(Nvml& n, Device a, Device b) {
  int status = 1;
  if (n.call("nvmlDeviceGetP2PStatus", a, b, 2, &status) || status != 0) return 0;
  unsigned links = 0;
  for (unsigned l = 0; l < kMaxLinks; ++l) links += link_up(n, a, l);
  return links;
}

std::string connection(Nvml& n, Device a, Device b) {
  if (a == b) return " X ";
  if (unsigned links = links_between(n, a, b)) return "NV" + std::to_string(links);
  int level = 0;
  if (n.call("nvmlDeviceGetTopologyCommonAncestor", a, b, &level)) return "N/A";
  switch (level) {
    case 0:
    case 10:
      return "PIX";
    case 20:
      return "PXB";
    case 30:
      return "PHB";
    case 40:
      return "NODE";
    default:
      return "SYS";
  }
}

// Set bits as "0-31,64".
std::string ranges(const unsigned long* words, unsigned count) {
  std::string out;
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  auto set = [&](unsigned i) { return i < count * kBits && (words[i / kBits] >> (i % kBits) & 1); };
  for (unsigned i = 0; i < count * kBits; ++i) {
    if (!set(i)) continue;
    unsigned last = i;
    while (set(last + 1)) ++last;
    out += (out.empty() ? "" : ",") + std::to_string(i) + (last > i ? "-" + std::to_string(last) : "");
    i = last;
  }
  return out;
}

std::string cpu_affinity(Nvml& n, Device d) {
  unsigned long set[16] = {};
  if (n.call("nvmlDeviceGetCpuAffinity", d, 16u, static_cast<unsigned long*>(set))) return "N/A";
  return ranges(set, 16);
}
std::string numa_affinity(Nvml& n, Device d) {
  unsigned long set[1] = {};
  if (n.call("nvmlDeviceGetMemoryAffinity", d, 1u, static_cast<unsigned long*>(set), 0u)) return "N/A";
  return ranges(set, 1);
}

int print_matrix(Nvml& n, const std::vector<Device>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) printf("\tGPU%zu", i);
  puts("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    printf("GPU%zu", i);
    for (Device other : devices) printf("\t%s", connection(n, devices[i], other).c_str());
    unsigned memory = n.number("nvmlDeviceGetNumaNodeId", devices[i], ~0u);
    printf("\t%s\t%s\t\t%s\n", cpu_affinity(n, devices[i]).c_str(), numa_affinity(n, devices[i]).c_str(),
           memory == ~0u ? "N/A" : std::to_string(memory).c_str());
  }
  puts(
      "\nLegend:\n\n"
      "  X    = Self\n"
      "  SYS  = between CPUs\n"
      "  NODE = between the PCIe host bridges of one CPU\n"
      "  PHB  = over one PCIe host bridge\n"
      "  PXB  = over several PCIe switches\n"
      "  PIX  = over at most one PCIe switch\n"
      "  NV#  = over # NVLinks");
  return 0;
}

// -p2p r|w|n|a|p: whether peers reach each other so.
int print_p2p(Nvml& n, const std::vector<Device>& devices, const std::string& kind) {
  const std::string kinds = "rwnap";
  std::size_t caps = kind.size() == 1 ? kinds.find(kind) : std::string::npos;
  if (caps == std::string::npos) {
    puts("nvidia-smi topo -p2p: one of r, w, n, a, p is needed.");
    return 2;
  }
  for (std::size_t i = 0; i < devices.size(); ++i) printf("\tGPU%zu", i);
  puts("");
  const char* texts[] = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    printf(" GPU%zu", i);
    for (std::size_t k = 0; k < devices.size(); ++k) {
      int status = 6;
      if (k != i) n.call("nvmlDeviceGetP2PStatus", devices[i], devices[k], static_cast<int>(caps), &status);
      printf("\t%s", k == i ? "X" : texts[status >= 0 && status <= 6 ? status : 6]);
    }
    puts("");
  }
  return 0;
}

int print_links(Nvml& n, Device d, bool remote) {
  printf("GPU %u: %s (UUID: %s)\n", n.number("nvmlDeviceGetIndex", d), n.text("nvmlDeviceGetName", d).c_str(),
         n.text("nvmlDeviceGetUUID", d).c_str());
  for (unsigned l = 0; l < kMaxLinks; ++l) {
    int up = 0;
    int code = n.call("nvmlDeviceGetNvLinkState", d, l, &up);
    if (code == nvml::kNotSupported) return 0;
    if (code) break;
    if (!up) {
      printf("\t Link %u: <inactive>\n", l);
      continue;
    }
    if (remote) {
      nvml::PciInfo peer{};
      n.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", d, l, &peer);
      printf("\t Link %u: Remote Device %s: Link %u\n", l, peer.bus_id, l);
      continue;
    }
    nvml::FieldValue f{};
    f.field = 164;  // MB/s
    f.scope = l;
    n.call("nvmlDeviceGetFieldValues", d, 1, &f);
    printf("\t Link %u: %.4g GB/s\n", l, f.value.u / 1000.0);
  }
  return 0;
}

}  // namespace

int topo_command(Nvml& n, const std::vector<std::string>& words) {
  std::vector<Device> devices;
  if (int code = select_devices(n, "", devices)) return code;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "-m" || words[i] == "--matrix") return print_matrix(n, devices);
    if (words[i] == "-p2p") return print_p2p(n, devices, i + 1 < words.size() ? words[i + 1] : "");
  }
  puts("nvidia-smi topo: -m or -p2p is needed.");
  return 2;
}

int nvlink_command(Nvml& n, const std::vector<std::string>& words) {
  std::string id;
  bool status = false, remote = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if ((words[i] == "-i" || words[i] == "--id") && i + 1 < words.size())
      id = words[++i];
    else if (words[i] == "-s" || words[i] == "--status")
      status = true;
    else if (words[i] == "-p" || words[i] == "--pcibusid" || words[i] == "-R" ||
             words[i] == "--remotelinkinfo")
      remote = true;
  }
  if (!status && !remote) {
    puts("nvidia-smi nvlink: -s or -p is needed.");
    return 2;
  }
  std::vector<Device> devices;
  if (int code = select_devices(n, id, devices)) return code;
  for (Device d : devices) print_links(n, d, remote);
  return 0;
}

}  // namespace gpuop::sim::smi
