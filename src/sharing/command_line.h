// Command lines as upstream's programs read them: "--name value", "--name=value", one dash or two, a bare
// boolean flag is true (device-plugin-gfd-mps.md §2.1).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "sharing/options.h"

namespace gpuop::sharing {

struct CommandLine {
  std::map<std::string, std::vector<std::string>> flags;  // by Option::name, in order; values not yet checked
  bool help = false, version = false;
};

// `arguments` without the program's name. Errors: an unknown flag (with the nearest right one), a missing
// value, an argument that is no flag.
Result<CommandLine> parse_command_line(Program program, std::span<const std::string> arguments);
// What --help prints.
std::string help_text(Program program, std::string_view name);

}  // namespace gpuop::sharing
