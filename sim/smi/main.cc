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
  bool list = false, query = false, xml = false, help = false, version = false, query_help = false;
  bool reset = false;
  std::string fields, apps, format, id, display;
  std::string mig, persistence, compute, ecc, power_limit, lock_gpu_clocks, app_clocks;
  bool reset_gpu_clocks = false, reset_app_clocks = false;

  bool sets() const {
    return !mig.empty() || !persistence.empty() || !compute.empty() || !ecc.empty() || !power_limit.empty() ||
           !lock_gpu_clocks.empty() || !app_clocks.empty() || reset_gpu_clocks || reset_app_clocks;
  }
};

struct Flag {
  const char *brief, *full;
  bool Options::* set;
};
constexpr Flag kFlags[] = {
    {"-h", "--help", &Options::help},
    {"", "--version", &Options::version},
    {"-L", "--list-gpus", &Options::list},
    {"-q", "--query", &Options::query},
    {"-x", "--xml-format", &Options::xml},
    {"", "--help-query-gpu", &Options::query_help},
    {"-r", "--gpu-reset", &Options::reset},
    {"-rgc", "--reset-gpu-clocks", &Options::reset_gpu_clocks},
    {"-rac", "--reset-applications-clocks", &Options::reset_app_clocks},
};
struct Valued {
  const char *brief, *full;
  std::string Options::* set;
};
const Valued kValued[] = {
    {"-i", "--id", &Options::id},
    {"-d", "--display", &Options::display},
    {"", "--query-gpu", &Options::fields},
    {"", "--query-compute-apps", &Options::apps},
    {"", "--format", &Options::format},
    {"-mig", "--multi-instance-gpu", &Options::mig},
    {"-pm", "--persistence-mode", &Options::persistence},
    {"-c", "--compute-mode", &Options::compute},
    {"-e", "--ecc-config", &Options::ecc},
    {"-pl", "--power-limit", &Options::power_limit},
    {"-lgc", "--lock-gpu-clocks", &Options::lock_gpu_clocks},
    {"-ac", "--applications-clocks", &Options::app_clocks},
};

// 0: go on; else the exit code (2: bad argument, as the real one).
int refuse(const char* word) {
  printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
  fprintf(stderr, "nvidia-smi: unknown option '%s'\n", word);
  return 2;
}

const Flag* find_flag(const std::string& name) {
  for (const Flag& f : kFlags) {
    if (name == f.brief || name == f.full) return &f;
  }
  return nullptr;
}
const Valued* find_valued(const std::string& name) {
  for (const Valued& v : kValued) {
    if (name == v.brief || name == v.full) return &v;
  }
  return nullptr;
}

int parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    std::size_t equals = name.find('=');
    if (name.starts_with("-") && equals != std::string::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    if (const Flag* f = find_flag(name)) {
      o.*(f->set) = true;
      continue;
    }
    const Valued* v = find_valued(name);
    if (!v) return refuse(argv[i]);
    if (value.empty() && i + 1 < argc) value = argv[++i];
    if (value.empty()) return refuse(argv[i]);
    o.*(v->set) = value;
  }
  for (const std::string* fields : {&o.fields, &o.apps}) {
    if (fields->empty() || o.format.find("csv") != std::string::npos) continue;
    printf("\"%s=\" requires \"--format=csv\".\n",
           fields == &o.fields ? "--query-gpu" : "--query-compute-apps");
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
      "    -d,   --display=            Sections of -q to display, comma-separated.\n"
      "    -x,   --xml-format          -q as XML.\n"
      "    -i,   --id=                 Target a specific GPU (index, UUID or bus id).\n"
      "          --query-gpu=          Fields to print, comma-separated; see --help-query-gpu.\n"
      "          --query-compute-apps= Fields of running processes: pid, process_name, used_memory, "
      "gpu_uuid, …\n"
      "          --format=             csv[,noheader][,nounits]\n"
      "    -pm,  --persistence-mode=   0 or 1.\n"
      "    -c,   --compute-mode=       0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.\n"
      "    -e,   --ecc-config=         0 or 1, after the next reset.\n"
      "    -pl,  --power-limit=        Watts.\n"
      "    -lgc, --lock-gpu-clocks=    LOW,HIGH in MHz; -rgc lets go.\n"
      "    -ac,  --applications-clocks= MEMORY,GRAPHICS in MHz; -rac for the default.\n"
      "    -mig, --multi-instance-gpu= 0 or 1.\n"
      "    -r,   --gpu-reset           Reset the GPUs of -i.\n\n"
      "nvidia-smi mig|topo|nvlink      GPU and compute instances; how GPUs are connected.");
}

int list(Nvml& n, const std::vector<Device>& devices) {
  for (Device d : devices) {
    printf("GPU %u: %s (UUID: %s)\n", n.number("nvmlDeviceGetIndex", d),
           n.text("nvmlDeviceGetName", d).c_str(), n.text("nvmlDeviceGetUUID", d).c_str());
    for (const auto& [m, mig] : mig_devices(n, d)) {
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

// What one of the setting options does to one board: a code, and the text for when it went well.
struct Setting {
  const char* what;
  int code;
  std::string done;
};

Setting set_mig(Nvml& n, Device d, const std::string& mode) {
  int activation = 0;
  int code = n.call("nvmlDeviceSetMigMode", d, mode == "1" ? 1u : 0u, &activation);
  return {"MIG mode", code,
          std::string(mode == "1" ? "Enabled" : "Disabled") + " MIG Mode for GPU " + bus_of(n, d)};
}

void warn_pending(Nvml& n, Device d) {
  unsigned current = 0, pending = 0;
  if (n.call("nvmlDeviceGetMigMode", d, &current, &pending) || current == pending) return;
  printf(
      "Warning: MIG mode is in pending %s state for GPU %s: reset the GPU or reboot to make it effective.\n",
      pending ? "enable" : "disable", bus_of(n, d).c_str());
}

bool pair_of(const std::string& text, unsigned& a, unsigned& b) {
  auto words = split(text);
  if (words.empty() || words.size() > 2) return false;
  a = static_cast<unsigned>(strtoul(words[0].c_str(), nullptr, 10));
  b = words.size() == 2 ? static_cast<unsigned>(strtoul(words[1].c_str(), nullptr, 10)) : a;
  return true;
}

std::vector<Setting> apply(Nvml& n, const Options& o, Device d) {
  std::vector<Setting> out;
  std::string bus = bus_of(n, d);
  auto done = [&](const std::string& what) { return what + " for GPU " + bus + "."; };
  if (!o.mig.empty()) out.push_back(set_mig(n, d, o.mig));
  if (!o.persistence.empty()) {
    int on = o.persistence == "1";
    out.push_back({"persistence mode", n.call("nvmlDeviceSetPersistenceMode", d, on),
                   std::string(on ? "Enabled" : "Disabled") + " persistence mode for GPU " + bus + "."});
  }
  if (!o.compute.empty()) {
    out.push_back({"compute mode", n.call("nvmlDeviceSetComputeMode", d, atoi(o.compute.c_str())),
                   done("Set compute mode to " + o.compute)});
  }
  if (!o.ecc.empty()) {
    int on = o.ecc == "1";
    out.push_back({"ECC mode", n.call("nvmlDeviceSetEccMode", d, on),
                   std::string(on ? "Enabled" : "Disabled") + " ECC support for GPU " + bus +
                       " after the next reset."});
  }
  if (!o.power_limit.empty()) {
    auto mw = static_cast<unsigned>(strtod(o.power_limit.c_str(), nullptr) * 1000);
    out.push_back({"power limit", n.call("nvmlDeviceSetPowerManagementLimit", d, mw),
                   done("Power limit set to " + o.power_limit + " W")});
  }
  unsigned a = 0, b = 0;
  if (pair_of(o.lock_gpu_clocks, a, b)) {
    out.push_back({"GPU clocks", n.call("nvmlDeviceSetGpuLockedClocks", d, a, b),
                   done("GPU clocks set to \"(gpuClkMin " + std::to_string(a) + ", gpuClkMax " +
                        std::to_string(b) + ")\"")});
  }
  if (o.reset_gpu_clocks)
    out.push_back({"GPU clocks", n.call("nvmlDeviceResetGpuLockedClocks", d), done("GPU clocks reset")});
  if (pair_of(o.app_clocks, a, b)) {
    out.push_back({"applications clocks", n.call("nvmlDeviceSetApplicationsClocks", d, a, b),
                   done("Applications clocks set to \"(MEM " + std::to_string(a) + ", SM " +
                        std::to_string(b) + ")\"")});
  }
  if (o.reset_app_clocks) {
    out.push_back({"applications clocks", n.call("nvmlDeviceResetApplicationsClocks", d),
                   done("Applications clocks reset to default")});
  }
  return out;
}

// Each board is told, and each refusal said.
int set_modes(Nvml& n, const Options& o, const std::vector<Device>& devices) {
  int worst = 0;
  for (Device d : devices) {
    for (const Setting& s : apply(n, o, d)) {
      if (s.code == 0) {
        printf("%s\n", s.done.c_str());
        continue;
      }
      printf("Unable to set %s for GPU %s: %s\n", s.what, bus_of(n, d).c_str(), n.error(s.code));
      worst = s.code;
    }
    if (!o.mig.empty()) warn_pending(n, d);
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

Versions versions_of(Nvml& n) {
  Versions v;
  char text[80] = {};
  n.call("nvmlSystemGetNVMLVersion", static_cast<char*>(text), 80u);
  const char* dot = strchr(text, '.');
  v.library = dot ? dot + 1 : "?";
  n.call("nvmlSystemGetCudaDriverVersion_v2", &v.cuda);
  return v;
}

// Works with no driver loaded.
void print_versions(const Versions& v) {
  printf(
      "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : "
      "%s\n",
      v.library.c_str(), v.library.substr(0, v.library.find('.', v.library.find('.') + 1)).c_str(),
      v.library.c_str(), v.cuda_text().c_str());
}

int run(Nvml& n, const Options& o, const Versions& versions) {
  unsigned count = 0;
  n.call("nvmlDeviceGetCount_v2", &count);
  if (count == 0) {
    printf("No devices were found\n");
    return 6;
  }
  bool table = !o.list && !o.query && o.fields.empty() && o.apps.empty() && !o.reset && !o.sets();
  if (table && o.id.empty()) {
    print_table(n, versions, count);
    return 0;
  }
  std::vector<Device> devices;
  if (int code = select_devices(n, o.id, devices)) return code;
  if (o.reset) return reset(n, devices);
  if (o.sets()) return set_modes(n, o, devices);
  if (o.list) return list(n, devices);
  if (!o.fields.empty()) return query(n, o, devices);
  if (!o.apps.empty()) return query_apps(n, o.apps, o.format, devices);
  if (o.query) return print_details(n, versions, devices, o.display, o.xml);
  print_table(n, versions, count);
  return 0;
}

// nvidia-smi COMMAND …; -1 when the first word is none.
int command(Nvml& n, int argc, char** argv) {
  if (argc < 2) return -1;
  std::string name = argv[1];
  std::vector<std::string> words(argv + 2, argv + argc);
  if (name == "mig") return mig_command(n, words);
  if (name == "topo") return topo_command(n, words);
  return name == "nvlink" ? nvlink_command(n, words) : -1;
}

bool is_command(int argc, char** argv) {
  return argc > 1 &&
         (strcmp(argv[1], "mig") == 0 || strcmp(argv[1], "topo") == 0 || strcmp(argv[1], "nvlink") == 0);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  bool other = is_command(argc, argv);
  if (int code = other ? 0 : parse(argc, argv, o)) return code;
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
  Versions versions = versions_of(n);
  if (o.version) return print_versions(versions), 0;
  if (int code = n.call("nvmlInit_v2")) return no_driver(n, code);
  char driver[80] = {};
  n.call("nvmlSystemGetDriverVersion", static_cast<char*>(driver), 80u);
  versions.driver = driver;
  int code = other ? command(n, argc, argv) : run(n, o, versions);
  n.call("nvmlShutdown");
  return code;
}
