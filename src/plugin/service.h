// The device plugin as a whole: load, discover, serve, register, watch, and all of it anew when the kubelet
// restarts (device-plugin-gfd-mps.md §1.3).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "plugin/resources.h"
#include "sharing/settings.h"

namespace gpuop::plugin {

struct ServiceOptions {
  // The command line and the environment; the configuration file is read at every start.
  sharing::SettingsInputs inputs;
  std::filesystem::path plugin_dir = "/var/lib/kubelet/device-plugins";
  std::filesystem::path mps_dir = "/mps";
  std::string mps_control;  // path of nvidia-cuda-mps-control; empty: by PATH of the environment
  std::filesystem::path cdi_dir = "/var/run/cdi";
  Duration retry = 30s;       // after a start that failed in a way that may pass
  Duration debounce = 1s;     // two restarts for the kubelet's sake are at least this far apart
  Duration nvml_retry = 60s;  // without a driver and with fail-on-init-error=false
};

class Service {
 public:
  // `fatal` is called once, on the loop, when a later restart fails for good.
  Service(Loop& loop, ServiceOptions options, std::function<void(const Error&)> fatal);
  ~Service();  // stops serving and unlinks the sockets

  // The first start. An error is fatal; what may pass is retried.
  Result<> start();
  // Everything anew, configuration file included; devices are healthy again until an event says otherwise
  // (SIGHUP).
  void reload();

  // For tests and status: resources that are registered now.
  std::vector<std::string> registered() const;
  // Whether the GPUs' events are being waited for.
  bool watching() const;
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::plugin
