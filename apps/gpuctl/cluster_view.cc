#include "cluster_view.h"

namespace gpuop {
namespace {

kube::InformerOptions keep(std::string ns, std::vector<std::string> fields) {
  kube::InformerOptions options;
  options.ns = std::move(ns);
  options.keep = std::move(fields);
  return options;
}

fleet::Objects all_of(const kube::Informer& informer) {
  fleet::Objects out;
  informer.for_each([&out](const auto& object) { out.push_back(object); });
  return out;
}

}  // namespace

ClusterWatch::ClusterWatch(kube::Client& client, std::string ns)
    : policies(
          client, kube::kClusterPolicies,
          keep("", {"spec.devicePlugin.enabled", "spec.gfd.enabled", "spec.dcgmExporter.enabled", "status"})),
      nodes(client, kube::kNodes, keep("", {"status.allocatable", "status.capacity", "status.conditions"})),
      pods(client, kube::kPods,
           keep(std::move(ns), {"spec.nodeName", "status.phase", "status.conditions",
                                "status.containerStatuses", "status.initContainerStatuses"})) {
  for (kube::Informer* informer : {&policies, &nodes, &pods}) {
    informer->on_change([this](const auto&, const auto&) {
      if (changed_) changed_();
    });
    informer->start();
  }
}

Result<> ClusterWatch::wait_synced(Loop& loop, Duration limit) {
  // Without our CRD there is no ClusterPolicy, which is an answer too.
  const auto no_crd = [this] {
    return policies.fault().find("could not find the requested resource") != std::string::npos;
  };
  const auto synced = [&] { return (policies.synced() || no_crd()) && nodes.synced() && pods.synced(); };
  if (loop.run_until(synced, limit)) return {};
  for (const kube::Informer* informer : {&nodes, &policies, &pods}) {
    if (!informer->synced() && !informer->fault().empty())
      return fail(Code::kUnavailable, "read the cluster: " + informer->fault());
  }
  return fail(Code::kTimeout, "read the cluster: no answer after " + format_go_duration(limit));
}

fleet::Objects ClusterWatch::all_pods() const {
  return all_of(pods);
}

fleet::ClusterChain ClusterWatch::chain() const {
  return fleet::cluster_chain(all_of(policies), all_of(nodes), all_of(pods));
}

}  // namespace gpuop
