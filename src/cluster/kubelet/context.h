// What the parts of one kubelet share. Everything lives as long as the kubelet, on the loop's thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/loop.h"
#include "cluster/kubelet/devices.h"
#include "cluster/kubelet/kubelet.h"
#include "cluster/kubelet/objects.h"
#include "cluster/kubelet/pod_env.h"
#include "cluster/runtime/runtime.h"
#include "kube/client.h"
#include "kube/events.h"
#include "kube/informer.h"

namespace gpuop::cluster {

struct KubeletContext {
  Loop& loop;
  kube::Client& client;
  Runtime& runtime;
  const KubeletOptions& options;
  kube::EventRecorder& events;
  ObjectCache& objects;
  DeviceManager& devices;
  kube::Informer& runtime_classes;
  NodeView node;
  NetProber net_probe;  // may be empty: network probes then always pass
  bool runtime_available = true;

  // Whether volumes and logs are really written.
  bool on_disk() const { return !options.node_root.empty(); }
  // A path on the node, as this process sees it.
  std::filesystem::path here(const std::filesystem::path& node_path) const {
    if (options.node_root.empty() || options.node_root == "/") return node_path;
    return options.node_root / node_path.relative_path();
  }
  // On the node.
  std::filesystem::path pod_dir(const std::string& uid) const {
    return std::filesystem::path(options.kubelet_dir) / "pods" / uid;
  }
  std::filesystem::path log_dir() const {
    return options.log_dir.empty() ? here("/var/log/pods") : options.log_dir;
  }
  std::filesystem::path pod_log_dir(const Json& pod) const;
};

// When something that keeps failing is tried again: `first`, doubling, at most `most`.
class Backoff {
 public:
  Backoff(Duration first, Duration most) : first_(first), most_(most) {}
  // The next delay.
  Duration next() {
    delay_ = delay_ == Duration::zero() ? first_ : std::min(2 * delay_, most_);
    return delay_;
  }
  Duration last() const { return delay_; }
  void reset() { delay_ = Duration::zero(); }

 private:
  Duration first_, most_;
  Duration delay_{0};
};

}  // namespace gpuop::cluster
