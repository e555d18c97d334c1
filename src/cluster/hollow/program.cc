#include "cluster/hollow/program.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kGates = "/run/nvidia/validations/";
constexpr Duration kDriverInstall = 8s;  // of a driver container, to its loaded modules

std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

// Runs until it is stopped.
class Idle : public Program {
 public:
  void start() override {}
};

class Ends : public Program {
 public:
  Ends(ProgramContext context, int code) : context_(std::move(context)), code_(code) {}
  void start() override { context_.exit(code_); }

 private:
  ProgramContext context_;
  int code_;
};

// Runs and answers HTTP probes on a port.
class Serves : public Program {
 public:
  Serves(ProgramContext context, int port) : context_(std::move(context)), port_(port) {}
  ~Serves() override {
    if (on_) context_.machine.serve(port_, false);
  }
  void start() override {
    context_.machine.serve(port_, true);
    on_ = true;
  }

 private:
  ProgramContext context_;
  int port_;
  bool on_ = false;
};

// Runs `ready` again after every change of the machine, until it answers an exit code.
class WaitsFor : public Program {
 public:
  WaitsFor(ProgramContext context, std::function<std::optional<int>(HollowMachine&)> ready)
      : context_(std::move(context)), ready_(std::move(ready)) {}
  void start() override {
    changes_ = context_.machine.on_change([this] { look(); });
    look();
  }

 private:
  void look() {
    const auto code = ready_(context_.machine);
    if (!code) return;
    changes_.reset();
    context_.exit(*code);
  }
  ProgramContext context_;
  std::function<std::optional<int>(HollowMachine&)> ready_;
  Handle changes_;
};

// A metrics exporter: it needs the driver that its pod's gate has waited for.
class Exporter : public Program {
 public:
  explicit Exporter(ProgramContext context)
      : context_(std::move(context)), serves_(context_.env_or("SERVING_FILE")) {}
  ~Exporter() override {
    if (on_) context_.machine.serve(port_, false);
    if (!serves_.empty()) context_.machine.remove_gates(serves_);
  }
  void start() override {
    if (context_.machine.driver().empty()) return context_.exit(1);
    const std::string listen = context_.env_or("DCGM_EXPORTER_LISTEN", ":9400");
    port_ = static_cast<int>(parse_int(listen.substr(listen.rfind(':') + 1)).value_or(9400));
    context_.machine.serve(port_, true);
    on_ = true;
    if (!serves_.empty()) context_.machine.open_gate(serves_);
  }

 private:
  ProgramContext context_;
  std::string serves_;
  int port_ = 9400;
  bool on_ = false;
};

class Toolkit : public Program {
 public:
  explicit Toolkit(ProgramContext context)
      : context_(std::move(context)), configured_(split(context_.env_or("TOOLKIT_CONFIGURED_FILE"), ',')) {}
  ~Toolkit() override {
    for (const std::string& file : configured_) context_.machine.remove_gates(file);
  }
  void start() override {
    context_.machine.wire_toolkit();
    for (const std::string& file : configured_) context_.machine.open_gate(file);
  }

 private:
  ProgramContext context_;
  std::vector<std::string> configured_;
};

// The driver container: builds, loads, and takes the modules out again when it is told to end.
class DriverContainer : public Program {
 public:
  explicit DriverContainer(ProgramContext context) : context_(std::move(context)) {}
  void start() override {
    timer_ = context_.loop.after(kDriverInstall,
                                 [this] { context_.machine.load_driver(context_.driver_version); });
  }
  void stopping() override {
    timer_.reset();
    context_.machine.unload_driver();
  }

 private:
  ProgramContext context_;
  Handle timer_;
};

int port_of(const ProgramContext& context, int fallback) {
  for (const std::string& word : context.words) {
    for (std::string_view flag : {"-port=", "--port="}) {
      if (word.starts_with(flag))
        return static_cast<int>(parse_int(word.substr(flag.size())).value_or(fallback));
    }
  }
  return fallback;
}

std::unique_ptr<Program> wait_for(ProgramContext context) {
  std::set<std::string> files(context.words.begin() + 1, context.words.end());
  return std::make_unique<WaitsFor>(
      std::move(context), [files](HollowMachine& machine) -> std::optional<int> {
        const bool all =
            std::ranges::all_of(files, [&](const auto& file) { return hollow_file(machine, file); });
        return all ? std::optional<int>(0) : std::nullopt;
      });
}

// A pod that computes on a GPU.
int vector_add(const ProgramContext& context) {
  return context.gpu_given && !context.machine.driver().empty() && context.machine.toolkit() ? 0 : 1;
}

using Maker = std::function<std::unique_ptr<Program>(ProgramContext)>;

const std::map<std::string, Maker, std::less<>>& table() {
  static const auto idle = [](ProgramContext) { return std::make_unique<Idle>(); };
  static const std::map<std::string, Maker, std::less<>> kTable{
      {"config-manager",
       [](ProgramContext context) -> std::unique_ptr<Program> {
         if (context.flag("ONESHOT", false)) return std::make_unique<Ends>(std::move(context), 0);
         return std::make_unique<Idle>();
       }},
      {"dcgm-exporter",
       [](ProgramContext context) { return std::make_unique<Exporter>(std::move(context)); }},
      {"device-plugin", make_device_plugin},
      {"nvidia-device-plugin", make_device_plugin},
      {"driver-manager", make_driver_manager},
      {"feature-discovery", make_feature_discovery},
      {"gpu-feature-discovery", make_feature_discovery},
      {"gpu-operator", make_operator},
      {"mps-control-daemon", idle},
      {"nfd-worker", make_nfd_worker},
      {"nvidia-toolkit",
       [](ProgramContext context) { return std::make_unique<Toolkit>(std::move(context)); }},
      {"toolkit", [](ProgramContext context) { return std::make_unique<Toolkit>(std::move(context)); }},
      {"validations", make_validations},
      {"nvidia-validator", make_validator},
      {"validator", make_validator},
      {"pause", idle},
      {"sleep", idle},
      {"wait-for", wait_for},
      {"echo", [](ProgramContext context) { return std::make_unique<Ends>(std::move(context), 0); }},
      {"true", [](ProgramContext context) { return std::make_unique<Ends>(std::move(context), 0); }},
      {"vectorAdd",
       [](ProgramContext context) {
         const int code = vector_add(context);
         return std::make_unique<Ends>(std::move(context), code);
       }},
      {"vector-add",
       [](ProgramContext context) {
         const int code = vector_add(context);
         return std::make_unique<Ends>(std::move(context), code);
       }},
  };
  return kTable;
}

}  // namespace

std::string ProgramContext::env_or(const std::string& name, const std::string& fallback) const {
  const auto found = env.find(name);
  return found == env.end() ? fallback : found->second;
}
bool ProgramContext::flag(const std::string& name, bool fallback) const {
  const auto found = env.find(name);
  if (found == env.end()) return fallback;
  return found->second == "true" || found->second == "1";
}

Result<std::unique_ptr<Program>> make_program(ProgramContext context) {
  if (!context.driver_version.empty() && context.container == "nvidia-driver-ctr") {
    return std::make_unique<DriverContainer>(std::move(context));
  }
  std::vector<std::string>& words = context.words;
  // A shell with one command in it; scripts proper are not played.
  if (words.size() == 3 && (base_name(words[0]) == "sh" || base_name(words[0]) == "bash") &&
      words[1] == "-c") {
    words = split_fields(words[2]);
  }
  if (words.size() > 1 && base_name(words[0]) == "gpu-node") words.erase(words.begin());
  if (words.empty()) words.emplace_back("pause");
  words[0] = base_name(words[0]);
  if (words[0] == "pause" && port_of(context, 0) > 0) {
    const int port = port_of(context, 0);
    return std::make_unique<Serves>(std::move(context), port);
  }
  const auto found = table().find(words[0]);
  if (found == table().end()) {
    return fail(Code::kNotFound, "exec: \"" + words[0] + "\": a hollow node plays no such program");
  }
  return found->second(std::move(context));
}

bool hollow_file(const HollowMachine& machine, const std::string& path) {
  return machine.gate(path.starts_with(kGates) ? path.substr(kGates.size()) : path);
}

std::optional<std::vector<std::string>> awaited_files(std::vector<std::string> argv) {
  if (argv.size() > 1 && base_name(argv[0]) == "gpu-node") argv.erase(argv.begin());
  if (argv.size() < 2 || base_name(argv[0]) != "wait-for") return std::nullopt;
  argv.erase(argv.begin());
  return argv;
}

bool awaits_driver(const std::vector<std::string>& argv) {
  return argv.size() == 3 && argv[1].ends_with("startup-probe.sh");
}

int hollow_exec(HollowMachine& machine, const std::string& pod_uid, const std::vector<std::string>& argv) {
  std::vector<std::string> words = argv;
  if (words.size() == 3 && words[1] == "-c") words = split_fields(words[2]);
  if (words.size() > 1 && base_name(words[0]) == "gpu-node") words.erase(words.begin());
  if (words.empty()) return 127;
  // The driver container's startup probe asks for the driver, and opens its gate.
  const bool probe =
      std::ranges::any_of(words, [](const std::string& w) { return w.ends_with("startup-probe.sh"); });
  if (probe) {
    if (machine.driver().empty()) return 1;
    machine.open_gate(".driver-ctr-ready");
    return 0;
  }
  if (words[0] == "validations" && std::ranges::find(words, "--release") != words.end()) {
    machine.decide_gates(validate::release_gates(machine.gate_owner(), pod_uid));
    return 0;
  }
  if (words[0] == "rm") {
    for (const std::string& word : words) {
      if (word.starts_with(kGates)) machine.remove_gates(word.substr(kGates.size()));
    }
    return 0;
  }
  return table().contains(base_name(words[0])) ? 0 : 127;
}

}  // namespace gpuop::cluster
