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

kube::InformerOptions operator_lease(const std::string& ns) {
  kube::InformerOptions options = keep(ns, {"spec"});
  options.field_selector = "metadata.name=" + std::string(fleet::kOperatorLease);
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
      refusals(client, kube::kEvents, refused_pods(ns)),
      deployments(client, kube::kDeployments, keep(ns, fleet::operator_deployment_fields())),
      leases(client, kube::kLeases, operator_lease(ns)),
      ns_(ns) {
  for (kube::Informer* informer :
       {&policies, &nodes, &pods, &daemonsets, &gpu_clusters, &drivers, &refusals}) {
    informer->on_change([this](const auto&, const auto&) {
      if (changed_) changed_();
    });
    informer->start();
  }
  deployments.start();
  leases.start();
}

Result<> ClusterWatch::wait_synced(Loop& loop, Duration limit, Duration patience) {
  const auto undefined = [this] { return fleet::definition_fault(policies.fault()); };
  // Of what explains more, a refusal is an answer too.
  const auto known = [](const kube::Informer& informer) {
    return informer.synced() || !informer.fault().empty();
  };
  const Duration until = loop.elapsed() + patience;
  const Handle look = loop.after(patience, [] {});  // so that it is looked at then
  const auto synced = [&] {
    return (!undefined().empty() && loop.elapsed() >= until) ||
           (policies.synced() && nodes.synced() && pods.synced() && known(daemonsets) &&
            known(gpu_clusters) && known(drivers) && known(refusals) && known(deployments) && known(leases));
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

std::string ClusterWatch::operator_fault(Time now) const {
  if (!deployments.synced()) return "whether it runs is not known: list Deployments: " + deployments.fault();
  if (!leases.synced()) return "whether one leads is not known: read the Lease: " + leases.fault();
  JsonArray found;
  deployments.for_each([&found](const auto& deployment) { found.push_back(*deployment); });
  const auto lease = leases.get(kube::object_key(ns_, fleet::kOperatorLease));
  return fleet::operator_fault(found, lease ? *lease : Json(nullptr), all_of(pods), ns_, now);
}

fleet::ClusterChain ClusterWatch::chain() const {
  return fleet::cluster_chain({all_of(policies), all_of(nodes), all_of(pods), all_of(daemonsets),
                               all_of(gpu_clusters), all_of(drivers), all_of(refusals)});
}

}  // namespace gpuop
