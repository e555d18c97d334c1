// What a kubelet serves over HTTPS: /containerLogs/{namespace}/{pod}/{container}, /exec/… and /attach/… of
// the same form, /portForward/{namespace}/{pod}, /pods, /healthz. The API server's subresources of pods ask
// here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/http_server.h"
#include "base/loop.h"
#include "cluster/kubelet/log_files.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

struct LogSource {
  std::filesystem::path path;
  std::function<bool()> running;  // more may be written
};

struct HttpEndpointFacts {
  // An error's text is the answer's body; kNotFound: 404, anything else: 400.
  std::function<Result<LogSource>(const std::string& ns, const std::string& pod, const std::string& container,
                                  bool previous)>
      log;
  std::function<std::string()> pods;  // a PodList
  // The id of a container that runs. An error's text goes to the client.
  std::function<Result<std::string>(const std::string& ns, const std::string& pod,
                                    const std::string& container)>
      running;
  // Whether a pod is on this node and not at its end; the error's text goes to the client.
  std::function<Result<>(const std::string& ns, const std::string& pod)> there;
  std::string netns_path;      // where pods' ports are; empty: this process's own network
  Runtime* runtime = nullptr;  // null: nothing is run
  // PEM. Programs are run, and ports forwarded, for clients with a certificate of this CA and group
  // system:masters alone; empty: for nobody.
  std::string client_ca;
};

class HttpEndpoint {
 public:
  // A certificate for `name` and `address` is made on the spot; clients do not check a kubelet's.
  static Result<std::unique_ptr<HttpEndpoint>> create(Loop& loop, const std::string& name,
                                                      const std::string& address, std::uint16_t port,
                                                      HttpEndpointFacts facts);
  ~HttpEndpoint();
  std::uint16_t port() const;
  // A container started or ended: followed logs look whether they are over.
  void containers_changed();
  struct Impl;

 private:
  explicit HttpEndpoint(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Reads tailLines, sinceSeconds, sinceTime, limitBytes, timestamps, follow, previous. kInvalid names the
// parameter.
Result<LogOptions> parse_log_options(const std::string& query, Time now);

}  // namespace gpuop::cluster
