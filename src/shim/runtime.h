// nvidia-container-runtime: stands before the low-level runtime, edits the container's config.json on
// `create`, and becomes that runtime (container-toolkit-cdi.md §3).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "shim/config.h"

namespace gpuop::shim {

struct RuntimeArguments {
  bool create = false;
  std::filesystem::path bundle;  // "." when none was given
  std::string log;               // the engine's --log file
  bool log_json = false;
  bool debug = false;
  bool version = false;
};
// What of the low-level runtime's command line concerns us. "bundle option requires an argument" is the one
// error.
Result<RuntimeArguments> parse_runtime_arguments(const std::vector<std::string>& args);

// The first of `candidates` that is an executable file: an entry with a slash as it is, else along `path` and
// the usual folders. "no runtime binary found from candidate list: […]".
Result<std::filesystem::path> find_low_level_runtime(const std::vector<std::string>& candidates,
                                                     const std::string& path);

// Edits the config.json of a bundle; written only when something changes. Answers whether it was.
// `log` takes lines as base/log.h counts levels (0 debug … 3 error).
Result<bool> edit_bundle(const std::filesystem::path& bundle, const Config& config,
                         const std::filesystem::path& facts_file,
                         const std::function<void(int level, const std::string&)>& log);

// The whole program. `forced_mode` is cdi or legacy for the names that end so. Returns only when exec failed.
int runtime_main(int argc, char** argv, const std::string& forced_mode);

}  // namespace gpuop::shim
