// Carries TCP connections from one listening socket to one address: the way from a node's network namespace
// to an API server outside. It looks at nothing: TLS passes through.
#pragma once

#include <memory>
#include <string>

#include "base/files.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop::cluster {

class Forwarder {
 public:
  // `listening` is in the namespace where clients are; connections to `host`:`port` are made from the
  // caller's own. kNotFound: no such host (it is resolved once, blocking).
  static Result<std::unique_ptr<Forwarder>> create(Loop& loop, Fd listening, const std::string& host,
                                                   int port);
  ~Forwarder();  // ends every connection
  struct Impl;

 private:
  explicit Forwarder(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// A socket that listens on `address`:`port` in the network namespace `netns` (an open /proc/PID/ns/net). Only
// for processes of one thread: it goes there and back.
Result<Fd> listen_in_namespace(int netns, const std::string& address, int port);
// The same in the caller's namespace; port 0 is any free one.
Result<Fd> listen_here(const std::string& address, int port);
Result<int> port_of(int socket);

}  // namespace gpuop::cluster
