// Private to the runtime: its state, and the steps that make and end a container.
#pragma once

#include <map>
#include <set>

#include "base/inotify.h"
#include "base/process.h"
#include "cluster/runtime/containerd_config.h"
#include "cluster/runtime/node_runtime.h"
#include "cluster/runtime/oci_build.h"

namespace gpuop::cluster {

// Removes a file of the runtime's own; what stays is read again at the next start, and told.
void forget_file(const fs::path& path);

struct Sandbox {
  SandboxSpec spec;
  int pause_pid = 0;  // holds the PID namespace of a pod that shares one
  std::uint64_t pause_start = 0;
  bool dead = false;  // what held it went with a reboot: it is to be made anew
};

struct Container {
  ContainerInfo info;
  std::string spec_name;  // for messages
  int shim_pid = 0;
  std::uint64_t shim_start = 0;
  std::uint64_t pid_start = 0;
  std::uint64_t mounts = 0;  // inode of its mount namespace: who is in it is of this container
  bool starting = false;
  bool removing = false;
  std::unique_ptr<Child> shim;  // when this process started it
  Handle shim_exit;             // when an earlier one did
  Fd report;
  std::string report_text;
  Handle report_ready;
  Handle kill_timer;
  std::vector<Runtime::Done<std::string>> starters;
  std::vector<std::function<void()>> stoppers;
};

struct NodeRuntime::Impl : std::enable_shared_from_this<NodeRuntime::Impl> {
  Impl(Loop& l, NodeRuntimeOptions o) : loop(l), options(std::move(o)) {}

  // node_runtime.cc
  Result<> open();
  Result<> load();
  Result<> recover();
  void recover_container(Container& container);
  void save(const Container& container);
  void save(const Sandbox& sandbox);
  void changed(const Container& container);
  Container* find_container(const std::string& id);
  void stop(Container& container, Duration grace, std::function<void()> done);
  void forget(Container& container);
  void signal_init(const Container& container, int signal);
  void kill_everything(const Container& container);
  void end_pause(const Sandbox& sandbox);
  Result<> start_pause(Sandbox& sandbox);
  Result<> hold_pid_namespace(Sandbox& sandbox);
  Sandbox* live_sandbox(const std::string& uid);

  // container_start.cc
  Result<> prepare_bundle(const ContainerSpec& spec, const Sandbox& sandbox, const Image& image,
                          const RuntimeHandler& handler, const std::string& id);
  Result<> mount_rootfs(const std::string& id, const Image& image);
  Result<std::string> runtime_binary(const RuntimeHandler& handler) const;
  Result<> launch(Container& container, const ContainerSpec& spec, const RuntimeHandler& handler);
  void read_report(const std::string& id);
  void started(Container& container, const std::string& report);
  void shim_ended(const std::string& id);
  void finish_start(Container& container, Result<std::string> how);
  void clean_up(const std::string& id);

  fs::path sandbox_file(const std::string& uid) const {
    return options.engine.state_dir / "sandboxes" / (uid + ".json");
  }
  // There while the sandbox is: on a file system that a reboot empties.
  fs::path sandbox_mark(const std::string& uid) const { return options.engine.run_dir / "sandboxes" / uid; }
  // There once the image has been pulled.
  fs::path image_mark(const std::string& id) const {
    return options.engine.state_dir / "images" / id.substr(id.find(':') + 1);
  }
  fs::path container_file(const std::string& id) const {
    return options.engine.state_dir / "containers" / (id + ".json");
  }
  fs::path overlay_dir(const std::string& id) const { return options.engine.state_dir / "overlay" / id; }
  fs::path bundle_dir(const std::string& id) const {
    return options.engine.run_dir / "io.containerd.runtime.v2.task" / "k8s.io" / id;
  }
  fs::path launcher_root() const { return options.engine.run_dir / "runc" / "k8s.io"; }
  fs::path exit_file(const std::string& id) const { return bundle_dir(id) / "exit.json"; }
  std::vector<std::string> program_environment() const;
  Result<Command> exec_command(const std::string& id, const std::vector<std::string>& argv,
                               std::vector<std::string> extra);

  Loop& loop;
  NodeRuntimeOptions options;
  EngineConfig config;
  std::map<std::string, Sandbox> sandboxes;
  std::map<std::string, std::unique_ptr<Container>> containers;
  std::map<int, std::unique_ptr<Child>> pauses;
  std::function<void(const ContainerInfo&)> on_change;
  std::map<std::uint64_t, Handle> execs;  // and pulls that take time
  std::map<std::uint64_t, std::unique_ptr<Child>> exec_streams;
  std::uint64_t next_exec = 0;
};

}  // namespace gpuop::cluster
