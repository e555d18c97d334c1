// Puts the API faults of a plan between clients and an API server's handler, in memory or behind a real HTTP
// server; and writes each request and fault to an event log.
//
// Thread rules: everything on the loop's thread. The object must outlive its handler's use.
#pragma once

#include <memory>
#include <string>

#include "base/http.h"
#include "base/loop.h"
#include "cluster/faults/event_log.h"
#include "cluster/faults/faults.h"
#include "cluster/faults/names.h"

namespace gpuop::cluster {

// A request in the API's words. Requests outside of collections (discovery, health) have no resource.
struct ApiRequest {
  std::string verb;  // as in RequestFilter
  // A list or watch has a name where its field selector asks for metadata.name alone, as the API server has
  // it.
  std::string resource, ns, name;
  std::string component, actor;  // "kubelet", and the whole User-Agent "kubelet/gpu-1"
};
ApiRequest describe(const HttpRequest& request);
// `node`: part of the User-Agent behind '/', "" when there is none.
bool matches(const RequestFilter& filter, const ApiRequest& request);

struct InjectorOptions {
  // The newest resourceVersion, for stale lists. Unset: none are shown.
  std::function<std::uint64_t()> version;
  EventLog* log = nullptr;  // may be null
  // Told of each answer (of a watch: that it began).
  std::function<void(const ApiRequest& request, int status)> answered;
  // Log reads too. Watches and lists are many in a large fleet.
  bool log_reads = true;
};

class FaultInjector {
 public:
  FaultInjector(Loop& loop, const FaultPlan& plan, HttpHandler inner, InjectorOptions options);
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  HttpHandler handler();
  // How often a fault struck.
  std::uint64_t struck() const;
  // What each fault of the plan met, in the plan's order; empty for those that are no API faults.
  std::vector<FaultRecord> records() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster
