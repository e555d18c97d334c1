// A device plugin as a script.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "cluster/kubelet/devices.h"
#include "fixture.h"

namespace gpuop::cluster {

class ScriptedPlugin : public DevicePlugin {
 public:
  explicit ScriptedPlugin(Loop& loop) : loop_(loop) {}
  std::vector<Device> devices;
  std::optional<std::vector<std::string>> prefers;
  std::optional<Error> refuses;
  bool wants_pre_start = false;
  std::vector<std::string> calls;

  void announce() {
    if (tell_) tell_(devices);
  }
  void end() {
    if (ended_) ended_(Error(Code::kUnavailable, "gone"));
  }
  bool preferred_available() const override { return prefers.has_value(); }
  bool pre_start_required() const override { return wants_pre_start; }
  void watch(std::function<void(std::vector<Device>)> tell, std::function<void(Error)> ended) override {
    tell_ = std::move(tell);
    ended_ = std::move(ended);
    loop_.post([this] { announce(); });
  }
  void preferred(const std::vector<std::string>& available, const std::vector<std::string>& must, int size,
                 Done<std::vector<std::string>> done) override {
    calls.push_back("preferred " + join(available, ",") + " must " + join(must, ",") + " of " +
                    std::to_string(size));
    loop_.post([this, done] { done(*prefers); });
  }
  void allocate(const std::vector<std::string>& ids, Done<DeviceAnswer> done) override {
    calls.push_back("allocate " + join(ids, ","));
    loop_.post([this, ids, done] {
      if (refuses) return done(fail(*refuses));
      DeviceAnswer answer;
      answer.envs["NVIDIA_VISIBLE_DEVICES"] = join(ids, ",");
      answer.annotations["cdi.k8s.io/x"] = "y";
      answer.cdi_devices = {"nvidia.com/gpu=" + ids.at(0)};
      answer.mounts = {{"/run/x", "/run/x", true, Propagation::kPrivate}};
      answer.devices = {{"/dev/nvidia0", "/dev/nvidia0", "rw"}};
      done(std::move(answer));
    });
  }
  void pre_start(const std::vector<std::string>& ids, Done<void> done) override {
    calls.push_back("prestart " + join(ids, ","));
    loop_.post([done] { done({}); });
  }
  void stop() override { tell_ = nullptr; }

 private:
  Loop& loop_;
  std::function<void(std::vector<Device>)> tell_;
  std::function<void(Error)> ended_;
};

inline std::shared_ptr<ScriptedPlugin> gpus(Node& n, int count) {
  auto plugin = std::make_shared<ScriptedPlugin>(*n.loop);
  for (int i = 0; i < count; ++i) plugin->devices.push_back({"GPU-" + std::to_string(i), true, {}});
  return plugin;
}

inline std::string quantity(const Node& n, const char* map) {
  return str(get_string(n.node(), {"status", map, "nvidia.com/gpu"}, "absent"));
}

inline std::string gpu_pod(int count) {
  return "containers: [{name: c, image: 'a:1', resources: {limits: {nvidia.com/gpu: '" +
         std::to_string(count) + "'}}}]";
}

}  // namespace gpuop::cluster
