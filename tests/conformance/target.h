// A control plane that scenarios run against, known by its kubeconfig alone.
#pragma once

#include <memory>
#include <string>

#include "base/files.h"
#include "base/http_server.h"
#include "base/loop.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/pki.h"
#include "cluster/controllers/controllers.h"
#include "kube/client.h"

namespace gpuop::conformance {

// The embedded one, new and empty, with its controllers, over TLS on the loopback.
class Embedded {
 public:
  static Result<std::unique_ptr<Embedded>> start(Loop& loop);
  const std::string& kubeconfig() const { return kubeconfig_; }

 private:
  std::unique_ptr<cluster::ApiServer> server_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<cluster::Controllers> controllers_;
  std::string kubeconfig_;
};

}  // namespace gpuop::conformance
