// The operations of an OCI runtime, as the command line of runc has them: create, start, state, kill, delete,
// exec. Each is one call of a short-lived process; what connects them is the state folder.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "cluster/launcher/state.h"

namespace gpuop::cluster {

inline constexpr const char* kLauncherStateRoot = "/run/runc";

struct CreateOptions {
  fs::path state_root = kLauncherStateRoot;
  std::string id;
  std::string bundle;  // absolute
  fs::path pid_file;   // empty: none; otherwise the init's pid is written there
};

// Starts the container's first process up to the point before its program, which waits for start_container().
// Its standard streams are the caller's. It is a child of the caller; when the caller ends it goes to the
// nearest subreaper. The caller must be single-threaded: a PID namespace may be joined.
// Errors: kExists; a hook's or a mount's; `exec: "x": executable file not found in $PATH`.
Result<pid_t> create_container(const CreateOptions& options);
Result<> start_container(const fs::path& state_root, const std::string& id);
Result<Json> container_state(const fs::path& state_root, const std::string& id);
// kInvalid with runc's text when it does not run.
Result<> kill_container(const fs::path& state_root, const std::string& id, int signal);
// Removes what create made and runs poststop hooks. A container that still runs is refused, or killed with
// `force`; an unknown one is fine with `force`.
Result<> delete_container(const fs::path& state_root, const std::string& id, bool force);

// Starts a process that does nothing but be the first of a new PID namespace, and reap there. Its pid is
// written to `pid_file`; it lives until it is killed.
Result<> start_pause(const fs::path& pid_file);

struct ExecOptions {
  pid_t pid = 0;       // a process of the container
  std::string bundle;  // environment, user and capabilities are the container's
  std::vector<std::string> args;
  // A connected Unix socket: the program gets a new terminal of the container's as its standard streams, and
  // the other end of the socket the terminal's master (SCM_RIGHTS), or a text that says why there is none.
  // -1: the program's streams are the caller's.
  int console_fd = -1;
  // Once the program runs, the caller's standard streams are its alone: they end with it.
  bool streams_are_the_programs = false;
};
// Runs a program inside and answers its exit status (128 + signal). Dies with its caller.
Result<int> exec_in_container(const ExecOptions& options);

}  // namespace gpuop::cluster
