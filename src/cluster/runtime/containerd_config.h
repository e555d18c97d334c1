// What a node's containerd configuration says to the CRI part of a runtime: handlers, the default one, CDI.
// Read as containerd 2.1 reads it: version 1, 2 and 3 tables, imports merged over the main file key by key
// (container-toolkit-cdi.md §4.3).
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

struct ContainerdConfig {
  std::string default_handler = "runc";
  std::map<std::string, RuntimeHandler> handlers{{"runc", {}}};
  bool enable_cdi = true;  // containerd 2
  std::vector<std::string> cdi_dirs{"/etc/cdi", "/var/run/cdi"};
  std::vector<std::string> files;     // what was read, in order
  std::vector<std::string> warnings;  // odd but harmless
  bool operator==(const ContainerdConfig&) const = default;

  // The handler that a sandbox names, or the default for ""; null when there is none of that name.
  const RuntimeHandler* handler(const std::string& name) const;
};

// Text of one file to JSON. Errors (kInvalid) have file, line and column.
Result<Json> parse_toml(std::string_view text, std::string_view file);

// Decides on documents in the order in which they are merged: the main file first. Pure.
Result<ContainerdConfig> decide_containerd_config(const std::vector<std::pair<std::string, Json>>& documents);

// Reads `main` and what it imports, globs beside it included. A missing main file means the defaults.
Result<ContainerdConfig> load_containerd_config(const std::filesystem::path& main);

}  // namespace gpuop::cluster
