// The cluster that tests/real/real_test has started, seen through real kubectl and through our own client.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/process.h"
#include "fleet/chain.h"
#include "kube/client.h"
#include "kube/informer.h"

namespace gpuop::real {

inline constexpr const char* kOperatorNamespace = "gpu-operator";

// By the environment: GPUOP_REAL_KUBECONFIG, GPUOP_REAL_DIR (the cluster's folder), GPUOP_REAL_NODE,
// GPUOP_KUBECTL.
std::string kubeconfig();
std::string folder();
std::string node_name();

ExitState run(std::vector<std::string> argv, Duration limit, const std::string& input = "");
// On another cluster than the one of kubeconfig().
ExitState kubectl_on(const std::string& config, std::vector<std::string> args, const std::string& input = "",
                     Duration limit = 60s);
ExitState kubectl(std::vector<std::string> args, const std::string& input = "", Duration limit = 60s);
// kubectl's `-o json`, null where it failed.
Json get_json(std::vector<std::string> args);
bool contains(const std::string& text, std::string_view part);

// Live objects, watched by our own client over HTTP/2.
class Watch {
 public:
  explicit Watch(Loop& loop);
  ~Watch();
  kube::Client& client() { return *client_; }
  fleet::ClusterChain chain() const;

 private:
  std::unique_ptr<kube::Client> client_;

 public:
  std::unique_ptr<kube::Informer> policies, nodes, pods;
};

}  // namespace gpuop::real
