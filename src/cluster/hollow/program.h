// What "runs" in a hollow container: the roles of gpu-node, the driver image and a few shell words, each as
// an object on the loop that decides with the real program's own functions and acts on a HollowMachine and
// the API.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "cluster/hollow/machine.h"
#include "cluster/kubelet/devices.h"
#include "cluster/runtime/runtime.h"
#include "kube/client.h"
#include "operator/render.h"
#include "plugin/allocate.h"

namespace gpuop::cluster {

// One resource that a hollow device plugin serves, whichever kubelet asks.
class HollowOffer {
 public:
  HollowOffer(Loop& loop, std::shared_ptr<const plugin::Offer> offer);
  const std::string& resource() const;
  // By device unit; sends the list anew where it changed.
  void set_health(const std::function<bool(const std::string& uuid)>& healthy);
  // A registration with one kubelet.
  std::shared_ptr<DevicePlugin> registration();
  // The plugin is gone: streams end.
  void close();
  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

// What programs need beside their machine.
struct HollowWorld {
  // Makes a client for one program; the User-Agent is "PROGRAM/NODE".
  std::function<std::unique_ptr<kube::Client>(const std::string& program)> client;
  std::function<void(std::shared_ptr<HollowOffer>)> register_plugin;
  std::function<void(const std::shared_ptr<HollowOffer>&)> withdraw_plugin;
  const op::Assets* assets = nullptr;  // of the operator
};

struct ProgramContext {
  Loop& loop;
  HollowMachine& machine;
  const HollowWorld& world;
  std::string ns, pod, pod_uid;  // whose container it is
  std::string handler;           // runtime handler of the pod
  std::string driver_version;    // of a driver image; "" for others
  std::string container;         // its name
  std::vector<std::string> words;
  std::map<std::string, std::string> env;
  bool gpu_given = false;  // devices were injected
  // Ends the container, on a later turn. The program is destroyed then.
  std::function<void(int code)> exit;
  // A step of several validations says why it waits; may be empty.
  std::function<void(bool failing, const std::string& why)> waiting;

  std::string env_or(const std::string& name, const std::string& fallback = "") const;
  bool flag(const std::string& name, bool fallback) const;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual void start() = 0;
  // It was asked to end, and does.
  virtual void stopping() {}
  // What it knows to be wrong with the machine's GPUs, a sentence each.
  virtual std::vector<std::string> gpu_faults() const { return {}; }
};

// kNotFound: no such program in the image; the text is what a runtime says.
Result<std::unique_ptr<Program>> make_program(ProgramContext context);
// The files that a probe waits for (gpu-node wait-for FILE…); nothing where it runs something else. Files of
// a container's own are gates of the machine too, by their whole path.
std::optional<std::vector<std::string>> awaited_files(std::vector<std::string> argv);
// A driver's startup probe that waits for it, rather than fail (state-driver's ConfigMap).
bool awaits_driver(const std::vector<std::string>& argv);
bool hollow_file(const HollowMachine& machine, const std::string& path);
// What a probe or hook runs inside of a container of this pod: its exit code.
int hollow_exec(HollowMachine& machine, const std::string& pod_uid, const std::vector<std::string>& argv);

// Makers of single programs, by file.
std::unique_ptr<Program> make_validator(ProgramContext context);
std::unique_ptr<Program> make_validations(ProgramContext context);
std::unique_ptr<Program> make_device_plugin(ProgramContext context);
std::unique_ptr<Program> make_feature_discovery(ProgramContext context);
std::unique_ptr<Program> make_nfd_worker(ProgramContext context);
std::unique_ptr<Program> make_driver_manager(ProgramContext context);
std::unique_ptr<Program> make_operator(ProgramContext context);

// The name of the ConfigMap behind the volume that some container of the pod mounts at `path`; "" for none.
std::string mounted_config_map(const Json& pod, std::string_view path);

// The configuration file that config-manager would select for the pod's node, followed as it changes.
class SelectedConfig {
 public:
  // `changed`: the text is known, or another. Empty where the pod has no config-manager.
  SelectedConfig(Loop& loop, kube::Client& client, std::string ns, std::string pod, std::string node,
                 std::function<void()> changed);
  ~SelectedConfig();
  void start();
  const std::string& text() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
