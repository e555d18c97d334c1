// A runtime in another process, over its socket. Comes back by itself when that process does.
#pragma once

#include <memory>

#include "base/files.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

// Calls while the runtime is away, and calls under way when it goes, answer kUnavailable; every call may be
// repeated. Waits for the socket with inotify, never by trying again and again.
class RemoteRuntime : public Runtime {
 public:
  static Result<std::unique_ptr<RemoteRuntime>> create(Loop& loop, const fs::path& socket);
  ~RemoteRuntime() override;

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
  // Also called at once, on the next turn of the loop, with how it stands.
  void on_available(std::function<void(bool)> available) override;
  bool available() const;
  struct Impl;

 private:
  explicit RemoteRuntime(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
