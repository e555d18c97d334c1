// The start that the operands of the shared options have in common (device-plugin-gfd-mps.md §0, §2): command
// line, log, signals, the driver's gate, the run and its end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/loop.h"
#include "sharing/command_line.h"
#include "sharing/settings.h"

namespace gpuop {

// What runs until a signal: `reload` answers SIGHUP; `alive` is what it is made of, dropped at the end.
struct RunningOperand {
  std::function<void()> reload;
  std::shared_ptr<void> alive;
};

struct Operand {
  sharing::Program program = sharing::Program::kPlugin;
  std::string_view name;
  std::string_view more_help;  // behind the options
  // Starts it. `inputs` are the command line and the environment with the driver's facts; `end` may be called
  // once on the loop, later, with an error that ends the program with 1, or without one.
  std::function<Result<RunningOperand>(Loop& loop, sharing::SettingsInputs inputs,
                                       std::function<void(Result<>)> end)>
      start;
};

// The exit code where a command line asks for no run: it is wrong, or wants --help or --version.
std::optional<int> answer(sharing::Program program, std::string_view name,
                          const Result<sharing::CommandLine>& line, std::string_view more_help = {});

// The exit code. `arguments` without the program's name.
int run_operand(const Operand& operand, std::span<const std::string> arguments);

}  // namespace gpuop
