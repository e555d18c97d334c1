// Which pod holds which device: the kubelet's pod-resources API (device-plugin-gfd-mps.md §1.5).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop::podresources {

// One device of one container.
struct Use {
  std::string ns, pod, container;
  std::string resource;  // "nvidia.com/gpu"; the driver's name for a claim's device
  std::string id;        // as the plugin advertised it: "GPU-…::3"
  // Without the replica: what NVML knows.
  std::string device;
  int replica = -1;  // -1: not shared
  // Of a device that came by a resource claim, else empty.
  std::string claim_ns, claim, pool;
  std::vector<std::string> cdi_devices;

  bool operator==(const Use&) const = default;
};

struct Allocatable {
  std::string resource;
  std::vector<std::string> ids;
};

// "GPU-…::3" to ("GPU-…", 3); (id, -1) without a replica.
std::pair<std::string, int> split_replica(std::string_view id);

// Calls are answered on the loop, not after their handle was dropped. Errors: kUnavailable (no kubelet there,
// or it limits the rate of calls), kTimeout, kUnsupported (an older kubelet lacks the call).
class Client {
 public:
  explicit Client(Loop& loop, const std::string& socket = "/var/lib/kubelet/pod-resources/kubelet.sock");
  ~Client();
  // In the kubelet's order: by pod, container, resource.
  Handle list(Duration limit, std::function<void(Result<std::vector<Use>>)> done);
  Handle allocatable(Duration limit, std::function<void(Result<std::vector<Allocatable>>)> done);
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::podresources
