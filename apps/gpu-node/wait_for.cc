// wait-for: a gate. Operands start when the file that an earlier stage writes is there.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/inotify.h"
#include "base/loop.h"
#include "base/text.h"
#include "cli.h"
#include "roles.h"

namespace gpuop {
namespace {

struct Gate {
  std::vector<std::string> files;
  bool any = false;
  std::string condition;  // "FILE=TEXT" or empty
  Duration limit{};
};

// Runs the loop until one of the files exists.
Result<> wait_for_any(Loop& loop, const std::vector<std::string>& files, Duration limit) {
  const auto there = [&files] {
    return std::ranges::any_of(files, [](const auto& file) { return file_exists(file); });
  };
  std::vector<std::unique_ptr<DirWatch>> watches;
  for (const auto& file : files)
    watches.push_back(TRY(DirWatch::create(loop, fs::path(file).parent_path(), [] {})));
  if (loop.run_until(there, limit)) return {};
  const std::string doing = "wait for one of '" + join(files, "', '") + "'";
  if (loop.stopped()) return fail(Code::kCancelled, doing + ": stopped");
  return fail(Code::kTimeout, doing + ": none is there after " + format_go_duration(limit));
}

// Waits for the condition's file; whether it says the text, blanks at its ends aside.
Result<bool> condition_holds(Loop& loop, const Gate& gate) {
  const auto equals = gate.condition.find('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(Code::kInvalid, "--if: expected FILE=TEXT; got '" + gate.condition + "'");
  }
  const std::string file = gate.condition.substr(0, equals);
  TRY(wait_for_file(loop, file, gate.limit));
  const std::string content = TRY(read_file(file));
  return trim(content) == gate.condition.substr(equals + 1);
}

Result<> pass(Loop& loop, const Gate& gate) {
  if (!gate.condition.empty() && !TRY(condition_holds(loop, gate))) return {};
  if (gate.any) return wait_for_any(loop, gate.files, gate.limit);
  for (const auto& file : gate.files) TRY(wait_for_file(loop, file, gate.limit));
  return {};
}

}  // namespace

int wait_for_main(int argc, char** argv) {
  CLI::App app("Wait until every FILE exists.");
  Gate gate;
  std::string timeout_text;
  app.add_option("FILE", gate.files, "files to wait for, one after the other")->required();
  app.add_flag("--any", gate.any, "one of the files is enough");
  app.add_option("--if", gate.condition,
                 "FILE=TEXT: wait for that file first, and end well at once unless TEXT is its content");
  app.add_option("--timeout", timeout_text, "give up after this long, e.g. 90s (default: never)");
  if (auto code = parse_command_line(app, argc, argv)) return *code;

  gate.limit = std::chrono::hours(24 * 365 * 50);  // never, in a form that can be added to a time
  if (!timeout_text.empty()) {
    auto parsed = parse_go_duration(timeout_text);
    if (!parsed) {
      std::fprintf(stderr, "wait-for: --timeout: %s\n", parsed.error().text().c_str());
      return 1;
    }
    gate.limit = *parsed;
  }

  Loop loop;
  int stopped_by = 0;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT}, [&](int number) {
    stopped_by = number;
    loop.stop();
  });
  const auto passed = pass(loop, gate);
  if (stopped_by) return 128 + stopped_by;
  if (passed) return 0;
  std::fprintf(stderr, "wait-for: %s\n", passed.error().text().c_str());
  return 1;
}

}  // namespace gpuop
