// Serves a runtime on a Unix socket, for the node's kubelet and for whoever asks who is behind the socket
// (SO_PEERCRED names this process, as containerd's does).
#pragma once

#include <memory>

#include "base/files.h"
#include "base/loop.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

class RuntimeServer {
 public:
  // A socket that an ended runtime left is replaced. `runtime` must outlive the server.
  static Result<std::unique_ptr<RuntimeServer>> create(Loop& loop, const fs::path& socket, Runtime& runtime);
  ~RuntimeServer();
  struct Impl;

 private:
  explicit RuntimeServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
