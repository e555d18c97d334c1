// nfd-worker.conf (nfd.md §2.2, §2.3): YAML or JSON, keys in any case, unknown keys warned of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpuop::features {

struct WorkerConfig {
  Duration sleep_interval = 60s;  // zero or less: discover once, then only on file events
  std::vector<std::string> feature_sources{"all"};
  std::vector<std::string> label_sources{"all"};
  std::string label_white_list;  // regular expression, unanchored, on the name part; empty: all
  bool no_publish = false;
  std::vector<std::string> owner_refs{"pod", "ds"};  // of node, pod, ds
  std::vector<std::string> no_publish_features;
  std::vector<std::string> pci_class_whitelist{"03", "0b40", "12"};
  std::vector<std::string> pci_label_fields{"class", "vendor"};
  std::string kconfig_file;
  std::vector<std::string> kernel_config_options{"NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"};

  std::vector<std::string> warnings;  // to be logged
};

// Merges `text` over `config`; `file` for messages. kInvalid: "failed to parse config file: …".
Result<> merge_config(WorkerConfig& config, std::string_view text, std::string_view file);
// Duplicates and unknown words are errors; the order becomes node, pod, ds.
Result<std::vector<std::string>> check_owner_refs(const std::vector<std::string>& refs);
// Whether `source` is on in a list like [all, -pci] or [pci, kernel].
bool source_enabled(const std::vector<std::string>& list, std::string_view source);

}  // namespace gpuop::features
