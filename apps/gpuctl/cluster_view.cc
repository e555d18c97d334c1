#include "cluster_view.h"

#include "fleet/faults.h"
#include "fleet/refusals.h"

namespace gpuop {
namespace {

kube::InformerOptions keep(std::string ns, std::vector<std::string> fields) {
  kube::InformerOptions options;
  options.ns = std::move(ns);
  options.keep = std::move(fields);
  return options;
}

kube::InformerOptions refused_pods(const std::string& ns) {
  kube::InformerOptions options = keep(ns, fleet::event_fields());
  options.field_selector = fleet::kRefusedPods;
  return options;
}

fleet::Objects all_of(const kube::Informer& informer) {
  fleet::Objects out;
  informer.for_each([&out](const auto& object) { out.push_back(object); });
  return out;
}

}  // namespace

ClusterWatch::ClusterWatch(kube::Client& client, const std::string& ns)
    : policies(client, kube::kClusterPolicies, keep("", fleet::policy_fields())),
      nodes(client, kube::kNodes, keep("", fleet::node_fields())),
      pods(client, kube::kPods, keep(ns, fleet::pod_fields())),
      daemonsets(client, kube::kDaemonSets, keep(ns, fleet::daemonset_fields())),
      gpu_clusters(client, kube::kGpuClusters, keep("", {"status"})),
      drivers(client, kube::kNvidiaDrivers, keep("", {"status"})),
      refusals(client, kube::kEvents, refused_pods(ns)) {
  for (kube::Informer* informer :
       {&policies, &nodes, &pods, &daemonsets, &gpu_clusters, &drivers, &refusals}) {
    informer->on_change([this](const auto&, const auto&) {
      if (changed_) changed_();
    });
    informer->start();
  }
}

Result<> ClusterWatch::wait_synced(Loop& loop, Duration limit) {
  const auto undefined = [this] { return fleet::definition_fault(policies.fault()); };
  // Of what explains more, a refusal is an answer too.
  const auto known = [](const kube::Informer& informer) {
    return informer.synced() || !informer.fault().empty();
  };
  const auto synced = [&] {
    return !undefined().empty() ||
           (policies.synced() && nodes.synced() && pods.synced() && known(daemonsets) &&
            known(gpu_clusters) && known(drivers) && known(refusals));
  };
  const bool answered = loop.run_until(synced, limit);
  if (std::string why = undefined(); !why.empty()) return fail(Code::kNotFound, std::move(why));
  if (answered) return {};
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
  return fleet::cluster_chain({all_of(policies), all_of(nodes), all_of(pods), all_of(daemonsets),
                               all_of(gpu_clusters), all_of(drivers), all_of(refusals)});
}

}  // namespace gpuop
