#include "operator/cache.h"

#include <cstdlib>

#include "base/log.h"

namespace gpuop::op {
namespace {
std::string map_key(std::string_view api_version, std::string_view kind) {
  return std::string(api_version) + "/" + std::string(kind);
}
}  // namespace

ClusterCache::ClusterCache(kube::Client& client, std::string ns) : client_(client), ns_(std::move(ns)) {
  add(kube::kClusterPolicies, "", {"*"});
  // Labels and annotations come with the metadata; of the rest only what rendering and readiness read.
  add(kube::kNodes, "", {"status.nodeInfo.containerRuntimeVersion", "status.allocatable", "status.capacity"});
  add(kube::kDaemonSets, ns_,
      {"spec.updateStrategy", "spec.selector", "spec.template.spec.nodeSelector",
       "spec.template.spec.affinity", "status"});
  add(kube::kPods, ns_, {"spec.nodeName", "status.phase", "status.containerStatuses"});
  add(kube::kControllerRevisions, ns_, {"revision"});
  add(kube::kConfigMaps, ns_, {"data"});
  add(kube::kSecrets, ns_, {});
  add(kube::kServices, ns_, {"spec"});
  add(kube::kServiceAccounts, ns_, {});
  add(kube::kRoles, ns_, {"rules"});
  add(kube::kRoleBindings, ns_, {"roleRef", "subjects"});
  add(kube::kClusterRoles, "", {"rules"});
  add(kube::kClusterRoleBindings, "", {"roleRef", "subjects"});
  add(kube::kRuntimeClasses, "", {"handler"});
}

void ClusterCache::add(const kube::Resource& type, std::string ns, std::vector<std::string> keep) {
  kube::InformerOptions options;
  options.ns = std::move(ns);
  options.keep = std::move(keep);
  auto informer = std::make_unique<kube::Informer>(client_, type, std::move(options));
  informer->on_change([this, type](const auto& old, const auto& now) {
    if (changed_) changed_(type, old, now);
  });
  watched_.emplace(map_key(type.api_version(), type.kind), Watched{type, std::move(informer)});
}

void ClusterCache::start(std::function<void()> done) {
  all_synced_ = std::move(done);
  for (auto& [key, watched] : watched_) {
    watched.informer->on_synced([this] {
      if (synced() && all_synced_) std::exchange(all_synced_, nullptr)();
    });
    watched.informer->start();
  }
}

bool ClusterCache::synced() const {
  for (const auto& [key, watched] : watched_) {
    if (!watched.informer->synced()) return false;
  }
  return true;
}

void ClusterCache::watch_service_monitors() {
  const auto& type = kube::kServiceMonitors;
  if (watched_.contains(map_key(type.api_version(), type.kind))) return;
  add(type, ns_, {"spec"});
  of(type).start();
}

bool ClusterCache::synced(const kube::Resource& type) const {
  const auto found = watched_.find(map_key(type.api_version(), type.kind));
  return found != watched_.end() && found->second.informer->synced();
}

void ClusterCache::watch(const kube::Resource& type) {
  if (watched_.contains(map_key(type.api_version(), type.kind))) return;
  add(type, "", {"*"});
  // Its first list asks for a pass even where it is empty: what was owned may be nobody's now.
  of(type).on_synced([this, type] {
    if (changed_) changed_(type, nullptr, nullptr);
  });
  of(type).start();
}

void ClusterCache::on_change(std::function<void(const kube::Resource&, const std::shared_ptr<const Json>&,
                                                const std::shared_ptr<const Json>&)>
                                 changed) {
  changed_ = std::move(changed);
}

const kube::Resource* ClusterCache::type_of(std::string_view api_version, std::string_view kind) const {
  const auto found = watched_.find(map_key(api_version, kind));
  return found == watched_.end() ? nullptr : &found->second.type;
}

std::shared_ptr<const Json> ClusterCache::live(const ObjectRef& ref) const {
  const auto found = watched_.find(map_key(ref.api_version, ref.kind));
  if (found == watched_.end()) return nullptr;
  return found->second.informer->get(kube::object_key(ref.namespace_name, ref.name));
}

kube::Informer& ClusterCache::of(const kube::Resource& type) const {
  const auto found = watched_.find(map_key(type.api_version(), type.kind));
  if (found == watched_.end()) {
    log::error("a type is read that is not watched", {{"kind", type.kind}});
    std::abort();
  }
  return *found->second.informer;
}

}  // namespace gpuop::op
