// wait-for: a gate. Operands start when the file that an earlier stage writes is there.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/inotify.h"
#include "base/loop.h"
#include "cli.h"
#include "roles.h"

namespace gpuop {

int wait_for_main(int argc, char** argv) {
  CLI::App app("Wait until every FILE exists.");
  std::vector<std::string> files;
  std::string timeout_text;
  app.add_option("FILE", files, "files to wait for, one after the other")->required();
  app.add_option("--timeout", timeout_text, "give up after this long, e.g. 90s (default: never)");
  if (auto code = parse_command_line(app, argc, argv)) return *code;

  Duration limit = std::chrono::hours(24 * 365 * 50);  // never, in a form that can be added to a time
  if (!timeout_text.empty()) {
    auto parsed = parse_go_duration(timeout_text);
    if (!parsed) {
      std::fprintf(stderr, "wait-for: --timeout: %s\n", parsed.error().text().c_str());
      return 1;
    }
    limit = *parsed;
  }

  Loop loop;
  int stopped_by = 0;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT}, [&](int number) {
    stopped_by = number;
    loop.stop();
  });
  for (const std::string& file : files) {
    auto waited = wait_for_file(loop, file, limit);
    if (stopped_by) return 128 + stopped_by;
    if (!waited) {
      std::fprintf(stderr, "wait-for: %s\n", waited.error().text().c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace gpuop
