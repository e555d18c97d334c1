// pause: the main container of an operand whose work was done by its init containers.
#include <csignal>
#include <cstdio>

#include "base/loop.h"
#include "cli.h"
#include "roles.h"

namespace gpuop {

int pause_main(int argc, char** argv) {
  CLI::App app("Print one line and wait for SIGTERM.");
  std::string message = "waiting for SIGTERM";
  app.add_option("message", message, "the line")->capture_default_str();
  if (auto code = parse_command_line(app, argc, argv)) return *code;

  Loop loop;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT}, [&](int) { loop.stop(); });
  std::puts(message.c_str());
  std::fflush(stdout);
  loop.run();
  return 0;
}

}  // namespace gpuop
