// Probes over the network: the httpGet and tcpSocket checks of a pod, and HTTP lifecycle hooks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop::cluster {

struct NetProbe {
  enum class Kind { kHttp, kHttps, kTcp } kind = Kind::kHttp;
  std::string host;  // numeric address, or "localhost"
  int port = 0;
  std::string path = "/";
  std::vector<std::pair<std::string, std::string>> headers;
  Duration timeout = std::chrono::seconds(1);
};

// Calls `done` once: a value when a connection came up (tcp) or the answer's status was 200 to 399 (http). An
// error's text is what follows "Readiness probe failed: ". Dropping the handle cancels.
using NetProber = std::function<Handle(const NetProbe&, std::function<void(Result<>)> done)>;

// A non-blocking TCP socket of the network namespace `netns_path` (empty: this process's own).
Result<Fd> socket_in(const std::string& netns_path, int family);

// Real sockets, made in the network namespace `netns_path` (empty: this process's own). TLS certificates are
// not checked, as Kubernetes' probes do not.
NetProber make_net_prober(Loop& loop, std::string netns_path);

}  // namespace gpuop::cluster
