// libnvidia-ml as nvidia-smi loads it, and the parts of the program.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "sim/nvml/nvml_abi.h"

namespace gpuop::sim::smi {

using Device = void*;

class Nvml {
 public:
  // By SONAME, as the real one; false when the library cannot be found.
  bool load() {
    handle_ = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_GLOBAL);
    return handle_ != nullptr;
  }
  template <class... Args>
  int call(const char* symbol, Args... args) {
    auto function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, symbol));
    return function ? function(args...) : nvml::kFunctionNotFound;
  }
  const char* error(int code) {
    auto function = reinterpret_cast<const char* (*)(int)>(dlsym(handle_, "nvmlErrorString"));
    return function ? function(code) : "Unknown Error";
  }
  template <std::size_t N = 96>
  std::string text(const char* symbol, Device device) {
    char out[N] = {};
    return call(symbol, device, static_cast<char*>(out), static_cast<unsigned>(N)) == 0 ? out : "[N/A]";
  }
  // An unsigned value by its getter; `absent` when it cannot be had.
  unsigned number(const char* symbol, Device device, unsigned absent = 0) {
    unsigned v = 0;
    return call(symbol, device, &v) ? absent : v;
  }

 private:
  void* handle_ = nullptr;
};

// What the driver says of itself.
struct Versions {
  std::string library, driver;
  int cuda = 0;
  std::string cuda_text() const;
};

std::vector<std::string> split(const std::string& text, char separator = ',');
std::string bus_of(Nvml& nvml, Device device);
// MIG devices of a board, by their index.
std::vector<std::pair<unsigned, Device>> mig_devices(Nvml& nvml, Device device);
std::vector<nvml::ProcessInfo> processes(Nvml& nvml, Device device);
std::string process_name(Nvml& nvml, unsigned pid);

// One field of --query-gpu. `nounits` leaves the unit out.
bool query_field(Nvml& nvml, const std::string& name, Device device, bool nounits, std::string* out);
// Its column title, with the unit.
bool query_title(const std::string& name, bool nounits, std::string* out);
void print_query_help();
// --query-compute-apps. Exit code.
int query_apps(Nvml& nvml, const std::string& fields, const std::string& format,
               const std::vector<Device>& devices);

void print_table(Nvml& nvml, const Versions& versions, unsigned count);
// -q [-d SECTION,…] [-x]. Exit code.
int print_details(Nvml& nvml, const Versions& versions, const std::vector<Device>& devices,
                  const std::string& sections, bool xml);

// nvidia-smi mig …, topo …, nvlink …: the words behind the command. Exit code.
int mig_command(Nvml& nvml, const std::vector<std::string>& words);
int topo_command(Nvml& nvml, const std::vector<std::string>& words);
int nvlink_command(Nvml& nvml, const std::vector<std::string>& words);

// The boards that -i means: indices, UUIDs or bus ids; all for an empty one. A code of NVML's, said already.
int select_devices(Nvml& nvml, const std::string& id, std::vector<Device>& devices);

}  // namespace gpuop::sim::smi
