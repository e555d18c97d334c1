// Ports of a pod over a WebSocket that carries SPDY/3.1 (subprotocol SPDY/3.1+portforward.k8s.io): what
// `kubectl port-forward` speaks since 1.31. For each connection the client opens two streams with the same
// requestid: "error", on which the node tells what went wrong, and "data", the bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/websocket.h"

namespace gpuop::cluster {

inline constexpr const char* kPortForwardProtocol = "SPDY/3.1+portforward.k8s.io";

class PortForward {
 public:
  // Connections go to 127.0.0.1 of the network namespace `netns_path` (empty: this process's own). `pod` is
  // its name in errors. A side that does not read holds the other up: all connections of one client together,
  // as SPDY's own windows are not used. `over` once, later.
  static std::shared_ptr<PortForward> begin(Loop& loop, std::unique_ptr<WebSocket> socket,
                                            std::string netns_path, std::string pod,
                                            std::function<void()> over);
  ~PortForward();  // cuts every connection
  struct Impl;

 private:
  explicit PortForward(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
