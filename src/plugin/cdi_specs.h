// The CDI specs that the plugin's answers refer to (device-plugin-gfd-mps.md §3.6).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plugin/facts.h"
#include "plugin/resources.h"

namespace gpuop::plugin {

struct CdiOutcome {
  std::vector<std::string> classes;            // of "gdrcopy", "gds", "mofed": those that were written
  std::map<std::string, std::string> missing;  // name of a device left out, to the path of its missing node
};

// Writes one file a class beneath `dir`, each only on a difference, and removes the plugin's files of classes
// that it no longer produces: all of them when no cdi-* strategy is set.
Result<CdiOutcome> write_cdi_specs(const sharing::Settings& settings, const Facts& facts, const Plan& plan,
                                   const std::filesystem::path& dir);

}  // namespace gpuop::plugin
