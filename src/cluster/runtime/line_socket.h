// JSON values, one a line, over a connected socket on the loop. Private to the two ends of the runtime's
// socket.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"

namespace gpuop::cluster {

class LineSocket {
 public:
  // `line` for each value that arrives, `closed` once when the peer is gone or sends what is no JSON; neither
  // after destruction. The socket is made non-blocking.
  LineSocket(Loop& loop, Fd fd, std::function<void(Json)> line, std::function<void()> closed);
  ~LineSocket();
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;
  void send(const Json& value);
  // The same with open files, which come with the line.
  void send(const Json& value, std::vector<Fd> files);
  // The next `count` files that came, within `line`; fewer when fewer did.
  std::vector<Fd> take_files(std::size_t count);
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
