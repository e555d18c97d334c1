// What a node's containerd configuration says to its CRI part.
// Read as containerd 2.1 reads it: version 1, 2 and 3 tables, imports merged over the main file key by key
// (container-toolkit-cdi.md §4.3).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cluster/runtime/engine_config.h"

namespace gpuop::cluster {

// Text of one file to JSON. Errors (kInvalid) have file, line and column.
Result<Json> parse_toml(std::string_view text, std::string_view file);

// Decides on documents in the order in which they are merged: the main file first. `version` is containerd's
// own: 1.7 knows no version 3 files and has CDI off unless told, and before 2.1 a later file's plugin table
// takes the place of the whole earlier one. Pure.
Result<EngineConfig> decide_containerd_config(const std::vector<std::pair<std::string, Json>>& documents,
                                              const std::string& version = "2.1.0");

// Reads `main` and what it imports, globs beside it included. A missing main file means the defaults.
Result<EngineConfig> load_containerd_config(const std::filesystem::path& main,
                                            const std::string& version = "2.1.0");

}  // namespace gpuop::cluster
