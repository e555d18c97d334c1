// The configuration files of container engines, decided as text: what a set-up or a clean-up makes of them
// (container-toolkit-cdi.md §4.3). Pure; user files are edited as text and checked as TOML or JSON
// afterwards.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::toolkit {

struct EngineSettings {
  struct Runtime {
    std::string name;
    std::string path;
  };
  std::vector<Runtime> runtimes;  // in order; the first is the one that may become the default
  std::string default_name;       // which of them, when set_as_default
  bool set_as_default = false;
  bool enable_cdi = false;
  bool legacy_config = false;  // containerd: default_runtime of old days
  std::string runtime_type = "io.containerd.runc.v2";
  std::vector<std::string> annotation_prefixes;  // containerd: container_annotations
  std::string import_glob;        // containerd: "/etc/containerd/conf.d/*.toml", as the host sees it
  Json overrides = JsonObject{};  // merged into each of our runtimes' tables
};

// A file's text; nullopt: there is no file.
using FileText = std::optional<std::string>;

struct EngineFiles {
  FileText main;
  FileText drop_in;
  bool operator==(const EngineFiles&) const = default;
};

// `source` is the configuration that options are copied from: the main file's own text, or a dump of the
// daemon's. containerd: the main file gains an import (v2, v3) or our runtimes (v1); the drop-in has the
// runtimes.
Result<EngineFiles> containerd_setup(const EngineFiles& now, const FileText& source,
                                     const EngineSettings& settings);
Result<EngineFiles> containerd_cleanup(const EngineFiles& now, const EngineSettings& settings);
// CRI-O: only the drop-in.
Result<EngineFiles> crio_setup(const EngineFiles& now, const FileText& source,
                               const EngineSettings& settings);
Result<EngineFiles> crio_cleanup(const EngineFiles& now, const EngineSettings& settings);
// Docker: the main file is JSON.
Result<EngineFiles> docker_setup(const EngineFiles& now, const FileText& source,
                                 const EngineSettings& settings);
Result<EngineFiles> docker_cleanup(const EngineFiles& now, const EngineSettings& settings);

// Paths of the low-level runtimes that the engine's configuration names: of the default runtime, runc and
// crun.
std::vector<std::string> low_level_runtimes(std::string_view engine, const FileText& config);

}  // namespace gpuop::toolkit
