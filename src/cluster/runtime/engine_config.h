// What a node's container engine makes of its own configuration files: handlers, the default one, CDI. Three
// engines, each with its own files (container-toolkit-cdi.md §4.3): containerd (containerd_config.h), CRI-O
// and Docker behind cri-dockerd.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster {

struct RuntimeHandler {
  std::string type = "io.containerd.runc.v2";
  std::string binary_name;                         // options.BinaryName; empty: the node's own `runc`
  std::vector<std::string> pod_annotations;        // patterns of pod annotations that reach the OCI spec
  std::vector<std::string> container_annotations;  // the same of container annotations
  bool privileged_without_host_devices = false;
  bool operator==(const RuntimeHandler&) const = default;
};

struct EngineConfig {
  std::string default_handler = "runc";
  std::map<std::string, RuntimeHandler> handlers{{"runc", {}}};
  bool passes_cdi = true;  // the CRI's CDI devices reach the engine
  bool enable_cdi = true;  // containerd 2, CRI-O
  std::vector<std::string> cdi_dirs{"/etc/cdi", "/var/run/cdi"};
  std::vector<std::string> files;     // what was read, in order
  std::vector<std::string> warnings;  // odd but harmless
  bool operator==(const EngineConfig&) const = default;

  // The handler that a sandbox names, or the default for ""; null when there is none of that name.
  const RuntimeHandler* handler(const std::string& name) const;
};

// An engine as a node has it: its name is what fleets and the toolkit call it.
struct Engine {
  std::string name;     // containerd, crio, docker
  std::string version;  // "2.1.0"
  std::string scheme;   // of nodeInfo.containerRuntimeVersion and container ids: containerd, cri-o, docker
  std::filesystem::path config, state_dir, run_dir, socket;
  std::string unit;      // systemd's
  bool reloads = false;  // SIGHUP is read in place; others end and are started again
  // The CRI's CDI devices reach the engine. cri-dockerd drops them until its change 522 (November 2025).
  bool passes_cdi = true;
};
// Version empty: the one that a node has by default. kInvalid names the engines that there are.
Result<Engine> find_engine(const std::string& name, const std::string& version = {});
// "2.1.0" is at least 2.1.
bool at_least(const std::string& version, int major, int minor);

// Reads what the engine reads when it starts. A missing main file means the defaults; kInvalid is what it
// would refuse to start with.
Result<EngineConfig> load_engine_config(const Engine& engine);

// On documents in the order in which they are read: crio.conf first, then the drop-ins. Pure.
Result<EngineConfig> decide_crio_config(const Engine& engine,
                                        const std::vector<std::pair<std::string, Json>>& documents);
// On daemon.json. Pure.
Result<EngineConfig> decide_docker_config(const Engine& engine, const Json& document);

}  // namespace gpuop::cluster
