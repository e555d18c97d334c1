// The container engine of one simulated node. Owns the node's sandboxes and containers, obeys the engine's
// configuration and the CDI files that are on the node, and injects nothing else
// (container-toolkit-cdi.md §1.6, §4.3).
//
// What it knows is on disk. Beside every container runs a shim (launcher/shim.h) that outlives the runtime:
// one that is created anew over the same folders carries on where the last one ended.
#pragma once

#include <memory>
#include <string>

#include "base/files.h"
#include "cluster/runtime/engine_config.h"
#include "cluster/runtime/images.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

// Paths are as this process sees them: on a node, beneath its root.
struct NodeRuntimeOptions {
  // Its folders and configuration files; the state folder is on a file system that can be an overlay's upper
  // layer.
  Engine engine = *find_engine("containerd");
  std::string launcher = "/usr/bin/runc";  // gpuop-runc
  std::string kernel_root;                 // tree of kernel facts; empty: containers see none
  std::string node_name;                   // on the command lines of shims, for who looks at them
  ImageTable images;
  fs::path pulls;  // how pulls go (below); absent: every image of the table is there at once
};

// How pulls of images go on a node: a list of {"image": pattern, "delay": ns, "error": text}, the first that
// fits counts. Lenient: what is broken says nothing.
struct PullRule {
  Duration delay{};
  std::string error;
};
PullRule pull_rule(const Json& rules, const std::string& image);

class NodeRuntime : public Runtime {
 public:
  // Reads the configuration and what earlier runtimes left. kInvalid: a configuration that containerd would
  // refuse to start with.
  static Result<std::unique_ptr<NodeRuntime>> create(Loop& loop, NodeRuntimeOptions options);
  // Lets go: containers run on.
  ~NodeRuntime() override;

  // Reads the configuration again, as an engine does that reloads in place. On an error the old one stays.
  Result<> reload();

  void version(Done<std::string> done) override;
  void ensure_image(const std::string& image, bool pull, Done<std::string> done) override;
  void run_sandbox(const SandboxSpec& spec, Done<void> done) override;
  void remove_sandbox(const std::string& uid, Done<void> done) override;
  void start_container(const ContainerSpec& spec, Done<std::string> done) override;
  void stop_container(const std::string& id, Duration grace, Done<void> done) override;
  void remove_container(const std::string& id, Done<void> done) override;
  void exec(const std::string& id, const std::vector<std::string>& argv, Duration limit,
            Done<ExitState> done) override;
  void exec_stream(const std::string& id, const std::vector<std::string>& argv, ExecStreams streams,
                   Done<ExitState> done) override;
  void list(Done<std::vector<ContainerInfo>> done) override;
  void list_sandboxes(Done<std::vector<SandboxSpec>> done) override;
  void on_change(std::function<void(const ContainerInfo&)> changed) override;
  // Never called: this runtime is in the caller's own process.
  void on_available(std::function<void(bool)> available) override;

  struct Impl;

 private:
  explicit NodeRuntime(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
