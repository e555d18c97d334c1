// What the node's kubelet itself says of its GPUs: its pod-resources API answers from the device manager at
// once, while it writes the same into its node's status only every 10 s (device-plugin-gfd-mps.md §1.5).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/loop.h"
#include "base/result.h"

namespace gpuop::validate {

struct KubeletFolders {
  // Holds kubelet.sock.
  std::filesystem::path pod_resources = "/var/lib/kubelet/pod-resources";
  // Every registration and every change of devices shows here: plugins' sockets, the kubelet's checkpoint.
  std::filesystem::path device_plugins = "/var/lib/kubelet/device-plugins";
};

// Asks the kubelet whenever something in its folders changes, and every `interval`.
class KubeletDevices {
 public:
  // `found` is called once, on the loop, when the kubelet has a healthy device of nvidia.com/gpu* or
  // nvidia.com/mig-*, with words on what it has. Nothing is asked where the folder of the socket is not
  // mounted here. Errors: those of DirWatch.
  static Result<std::unique_ptr<KubeletDevices>> create(Loop& loop, const KubeletFolders& folders,
                                                        Duration interval,
                                                        std::function<void(const std::string& what)> found);
  ~KubeletDevices();
  // The last thing that went wrong with asking; "" when nothing did.
  const std::string& fault() const;
  struct Impl;

 private:
  explicit KubeletDevices(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Some name of a resource that GPUs are offered by.
bool is_gpu_resource(std::string_view name);

}  // namespace gpuop::validate
