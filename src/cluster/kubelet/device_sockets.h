// The gRPC edge of the device manager: <kubelet dir>/device-plugins/kubelet.sock for plugins that register,
// <kubelet dir>/pod-resources/kubelet.sock for those who ask who holds what, and the client of each plugin's
// own socket. gRPC's threads stay in here: they post to the loop, or answer from a snapshot.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "cluster/kubelet/devices.h"

namespace gpuop::cluster {

// What pod-resources answers.
struct PodResourcesView {
  struct Container {
    std::string name;
    // resource → devices
    std::map<std::string, std::vector<Device>> devices;
  };
  struct Pod {
    std::string ns, name;
    std::vector<Container> containers;
  };
  std::vector<Pod> pods;
  std::map<std::string, std::vector<Device>> allocatable;
  std::int64_t cpus = 0;
};

class DeviceSockets {
 public:
  // Called on the loop for each Register that was accepted.
  using Registered = std::function<void(const std::string& resource, std::shared_ptr<DevicePlugin> plugin)>;

  // Makes both folders, removes the sockets that earlier plugins left (they register again when they see
  // kubelet.sock appear) and serves. kIo or kBusy when a socket cannot be made.
  static Result<std::unique_ptr<DeviceSockets>> create(Loop& loop, const std::filesystem::path& kubelet_dir,
                                                       Registered registered);
  // Cancels what is under way and waits for gRPC's threads to let go. Every plugin must have been stopped.
  ~DeviceSockets();
  void publish(PodResourcesView view);
  struct Impl;

 private:
  explicit DeviceSockets(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
