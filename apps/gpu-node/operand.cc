#include "operand.h"

#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "driver_ready.h"

namespace gpuop {

std::optional<int> answer(sharing::Program program, std::string_view called,
                          const Result<sharing::CommandLine>& line, std::string_view more_help) {
  const std::string name(called);
  if (!line) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), line.error().text().c_str());
    return 1;
  }
  if (line->help) {
    std::fputs(sharing::help_text(program, name).c_str(), stdout);
    std::fputs(std::string(more_help).c_str(), stdout);
    return 0;
  }
  if (line->version) {
    std::printf("%s %s\n", name.c_str(), GPUOP_VERSION);
    return 0;
  }
  return std::nullopt;
}

int run_operand(const Operand& operand, std::span<const std::string> arguments) {
  auto line = sharing::parse_command_line(operand.program, arguments);
  if (auto code = answer(operand.program, operand.name, line, operand.more_help)) return *code;
  log::setup(std::string(operand.name));

  Loop loop;
  int code = 0;
  RunningOperand running;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT, SIGHUP}, [&](int number) {
    if (number != SIGHUP) {
      log::info("stopping", {{"signal", number}});
      loop.stop();
    } else if (running.reload) {
      running.reload();
    }
  });
  auto end = [&](Result<> how) {
    if (!how) {
      log::error(how.error().text());
      code = 1;
    }
    loop.stop();
  };

  sharing::SettingsInputs inputs;
  inputs.flags = line->flags;
  inputs.env = environment_map();
  if (auto passed = pass_driver_gate(loop, inputs.env); !passed) {
    if (passed.error().code() != Code::kCancelled) end(fail(std::move(passed).error()));
    return code;
  }
  auto started = operand.start(loop, std::move(inputs), end);
  if (!started) {
    end(fail(std::move(started).error()));
    return code;
  }
  running = std::move(*started);
  loop.run();
  return code;
}

}  // namespace gpuop
