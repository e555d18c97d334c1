// A program in a container whose streams are a WebSocket's channels (kubernetes-api.md §11): what `kubectl
// exec` and `kubectl cp` speak, subprotocols v4.channel.k8s.io and v5.channel.k8s.io. The first byte of a
// message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 how it ended (a Status), 4 the terminal's size; in
// v5 255 closes the channel that the second byte names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/websocket.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

struct ExecRequest {
  std::vector<std::string> command;
  bool in = false, out = false, err = false, tty = false;
};
// kInvalid: it asks for no stream.
Result<ExecRequest> parse_exec_request(const std::string& query);

// The best subprotocol of those that a client offers; "" when there is none.
std::string choose_exec_protocol(const std::vector<std::string>& offered);

// What is sent when it is over: Success, or Failure with the exit code.
std::string exec_status(const ExitState& state);
std::string exec_failure(const Error& error);

// Of a message on channel 4, {"Width":…,"Height":…}; kInvalid otherwise.
struct TerminalSize {
  std::uint16_t columns = 0, rows = 0;
};
Result<TerminalSize> parse_terminal_size(std::string_view text);

// One session. A program that writes faster than the client reads waits, and so does a client that writes
// faster than the program reads. When the client goes, the program's stdin ends and its output has no reader
// (a terminal hangs up); it is not killed, as containerd does not kill it.
class ExecSession {
 public:
  // `over` once, later: the session may then be dropped.
  static std::shared_ptr<ExecSession> begin(Loop& loop, std::unique_ptr<WebSocket> socket,
                                            bool can_close_stdin, Runtime& runtime,
                                            const std::string& container, const ExecRequest& request,
                                            std::function<void()> over);
  // Nothing is run: `why` is told.
  static std::shared_ptr<ExecSession> refuse(Loop& loop, std::unique_ptr<WebSocket> socket, const Error& why,
                                             std::function<void()> over);
  ~ExecSession();  // cuts the connection
  struct Impl;

 private:
  explicit ExecSession(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
