// What a kubelet serves over HTTPS: /containerLogs/{namespace}/{pod}/{container}, /pods, /healthz. The API
// server's `log` subresource asks here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/http_server.h"
#include "base/loop.h"
#include "cluster/kubelet/log_files.h"

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
