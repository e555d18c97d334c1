// WebSocket (RFC 6455) over a connection that left HTTP, or as the client of one. Messages are binary.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/byte_stream.h"
#include "base/http.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop {

// One read and one write (or close) may be under way at a time. Pings are answered while a read is.
// Destroying it cuts the connection; nothing is called afterwards. Real loops only.
class WebSocket {
 public:
  using Opened = std::function<void(Result<std::unique_ptr<WebSocket>>)>;

  // Whether a request asks for it.
  static bool asked(const HttpRequest& request);
  // Subprotocols that a request offers, the dearest first.
  static std::vector<std::string> offered(const HttpRequest& request);

  // Answers `request`, whose connection `stream` is. A message longer than `message_limit` bytes ends it.
  // kInvalid: no proper handshake; the peer has been told.
  static void accept(Loop& loop, std::unique_ptr<ByteStream> stream, const HttpRequest& request,
                     const std::string& subprotocol, std::size_t message_limit, Opened opened);
  // Asks for it. kInvalid: the server says no.
  static void connect(Loop& loop, std::unique_ptr<ByteStream> stream, const std::string& host,
                      const std::string& target, const std::string& subprotocol, std::size_t message_limit,
                      Opened opened);
  ~WebSocket();

  // The next message. kCancelled: the peer has closed; kUnavailable: it is gone, or broke the protocol.
  void read(std::function<void(Result<std::string>)> done);
  void write(std::string message, std::function<void(Result<>)> done);
  // Says goodbye and waits a few seconds for the peer's.
  void close(std::function<void()> done);
  struct Impl;

 private:
  explicit WebSocket(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop
