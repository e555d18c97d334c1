// The gRPC edge: one resource's DevicePlugin service on its own socket, and its registration with the kubelet
// (device-plugin-gfd-mps.md §1).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "plugin/allocate.h"

namespace gpuop::plugin {

inline constexpr const char* kHealthy = "Healthy";
inline constexpr const char* kUnhealthy = "Unhealthy";

// Serves from its creation to its destruction; its destructor ends every stream and unlinks the socket.
// Calls are answered on gRPC's threads from the offer, which never changes; only lists are sent later.
class PluginServer {
 public:
  // Removes a stale socket, listens and serves. Errors: the socket cannot be bound (kIo, kBusy, kPermission).
  static Result<std::unique_ptr<PluginServer>> create(const std::string& socket_path,
                                                      std::shared_ptr<const Offer> offer,
                                                      std::vector<bool> healthy);
  ~PluginServer();
  // Sends the list anew on every open stream. `healthy` by position in the offer's devices.
  void update(std::vector<bool> healthy);
  const std::string& socket_path() const;
  const Offer& offer() const;
  struct Impl;

 private:
  explicit PluginServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Registration {
  std::string kubelet_socket;
  std::string endpoint;  // file name of the plugin's socket
  std::string resource_name;
};
// Registers within 5 s; `done` is called once on the loop, not after the handle was dropped.
Handle register_plugin(Loop& loop, const Registration& registration, std::function<void(Result<>)> done);

}  // namespace gpuop::plugin
