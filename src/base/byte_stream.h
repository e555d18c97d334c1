// Bytes both ways over a connection: one that HTTP has been left on (101 Switching Protocols), or one that
// this process opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/http.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop {

// On the loop's thread. One read and one write may be under way at a time; nothing is called once the stream
// is destroyed, which closes the connection at once.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Later: at most `most` bytes as soon as some are there; an empty text is the peer's end.
  virtual void read(std::size_t most, std::function<void(Result<std::string>)> done) = 0;
  // Later: when the system has taken them all.
  virtual void write(std::string bytes, std::function<void(Result<>)> done) = 0;
};

// The other face of responders whose connection can leave HTTP. It is apart from HttpResponder because few
// can.
class UpgradableResponder {
 public:
  virtual ~UpgradableResponder() = default;
  // The connection, with nothing answered yet: the new owner writes the head of the answer itself. What the
  // peer sent behind its request is read first. Null once an answer has begun or the peer is gone; nothing
  // may be said with the responder afterwards.
  virtual std::unique_ptr<ByteStream> take_over() = 0;
};

// Null also for a responder that has no connection of its own (in memory).
std::unique_ptr<ByteStream> take_over(HttpResponder& responder);

// A TLS connection to a numeric address, whose certificate is not looked at: for servers that make their own.
struct TlsTarget {
  std::string address;  // IPv4 or IPv6
  std::uint16_t port = 0;
  std::string client_certificate, client_key;  // PEM; may be empty
};
// `done` once, later; not when the handle goes before. kUnavailable, kTimeout; kInvalid: not an address, bad
// PEM.
Handle connect_tls(Loop& loop, const TlsTarget& target, Duration limit,
                   std::function<void(Result<std::unique_ptr<ByteStream>>)> done);

}  // namespace gpuop
