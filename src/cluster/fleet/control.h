// The socket by which a running fleet is told what happens to it: STATE/control.sock, one JSON request a line
// and one answer to each. Only root may connect.
#pragma once

#include <functional>
#include <memory>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "cluster/fleet/node_events.h"

namespace gpuop::cluster {

class ControlServer {
 public:
  using Reply = std::function<void(Result<Json>)>;
  // `serve` is called for each request; it answers once, now or later.
  static Result<std::unique_ptr<ControlServer>> create(Loop& loop, const fs::path& state_dir,
                                                       std::function<void(Json request, Reply reply)> serve);
  ~ControlServer();
  struct Impl;

 private:
  explicit ControlServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Asks and runs the loop until the answer is there. kNotFound: no fleet runs in that folder; kTimeout.
Result<Json> ask_fleet(Loop& loop, const fs::path& state_dir, const Json& request, Duration limit);
// The event has been carried out when this returns: a node that was rebooted has its kubelet running. What
// its pods make of it takes longer. kNotFound: no such node, with the nearest name; kConflict: not now.
Result<> send_node_event(Loop& loop, const fs::path& state_dir, const std::string& node,
                         const NodeEvent& event, Duration limit = 60s);

}  // namespace gpuop::cluster
