// What a container writes from now on, over a WebSocket with the channels of exec_session.h: what `kubectl
// attach` speaks. It is read from the container's log, which its shim writes as it comes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/websocket.h"
#include "cluster/kubelet/http_endpoint.h"

namespace gpuop::cluster {

// Channel 1 or 2 and the text of one record of a log in CRI format ("TIME stdout F text"; P: the line goes on
// in the next); channel 0 for what is no record.
struct LogRecord {
  int channel = 0;
  std::string text;
};
LogRecord parse_log_record(std::string_view line);

class AttachSession {
 public:
  // `over` once, later: the session may then be dropped. It ends, well, with the container.
  static Result<std::shared_ptr<AttachSession>> begin(Loop& loop, std::unique_ptr<WebSocket> socket,
                                                      LogSource source, bool out, bool err,
                                                      std::function<void()> over);
  ~AttachSession();  // cuts the connection
  // Something was written, or the container ended.
  void pump();
  struct Impl;

 private:
  explicit AttachSession(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
