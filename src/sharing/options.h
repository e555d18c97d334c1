// The options of the device plugin, GPU feature discovery and the MPS daemon (device-plugin-gfd-mps.md §2.3):
// one table, from which command lines, environment and configuration file are read alike.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::sharing {

enum class Program { kPlugin, kFeatureDiscovery, kMps, kConfigManager };

enum class OptionType { kBool, kString, kInt, kStringList, kIntList, kDuration };

struct Option {
  std::string_view name;                  // of the flag, without dashes
  std::vector<std::string_view> aliases;  // other names of the flag
  std::vector<std::string_view> envs;     // the first that is present counts
  std::string_view file_key;              // beneath `flags`, "" when a file cannot set it
  OptionType type;
  std::string_view fallback;  // as text
  std::string_view help;
};

// What `program` knows, in the order of its help.
std::span<const Option> options(Program program);
// Every option that a file can set, whichever program reads it.
std::span<const Option> file_options();

// Text of a flag or variable as a value of the option's type: bool, string, int64, array of strings, array of
// int64, or int64 nanoseconds with null for "infinite". The error says what is wrong, not where.
Result<Json> parse_option_value(OptionType type, std::string_view text);
// "60s", "1m30s" or "infinite" (null).
Result<Json> parse_duration_value(std::string_view text);

}  // namespace gpuop::sharing
