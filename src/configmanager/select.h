// Which configuration file a node uses (device-plugin-gfd-mps.md §2.5): decided from label, default and
// fallbacks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpuop::configmanager {

struct SelectFacts {
  std::vector<std::string> candidates;  // file names
  std::string label;                    // the node label's value; absent is ""
};

// A file name; "" means no configuration (a link to /dev/null). `unknown_label`, when given, tells whether
// the error is that the label names a file that is not there.
Result<std::string> select_config(const SelectFacts& facts, std::string_view default_config,
                                  const std::vector<std::string>& fallbacks, bool* unknown_label = nullptr);

// A running process, as /proc shows it.
struct Process {
  int pid = 0;
  std::string argv0;
  std::string exe;  // target of /proc/<pid>/exe, empty when unreadable
};
// The first process whose argv[0] is `name`, else the first whose argv[0] or executable has its base name.
std::optional<int> find_process(const std::vector<Process>& processes, std::string_view name);

}  // namespace gpuop::configmanager
