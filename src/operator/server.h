// What the API server is, and which kinds that need not be there it has: asked with a few requests, and again
// when a definition of such a kind comes, goes or changes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/client.h"
#include "kube/informer.h"
#include "operator/cache.h"
#include "operator/facts.h"

namespace gpuop::op {

class Server {
 public:
  Server(kube::Client& client, ClusterCache& cache) : client_(client), cache_(cache) {}

  // Asks, and has the cache watch the optional kinds that are there. Several that ask at once share one round
  // of requests.
  void ask(std::function<void(Result<>)> done);
  // Calls `changed` when another answer is to be expected; known() is false then until it is asked again.
  void watch_definitions(std::function<void()> changed);

  bool known() const { return known_; }
  const ServerFacts& facts() const { return facts_; }
  // Whether the kind is missing by which node feature discovery reports on nodes.
  bool lacks_node_features() const;
  // Fields that the ClusterPolicies' definition in the cluster does not have.
  const std::vector<std::string>& dropped() const { return dropped_; }

 private:
  void read(const std::string& path, const std::string& doing, std::function<void(std::optional<Json>)> then);
  void discover(const std::string& group_version, std::function<void()> then);
  void ask_groups();
  void ask_kinds();
  void ask_openshift();
  void ask_openshift_kinds();
  void ask_definition();
  void ask_again_if_behind();
  void answered(const Result<>& result);

  kube::Client& client_;
  ClusterCache& cache_;
  ServerFacts facts_;
  std::set<std::string> groups_;  // of the API server
  std::set<std::string> kinds_;   // of those that were asked for: "servicemonitors.monitoring.coreos.com"
  std::vector<std::string> dropped_;
  bool known_ = false;
  Handle asking_;
  std::vector<std::function<void(Result<>)>> asked_;  // who waits for the answers
  std::unique_ptr<kube::Informer> definitions_;
  std::function<void()> changed_;
  int asked_again_ = 0;  // since a definition changed
  Handle again_;
};

}  // namespace gpuop::op
