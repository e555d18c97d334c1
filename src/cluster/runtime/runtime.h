// What a kubelet asks of a container runtime: the shape of CRI, cut to what a simulated node needs.
// Two implementations: the client of a node's runtime process (remote_runtime.h) and a recording double
// (recording_runtime.h) that never starts anything, for tests and hollow nodes on the virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/result.h"

namespace gpuop::cluster {

enum class Propagation { kPrivate, kHostToContainer, kBidirectional };

struct RuntimeMount {
  std::string host_path;  // a path on the node (beneath the node's root)
  std::string container_path;
  bool read_only = false;
  Propagation propagation = Propagation::kPrivate;
};

struct RuntimeDevice {
  std::string host_path;
  std::string container_path;
  std::string permissions;  // "rwm"
};

// A pod's shared surroundings.
struct SandboxSpec {
  std::string uid, ns, name;
  std::string hostname;
  std::string runtime_handler;  // RuntimeClass handler; empty: the runtime's default
  bool host_pid = false;
  bool share_pid = false;                          // shareProcessNamespace
  std::map<std::string, std::string> annotations;  // the pod's
  std::map<std::string, std::string> labels;
  int attempt = 0;  // how often the pod lost its sandbox before; the runtime counts
};

struct ContainerSpec {
  std::string pod_uid;
  std::string name;
  int attempt = 0;  // restartCount of this start
  bool init = false;
  std::string image;
  std::vector<std::string> command;  // replaces the image's entry point when not empty
  std::vector<std::string> args;
  std::vector<std::string> env;  // "KEY=value"
  std::string working_dir;
  std::vector<RuntimeMount> mounts;
  std::vector<RuntimeDevice> devices;
  std::vector<std::string> cdi_devices;  // "vendor.com/class=name", from device plugins through the CRI
  std::map<std::string, std::string> annotations;  // container annotations (device plugins' included)
  bool privileged = false;
  bool read_only_rootfs = false;
  std::optional<std::int64_t> run_as_user;
  std::string log_path;         // on the machine: CRI log format is written there
  std::string termination_log;  // on the machine; bound at termination_message_path
  std::string termination_message_path;
};

// The streams of a program that is run in a container. Either a terminal is wanted, or any of the three are
// there; those that are not are /dev/null.
struct ExecStreams {
  Fd in, out, err;
  // The other end gets the terminal's master (SCM_RIGHTS) with one byte, or a text: why there is none.
  Fd console;
};

enum class ContainerState { kCreated, kRunning, kExited };

struct ContainerInfo {
  std::string id;  // 64 hex digits
  std::string pod_uid, name;
  int attempt = 0;
  int sandbox_attempt = 0;  // of the sandbox that it ran in
  bool init = false;
  std::string image, image_id;
  ContainerState state = ContainerState::kCreated;
  int pid = 0;  // on the machine
  int exit_code = 0, signal = 0;
  std::string reason;  // "Completed", "Error", "OOMKilled", "ContainerCannotRun"
  std::string message;
  Time started{}, finished{};
};

class Runtime {
 public:
  template <class T>
  using Done = std::function<void(Result<T>)>;
  virtual ~Runtime() = default;

  // "containerd://2.1.0", as node.status.nodeInfo.containerRuntimeVersion shows it.
  virtual void version(Done<std::string> done) = 0;
  // Whether the image is there (or can be pulled, with `pull`); answers its id. kNotFound: ErrImagePull,
  // with the registry-like reason in the text; kInvalid: InvalidImageName.
  virtual void ensure_image(const std::string& image, bool pull, Done<std::string> done) = 0;
  // Idempotent by uid; `attempt` is not looked at. kNotFound: the runtime has no such handler.
  virtual void run_sandbox(const SandboxSpec& spec, Done<void> done) = 0;
  // Kills what still runs in it and forgets it. Idempotent.
  virtual void remove_sandbox(const std::string& uid, Done<void> done) = 0;
  // Creates and starts; answers the container's id. Idempotent by (pod_uid, name, attempt). Errors are what
  // the kubelet shows as CreateContainerError / RunContainerError: unresolvable CDI device, missing mount
  // source, …
  virtual void start_container(const ContainerSpec& spec, Done<std::string> done) = 0;
  // SIGTERM, SIGKILL after `grace`; `done` when it has ended.
  virtual void stop_container(const std::string& id, Duration grace, Done<void> done) = 0;
  virtual void remove_container(const std::string& id, Done<void> done) = 0;
  // Runs argv inside (exec probes, lifecycle hooks).
  virtual void exec(const std::string& id, const std::vector<std::string>& argv, Duration limit,
                    Done<ExitState> done) = 0;
  // Runs argv inside with these streams; `done` when it has ended (its output may be read later than that).
  // It ends with its container, not with its caller. kConflict: the container does not run.
  virtual void exec_stream(const std::string& id, const std::vector<std::string>& argv, ExecStreams streams,
                           Done<ExitState> done) = 0;
  // Everything the runtime knows of; read at kubelet start to adopt what runs.
  virtual void list(Done<std::vector<ContainerInfo>> done) = 0;
  virtual void list_sandboxes(Done<std::vector<SandboxSpec>> done) = 0;
  // Called for each state change. One subscriber.
  virtual void on_change(std::function<void(const ContainerInfo&)> changed) = 0;
  // Called when the runtime went away (false) and when it is back (true): list again then.
  virtual void on_available(std::function<void(bool)> available) = 0;
};

}  // namespace gpuop::cluster
