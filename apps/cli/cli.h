// Command lines of our programs. For .cc files of apps/ only: it brings CLI11 along.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace gpuop {

// Parses; answers an exit code when the program should end now: 0 after --help, `wrong` after a wrong command
// line, whose one error line names the nearest right option.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv, int wrong = 1);

}  // namespace gpuop
