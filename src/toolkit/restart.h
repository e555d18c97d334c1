// Making a container engine read its configuration again (container-toolkit-cdi.md §5.2).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop::toolkit {

struct RestartOptions {
  std::string mode;    // signal, systemd, none
  std::string engine;  // containerd, crio, docker: the systemd unit's name, and what may be signalled
  std::filesystem::path socket;
  std::filesystem::path host_root = "/host";
  int attempts = 6;
  Duration pause = 5s;      // between attempts to reach a socket that is not there
  Duration patience = 60s;  // for the socket to answer again
};

// Checks mode and engine: "invalid restart mode specified: <m>", "supporting crio via signal is unsupported".
Result<> check_restart_mode(const std::string& mode, const std::string& engine);

// Restarts and waits until the socket answers. With mode signal: SIGHUP to the process that listens on the
// socket.
Result<> restart_engine(Loop& loop, const RestartOptions& options);

// Whether the daemon behind the socket started before one of the files was last written: it has not read it.
// False when the daemon cannot be asked.
bool engine_is_stale(const std::filesystem::path& socket, const std::vector<std::filesystem::path>& files);

// The process that listens on a Unix socket (SO_PEERCRED).
Result<pid_t> peer_of(const std::filesystem::path& socket);

}  // namespace gpuop::toolkit
