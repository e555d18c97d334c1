// Running other programs: fixed argv, given environment, absolute path; never a shell.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop {

struct Command {
  std::vector<std::string> argv;        // argv[0] is the absolute path of the program
  std::vector<std::string> env;         // "KEY=value"; nothing is inherited
  std::filesystem::path cwd;            // empty: unchanged
  std::filesystem::path chroot;         // empty: none; argv[0] is then a path inside
  std::string input;                    // given on standard input; empty: /dev/null
  bool merge_output = false;            // stderr into out
  std::size_t output_limit = 1u << 20;  // bytes kept of each stream; the rest is read and dropped
};

struct ExitState {
  int code = 0;    // exit status, or 128 + signal
  int signal = 0;  // the signal that ended it, or 0
  std::string out;
  std::string err;
  bool ok() const { return code == 0; }
};

// Runs to the end. kNotFound when the program is missing; kTimeout after `limit` (then killed).
// A non-zero exit is not an error here.
Result<ExitState> run_command(const Command& command, Duration limit);
// The same on the loop; `done` is called once. Dropping the handle kills the process.
Handle run_command(Loop& loop, Command command, Duration limit, std::function<void(Result<ExitState>)> done);

// A child that runs beside us. Its standard streams go where `stdio` says (-1: /dev/null).
struct SpawnOptions {
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  bool new_session = false;
  bool die_with_parent = false;               // PR_SET_PDEATHSIG SIGKILL
  std::vector<std::pair<int, int>> pass_fds;  // (ours, number in the child)
};

class Child {
 public:
  static Result<std::unique_ptr<Child>> spawn(Loop& loop, const Command& command, const SpawnOptions& options,
                                              std::function<void(ExitState)> exited);
  ~Child();  // does not kill
  pid_t pid() const;
  void kill(int signal);
  struct Impl;

 private:
  explicit Child(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Calls `exited` when process `pid` ends (pidfd); it need not be a child. kNotFound when it is gone already.
Result<Handle> on_process_exit(Loop& loop, pid_t pid, std::function<void()> exited);

// The environment of this process as "KEY=value".
std::vector<std::string> current_environment();
// getenv with a fallback.
std::string env_or(const char* name, std::string_view fallback = {});
// Absolute path of the running program.
std::filesystem::path self_path();

}  // namespace gpuop
