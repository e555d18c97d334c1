// nvidia-smi: the options that operators, validators and people use.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "sim/smi/nvml.h"

using namespace gpuop::sim;       // NOLINT
using namespace gpuop::sim::smi;  // NOLINT

namespace {

struct Options {
  bool list = false, query = false, help = false, version = false;
  std::string fields, format, id;
  bool query_help = false, reset = false;
  std::string mig, persistence, compute;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::size_t from = 0;
  while (from <= text.size()) {
    std::size_t to = text.find(',', from);
    if (to == std::string::npos) to = text.size();
    std::string item = text.substr(from, to - from);
    while (!item.empty() && item.front() == ' ') item.erase(0, 1);
    while (!item.empty() && item.back() == ' ') item.pop_back();
    if (!item.empty()) out.push_back(item);
    from = to + 1;
  }
  return out;
}

// 0: go on; else the exit code (2: bad argument, as the real one).
int parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i], value;
    std::size_t equals = a.find('=');
    if (a.starts_with("--") && equals != std::string::npos) {
      value = a.substr(equals + 1);
      a = a.substr(0, equals);
    }
    auto take = [&] {
      if (value.empty() && i + 1 < argc) value = argv[++i];
      return value;
    };
    if (a == "-h" || a == "--help")
      o.help = true;
    else if (a == "--version")
      o.version = true;
    else if (a == "-L" || a == "--list-gpus")
      o.list = true;
    else if (a == "-q" || a == "--query")
      o.query = true;
    else if (a == "-i" || a == "--id")
      o.id = take();
    else if (a == "--query-gpu")
      o.fields = take();
    else if (a == "--format")
      o.format = take();
    else if (a == "--help-query-gpu")
      o.query_help = true;
    else {
      printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
      fprintf(stderr, "nvidia-smi: unknown option '%s'\n", argv[i]);
      return 2;
    }
  }
  if (!o.fields.empty() && o.format.find("csv") == std::string::npos) {
    printf("\"--query-gpu=\" requires \"--format=csv\".\n");
    return 2;
  }
  return 0;
}

void print_help() {
  puts(
      "NVIDIA System Management Interface\n\n"
      "nvidia-smi [OPTION1 [ARG1]] ...\n\n"
      "    -h,   --help                Print usage information and exit.\n"
      "          --version             Print version information and exit.\n"
      "    -L,   --list-gpus           Display a list of GPUs connected to the system.\n"
      "    -q,   --query               Display GPU information.\n"
      "    -i,   --id=                 Target a specific GPU (index, UUID or bus id).\n"
      "          --query-gpu=          Fields to print, comma-separated; see --help-query-gpu.\n"
      "          --format=             csv[,noheader][,nounits]");
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
    int code;
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

int list(Nvml& n, const std::vector<Device>& devices) {
  for (Device d : devices) {
    unsigned index = 0, instances = 0;
    n.call("nvmlDeviceGetIndex", d, &index);
    printf("GPU %u: %s (UUID: %s)\n", index, n.text("nvmlDeviceGetName", d).c_str(),
           n.text("nvmlDeviceGetUUID", d).c_str());
    n.call("nvmlDeviceGetMaxMigDeviceCount", d, &instances);
    for (unsigned m = 0; m < instances; ++m) {
      Device mig = nullptr;
      if (n.call("nvmlDeviceGetMigDeviceHandleByIndex", d, m, &mig)) continue;
      std::string name = n.text<160>("nvmlDeviceGetName", mig);
      std::size_t at = name.rfind("MIG ");
      printf("  MIG %-16s Device %2u: (UUID: %s)\n",
             at == std::string::npos ? "" : name.substr(at + 4).c_str(), m,
             n.text("nvmlDeviceGetUUID", mig).c_str());
    }
  }
  return 0;
}

int query(Nvml& n, const Options& o, const std::vector<Device>& devices) {
  auto fields = split(o.fields);
  bool nounits = o.format.find("nounits") != std::string::npos,
       header = o.format.find("noheader") == std::string::npos;
  std::string titles;
  for (const auto& f : fields) {
    std::string title;
    if (!query_title(f, nounits, &title)) {
      printf("Field \"%s\" is not a valid field to query.\n\n", f.c_str());
      return 2;
    }
    titles += (titles.empty() ? "" : ", ") + title;
  }
  if (header) printf("%s\n", titles.c_str());
  for (Device d : devices) {
    std::string line;
    for (const auto& f : fields) {
      std::string value;
      query_field(n, f, d, nounits, &value);
      line += (line.empty() ? "" : ", ") + value;
    }
    printf("%s\n", line.c_str());
  }
  return 0;
}

std::string bus_of(Nvml& n, Device d) {
  std::string out;
  query_field(n, "pci.bus_id", d, true, &out);
  return out;
}

int reset(Nvml& n, const std::vector<Device>& devices) {
  int worst = 0;
  for (Device d : devices) {
    if (int code = n.call("simDeviceReset", d)) {
      printf("The following GPUs could not be reset:\n  GPU %s: %s\n", bus_of(n, d).c_str(), n.error(code));
      worst = code;
    } else {
      printf("GPU %s was successfully reset.\n", bus_of(n, d).c_str());
    }
  }
  if (!worst) puts("All done.");
  return worst;
}

// -mig, -pm and -c. Each board is told, and each refusal said.
int set_modes(Nvml& n, const Options& o, const std::vector<Device>& devices) {
  int worst = 0;
  auto say = [&](Device d, const char* what, const std::string& value, int code) {
    if (code == 0)
      return (void)printf("%s set to %s for GPU %s.\n", what, value.c_str(), bus_of(n, d).c_str());
    printf("Unable to set %s for GPU %s: %s\n", what, bus_of(n, d).c_str(), n.error(code));
    worst = code;
  };
  for (Device d : devices) {
    if (!o.mig.empty()) {
      int activation = 0;
      int code = n.call("nvmlDeviceSetMigMode", d, o.mig == "1" ? 1u : 0u, &activation);
      say(d, "MIG mode", o.mig, code);
      std::string current, pending;
      query_field(n, "mig.mode.current", d, true, &current);
      query_field(n, "mig.mode.pending", d, true, &pending);
      if (code == 0 && current != pending)
        printf(
            "Warning: MIG mode is in pending enable state for GPU %s: reset the GPU to make it effective.\n",
            bus_of(n, d).c_str());
    }
    if (!o.persistence.empty()) {
      say(d, "Persistence mode", o.persistence,
          n.call("nvmlDeviceSetPersistenceMode", d, o.persistence == "1" ? 1 : 0));
    }
    if (!o.compute.empty()) {
      say(d, "Compute mode", o.compute, n.call("nvmlDeviceSetComputeMode", d, atoi(o.compute.c_str())));
    }
  }
  if (!worst) puts("All done.");
  return worst;
}

int no_driver(Nvml& n, int code) {
  if (code == nvml::kDriverNotLoaded) {
    printf(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
        "latest "
        "NVIDIA driver is installed and running.\n\n");
  } else {
    printf("Failed to initialize NVML: %s\n", n.error(code));
    if (code == nvml::kVersionMismatch) {
      char version[80] = {};
      if (n.call("nvmlSystemGetNVMLVersion", static_cast<char*>(version), 80u) == 0) {
        printf("NVML library version: %s\n", strchr(version, '.') ? strchr(version, '.') + 1 : version);
      }
    }
  }
  return code == nvml::kUnknown ? 255 : code;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (int code = parse(argc, argv, o)) return code;
  if (o.help) return print_help(), 0;
  if (o.query_help) return print_query_help(), 0;
  Nvml n;
  if (!n.load()) {
    printf(
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA "
        "Display "
        "Driver is properly installed and present in your system.\nPlease also try adding directory that "
        "contains "
        "libnvidia-ml.so to your system PATH.\n");
    return 12;
  }
  char nvml_version[80] = {};
  n.call("nvmlSystemGetNVMLVersion", static_cast<char*>(nvml_version), 80u);
  const char* dot = strchr(nvml_version, '.');
  std::string version = dot ? dot + 1 : "?";
  if (o.version) {
    // Works with no driver loaded.
    int cuda = 0;
    n.call("nvmlSystemGetCudaDriverVersion_v2", &cuda);
    printf(
        "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : "
        "%d.%d\n",
        version.c_str(), version.substr(0, version.find('.', version.find('.') + 1)).c_str(), version.c_str(),
        cuda / 1000, cuda % 1000 / 10);
    return 0;
  }
  if (int code = n.call("nvmlInit_v2")) return no_driver(n, code);
  char driver[80] = {};
  n.call("nvmlSystemGetDriverVersion", static_cast<char*>(driver), 80u);
  int cuda = 0;
  n.call("nvmlSystemGetCudaDriverVersion_v2", &cuda);
  int code = 0;
  std::vector<Device> devices;
  unsigned count = 0;
  n.call("nvmlDeviceGetCount_v2", &count);
  bool sets = !o.mig.empty() || !o.persistence.empty() || !o.compute.empty();
  bool table = !o.list && !o.query && o.fields.empty() && !o.reset && !sets;
  if (count == 0) {
    printf("No devices were found\n");
    code = 6;
  } else if (table && o.id.empty()) {
    print_table(n, driver, cuda, version, count);
  } else if ((code = select_devices(n, o.id, devices)) == 0) {
    if (o.reset) {
      code = reset(n, devices);
    } else if (sets) {
      code = set_modes(n, o, devices);
    } else if (o.list) {
      code = list(n, devices);
    } else if (!o.fields.empty()) {
      code = query(n, o, devices);
    } else if (o.query) {
      printf(
          "\n==============NVSMI LOG==============\n\nDriver Version                            : %s\n"
          "CUDA Version                              : %d.%d\n\nAttached GPUs                             : "
          "%u\n",
          driver, cuda / 1000, cuda % 1000 / 10, count);
      unsigned i = 0;
      for (Device d : devices) print_details(n, d, i++);
    } else {
      print_table(n, driver, cuda, version, count);
    }
  }
  n.call("nvmlShutdown");
  return code;
}
