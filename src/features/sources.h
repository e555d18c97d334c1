// The feature sources of a node (nfd.md §2.5 to §2.8): observe, then labels from what was observed.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "features/config.h"
#include "features/feature_set.h"

namespace gpuop::features {

// Where the host's files are in our view.
struct HostView {
  std::filesystem::path sys;         // <sys>/bus/pci/devices
  std::filesystem::path os_release;  // a copy mounted from the host
  std::filesystem::path boot, usr, lib;
  std::filesystem::path swaps;
  std::filesystem::path features_d = "/etc/kubernetes/node-feature-discovery/features.d";
  std::string node_name;
};
// From --host-root-prefix ("/host-"): "<prefix>sys" and so on; the kernel's own paths follow
// GPUOP_KERNEL_ROOT.
HostView host_view(const std::string& prefix);

struct Discovery {
  FeatureSet features;
  std::map<std::string, std::string> labels;  // full keys
  std::vector<std::string> problems;          // sources or devices that were left out, and why
};

// Labels of what `discovery.features` holds, and of the feature files (`local`), as far as the configuration
// wants them. Pure.
void add_labels(Discovery& discovery, const std::map<std::string, std::string>& local,
                const WorkerConfig& config);

// Runs the enabled sources; a source that fails leaves a problem and nothing else.
Discovery discover(const HostView& host, const WorkerConfig& config, Time now);

// --- parts, pure but for reading the named files ---
FeatureSet read_pci(const HostView& host, std::vector<std::string>& problems);
std::map<std::string, std::string> pci_labels(const FeatureSet& features, const WorkerConfig& config,
                                              std::vector<std::string>& problems);
// "5.14.0-284.30.1.el9_2.x86_64" → full, major, minor, revision.
Attributes kernel_version(std::string_view osrelease);
Attributes parse_os_release(std::string_view text);

struct LocalFeatures {
  Attributes features;
  std::map<std::string, std::string> labels;
};
// One feature file's text (§2.9).
LocalFeatures parse_feature_file(std::string_view text, const std::string& name, Time now,
                                 std::vector<std::string>& problems);

// §2.4 step 4.
bool valid_label_key(std::string_view key);
bool valid_label_value(std::string_view value);

}  // namespace gpuop::features
