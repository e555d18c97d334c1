#include "sim/modules.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "base/text.h"
#include "sim/node_tree.h"
#include "sim/state/contexts.h"
#include "sim/state/mig.h"
#include "sim/state/telemetry.h"
#include "sim/tree_files.h"
#include "sim/vgpu_tree.h"

namespace gpuop::sim {

namespace {

struct ModuleFacts {
  const char* name;  // as /proc/modules shows it
  long size;
  const char* needs[2];
};
constexpr ModuleFacts kFacts[] = {
    {"nvidia", 56823808, {nullptr, nullptr}},         {"nvidia_uvm", 4935680, {"nvidia", nullptr}},
    {"nvidia_modeset", 1675264, {"nvidia", nullptr}}, {"nvidia_drm", 126976, {"nvidia_modeset", nullptr}},
    {"nvidia_peermem", 16384, {"nvidia", nullptr}},   {"nvidia_fs", 262144, {"nvidia", nullptr}},
    {"gdrdrv", 28672, {"nvidia", nullptr}},           {"ipmi_devintf", 16384, {"ipmi_msghandler", nullptr}},
};

std::string underscored(std::string_view name) {
  return replace_all(std::string(name), "-", "_");
}

std::vector<std::string> needs(const std::string& name) {
  std::vector<std::string> out;
  for (const ModuleFacts& f : kFacts) {
    if (name != f.name) continue;
    for (const char* n : f.needs) {
      if (n) out.emplace_back(n);
    }
  }
  return out;
}

long size_of(const std::string& name) {
  for (const ModuleFacts& f : kFacts) {
    if (name == f.name) return f.size;
  }
  return 65536;
}

// The file of a module in the tree; empty when this kernel has none. `builtin`: it is in the kernel itself.
fs::path module_file(const fs::path& kernel_root, const std::string& release, const std::string& name,
                     bool* builtin) {
  fs::path dir = kernel_root / "lib/modules" / release;
  std::error_code why;
  for (fs::recursive_directory_iterator it(dir, why), end; !why && it != end; it.increment(why)) {
    if (it->path().extension() == ".ko" && underscored(it->path().stem().string()) == name) return it->path();
  }
  if (auto list = read_file(dir / "modules.builtin")) {
    for (const auto& line : split(*list, '\n')) {
      if (underscored(fs::path(line).stem().string()) == name) *builtin = true;
    }
  }
  return {};
}

std::string value_of(const std::string& module, std::string_view key) {
  for (const auto& line : split(module, '\n')) {
    if (line.starts_with(std::string(key) + "=")) return line.substr(key.size() + 1);
  }
  return {};
}

// Modules as /proc/modules lists them: newest first.
Result<std::vector<std::string>> loaded(const fs::path& kernel_root) {
  std::vector<std::string> out;
  for (const auto& line : split(TRY(read_file(kernel_root / "proc/modules")), '\n')) {
    auto fields = split_fields(line);
    if (!fields.empty()) out.push_back(fields[0]);
  }
  return out;
}

Result<> write_modules(const fs::path& kernel_root, const std::vector<std::string>& modules) {
  std::string text;
  for (const auto& name : modules) {
    std::vector<std::string> holders;
    for (const auto& other : modules) {
      auto wanted = needs(other);
      if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) holders.push_back(other);
    }
    char line[256];
    std::snprintf(line, sizeof line, "%s %ld %zu %s Live 0x0000000000000000%s\n", name.c_str(), size_of(name),
                  holders.size(), holders.empty() ? "-" : (join(holders, ",") + ",").c_str(),
                  name.starts_with("nvidia") || name == "gdrdrv" ? " (OE)" : "");
    text += line;
    fs::path dir = kernel_root / "sys/module" / name;
    TRY(put(dir / "refcnt", std::to_string(holders.size()) + "\n"));
    TRY(put(dir / "initstate", "live\n"));
    TRY(put(dir / "coresize", std::to_string(size_of(name)) + "\n"));
    TRY(drop(dir / "holders"));
    TRY(make_dirs(dir / "holders"));
    for (const auto& holder : holders) TRY(put_link(fs::path("../..") / holder, dir / "holders" / holder));
  }
  // Last: readers of this file find the rest in place.
  TRY(put_new(kernel_root / "proc/modules", text));
  return {};
}

Result<> write_devices(const fs::path& kernel_root, const std::vector<std::string>& modules) {
  auto has = [&](const char* name) {
    return std::find(modules.begin(), modules.end(), name) != modules.end();
  };
  std::map<unsigned, std::vector<std::string>> extra;
  if (has("nvidia")) {
    extra[kMajorNvidia] = {"nvidia", "nvidiactl"};
    extra[kMajorCaps] = {"nvidia-caps"};
    extra[kMajorCaps - 1] = {"nvidia-caps-imex-channels"};
  }
  if (has("nvidia_modeset")) extra[kMajorNvidia].insert(extra[kMajorNvidia].begin() + 1, "nvidia-modeset");
  if (has("nvidia_uvm")) extra[kMajorUvm] = {"nvidia-uvm"};
  if (has("nvidia_fs")) extra[506] = {"nvidia-fs"};
  if (has("gdrdrv")) extra[505] = {"gdrdrv"};
  std::string text = base_devices(), added;
  for (const auto& [major, names] : extra) {
    for (const auto& name : names) {
      char line[80];
      std::snprintf(line, sizeof line, "%3u %s\n", major, name.c_str());
      added += line;
    }
  }
  std::size_t end = text.find("\nBlock devices:");
  text.insert(end, added);
  TRY(put_new(kernel_root / "proc/devices", text));
  return {};
}

Result<> change_state(const fs::path& kernel_root, const std::function<void(State&)>& change) {
  fs::path path = hardware_state_path(kernel_root);
  StateFile file;
  if (file.open(path.string()) != StateFault::kNone) {
    return fail(Code::kIo, "open hardware state '" + path.string() + "': missing or damaged");
  }
  int code = file.update([&](State& s) {
    change(s);
    return 0;
  });
  if (code) return fail(errno_error("write hardware state '" + path.string() + "'", code));
  return {};
}

// Counters that the driver keeps start anew with it; what waits for a reset takes effect.
void driver_start(State& s, const std::string& version) {
  std::uint64_t now = now_us();
  s.driver_loaded = 1;
  s.driver_loaded_us = now;
  std::snprintf(s.kernel_driver, sizeof s.kernel_driver, "%s", version.c_str());
  // CUDA comes with the branch: 535 is 12.2, 550 12.4, 560 12.6, 570 12.8, 580 13.0, …
  int branch = std::atoi(version.c_str());
  s.cuda_version = branch >= 590   ? 13010
                   : branch >= 580 ? 13000
                   : branch >= 575 ? 12090
                   : branch >= 570 ? 12080
                   : branch >= 565 ? 12070
                   : branch >= 560 ? 12060
                   : branch >= 555 ? 12050
                   : branch >= 550 ? 12040
                   : branch >= 545 ? 12030
                   : branch >= 535 ? 12020
                   : branch >= 530 ? 12010
                                   : 12000;
  for (std::uint32_t g = 0; g < s.gpu_count; ++g) {
    Live& l = s.gpus[g].live;
    l.load_since_us = now;
    l.energy_extra_mj = l.link_extra_kib = l.power_violation_ns = l.thermal_violation_ns = l.loaded_ns = 0;
    l.ecc_sbe_volatile = l.ecc_dbe_volatile = 0;
    l.pcie_replays = l.pcie_correctable = 0;
    l.persistence = 0;
    l.compute_mode = 0;
    l.ecc_current = l.ecc_pending;
    if (l.mig_current != l.mig_pending) {
      l.mig_current = l.mig_pending;
    }
    // Partitions live in the driver, not on the board.
    for (GpuInstance& gi : l.gis) gi = GpuInstance{};
  }
}

Result<> require_no_clients(const fs::path& kernel_root, const std::string& name) {
  StateFile file;
  if (file.open(hardware_state_path(kernel_root).string()) != StateFault::kNone) return {};
  std::set<pid_t> users;
  for (const Context& context : list_contexts(file.fd())) users.insert(context.pid);
  // Who only looks has no use for the module of managed memory.
  if (name == "nvidia") {
    for (const pid_t client : list_clients(file.fd())) users.insert(client);
  }
  if (users.empty()) return {};
  std::string who;
  for (const pid_t user : users) {
    if (!who.empty()) who += ", ";
    who += user != 0 ? "process " + std::to_string(user) : "a process of another namespace";
  }
  return fail(Code::kBusy, "unload module '" + name + "': in use by " + who);
}

}  // namespace

fs::path hardware_state_path(const fs::path& kernel_root) {
  return kernel_root / "sim/state";
}

std::string module_text(std::string_view version, std::string_view release) {
  std::string out;
  if (!version.empty()) out += "version=" + std::string(version) + "\n";
  return out + "vermagic=" + std::string(release) + " SMP preempt mod_unload modversions\n";
}

Result<std::string> tree_release(const fs::path& kernel_root) {
  return std::string(
      trim(TRY_IN(read_file(kernel_root / "proc/sys/kernel/osrelease"), "read the kernel's release")));
}

std::string base_devices() {
  return "Character devices:\n  1 mem\n  4 tty\n  5 /dev/tty\n 10 misc\n 13 input\n 29 fb\n116 alsa\n128 "
         "ptm\n136 pts\n"
         "180 usb\n226 drm\n\nBlock devices:\n  7 loop\n259 blkext\n254 device-mapper\n";
}

bool module_loaded(const fs::path& kernel_root, std::string_view name) {
  auto modules = loaded(kernel_root);
  return modules && std::find(modules->begin(), modules->end(), underscored(name)) != modules->end();
}

Result<std::string> loaded_driver_version(const fs::path& kernel_root) {
  if (!module_loaded(kernel_root, "nvidia"))
    return fail(Code::kNotFound, "driver version: module nvidia is not loaded");
  return std::string(trim(TRY(read_file(kernel_root / "sys/module/nvidia/version"))));
}

namespace {

// One change at a time, from any process; held until the object goes.
Result<Fd> lock_modules(const fs::path& kernel_root) {
  fs::path path = kernel_root / "sim/modules.lock";
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return fail(errno_error("open '" + path.string() + "'", errno));
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail(errno_error("lock '" + path.string() + "'", errno));
  }
  return fd;
}

Result<> load_locked(const fs::path& kernel_root, std::string_view given) {
  std::string name = underscored(given);
  auto modules = TRY(loaded(kernel_root));
  if (std::find(modules.begin(), modules.end(), name) != modules.end()) return {};
  std::string release = TRY(tree_release(kernel_root));
  bool builtin = false;
  fs::path file = module_file(kernel_root, release, name, &builtin);
  if (file.empty() && builtin) return {};
  if (file.empty()) {
    return fail(Code::kNotFound,
                "Module " + std::string(given) + " not found in directory /lib/modules/" + release);
  }
  std::string module = TRY(read_file(file));
  if (!value_of(module, "vermagic").starts_with(release + " ")) {
    return fail(Code::kInvalid, "load module '" + name + "': version magic '" + value_of(module, "vermagic") +
                                    "' should be '" + release + "': Exec format error");
  }
  std::string version = value_of(module, "version");
  for (const auto& dependency : needs(name)) TRY(load_locked(kernel_root, dependency));
  if (name == "nvidia") {
    TRY(change_state(kernel_root, [&](State& s) { driver_start(s, version); }));
    StateFile state;
    if (state.open(hardware_state_path(kernel_root).string()) == StateFault::kNone) {
      TRY(bind_gpu_driver(kernel_root, *state.read()));
    }
  }
  if (name == "nvidia_uvm") TRY(change_state(kernel_root, [](State& s) { s.uvm_loaded = 1; }));
  if (!version.empty()) TRY(put(kernel_root / "sys/module" / name / "version", version + "\n"));
  modules = TRY(loaded(kernel_root));
  modules.insert(modules.begin(), name);
  TRY(write_devices(kernel_root, modules));
  return write_modules(kernel_root, modules);
}

}  // namespace

std::vector<std::string> removal_order(const std::string& name) {
  std::vector<std::string> out = {name};
  for (const auto& needed : needs(name)) {
    for (auto& deeper : removal_order(needed)) out.push_back(std::move(deeper));
  }
  return out;
}

Result<> set_module_parameters(const fs::path& kernel_root, const std::string& name,
                               const std::vector<std::string>& words) {
  for (const auto& word : words) {
    std::size_t equals = word.find('=');
    std::string key = word.substr(0, equals);
    if (key.empty() || key.find('/') != std::string::npos) continue;
    std::string value = equals == std::string::npos ? "1" : word.substr(equals + 1);
    TRY(put(kernel_root / "sys/module" / name / "parameters" / key, value + "\n"));
  }
  return {};
}

Result<> load_module(const fs::path& kernel_root, std::string_view name) {
  Fd lock = TRY(lock_modules(kernel_root));
  return load_locked(kernel_root, name);
}

Result<> unload_module(const fs::path& kernel_root, std::string_view given) {
  Fd lock = TRY(lock_modules(kernel_root));
  std::string name = underscored(given);
  auto modules = TRY(loaded(kernel_root));
  auto at = std::find(modules.begin(), modules.end(), name);
  if (at == modules.end()) {
    return fail(Code::kNotFound, "unload module '" + name + "': Module " + name + " is not currently loaded");
  }
  std::vector<std::string> holders;
  for (const auto& other : modules) {
    auto wanted = needs(other);
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) holders.push_back(other);
  }
  if (!holders.empty()) {
    return fail(Code::kBusy,
                "unload module '" + name + "': Module " + name + " is in use by: " + join(holders, " "));
  }
  if (name == "nvidia" || name == "nvidia_uvm") TRY(require_no_clients(kernel_root, name));
  modules.erase(at);
  TRY(write_modules(kernel_root, modules));
  TRY(write_devices(kernel_root, modules));
  TRY(drop(kernel_root / "sys/module" / name));
  if (name == "nvidia_uvm") TRY(change_state(kernel_root, [](State& s) { s.uvm_loaded = 0; }));
  if (name == "nvidia") {
    TRY(change_state(kernel_root, [](State& s) { s.driver_loaded = 0; }));
    TRY(unbind_gpu_driver(kernel_root));
  }
  return {};
}

Result<> unbind_gpu_driver(const fs::path& root) {
  fs::path driver = root / "sys/bus/pci/drivers/nvidia";
  if (auto bound = list_dir(driver)) {
    for (const auto& address : *bound) {
      if (address.find(':') == std::string::npos) continue;
      fs::path device = root / "sys/bus/pci/devices" / address;
      TRY(drop(device / "driver"));
      // Virtual functions go with the driver that made them.
      if (!file_exists(device / "physfn")) continue;
      std::error_code why;
      fs::path dir = fs::canonical(device, why);
      TRY(drop(device));
      if (!why) TRY(drop(dir));
    }
  }
  TRY(drop(driver));
  TRY(drop_vgpus(root));
  for (const char* name : {"nvidia", "nvidia-caps"}) TRY(drop(root / "proc/driver" / name));
  return {};
}

}  // namespace gpuop::sim
