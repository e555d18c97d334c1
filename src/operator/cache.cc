#include "operator/cache.h"

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"
#include "fleet/missing.h"
#include "hardware/validation_note.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {
std::string map_key(std::string_view api_version, std::string_view kind) {
  return std::string(api_version) + "/" + std::string(kind);
}

// What a node's chain reads of its pods, and who wakes them.
std::vector<std::string> pod_fields() {
  std::vector<std::string> out{"spec.nodeName",
                               "spec.affinity!spec.nodeName",
                               "spec.runtimeClassName",
                               "status.phase",
                               "status.reason",
                               "status.message",
                               "status.conditions.type",
                               "status.conditions.status",
                               "status.conditions.message"};
  // Of the annotations the one that the chain reads.
  std::string note = "metadata.annotations.";
  for (const char c : hardware::kValidationAnnotation) note += c == '.' ? "\\." : std::string(1, c);
  out.push_back(std::move(note));
  for (const char* list : {"status.initContainerStatuses.", "status.containerStatuses."}) {
    // Of "running" only that it is there.
    for (const char* field :
         {"name", "ready", "restartCount", "state.running.none", "state.waiting.reason",
          "state.waiting.message", "state.terminated.exitCode", "state.terminated.reason",
          "state.terminated.message", "state.terminated.finishedAt", "lastState.terminated.exitCode",
          "lastState.terminated.reason", "lastState.terminated.message", "lastState.terminated.finishedAt"})
      out.push_back(std::string(list) + field);
  }
  return out;
}
// Pods of one DaemonSet that its readiness does not tell apart (readiness.h): of one form, and whether they
// run.
std::string kind_of_pod(const Json& pod) {
  const Json* owner = kube::controller_of(pod);
  if (!owner) return {};
  const bool runs = get_string(pod, {"status", "phase"}) == "Running" &&
                    std::ranges::all_of(get_array(pod, {"status", "containerStatuses"}),
                                        [](const Json& container) { return get_bool(container, {"ready"}); });
  return str(get_string(*owner, {"uid"})) + "/" + str(kube::label(pod, "controller-revision-hash")) +
         (runs ? "/runs" : "");
}

}  // namespace

std::int64_t version_of(const Json& object) {
  return parse_int(get_string(object, {"metadata", "resourceVersion"})).value_or(0);
}

ClusterCache::ClusterCache(kube::Client& client, std::string ns) : client_(client), ns_(std::move(ns)) {
  add(kube::kClusterPolicies, "", {"*"});
  // Labels and annotations come with the metadata; of the rest only what rendering, readiness and the nodes'
  // chains read. Heartbeats are left out: they tell nothing, and there are many nodes.
  add(kube::kNodes, "",
      {"spec.taints", "status.nodeInfo.containerRuntimeVersion", "status.nodeInfo.bootID",
       "status.allocatable", "status.capacity", "status.conditions.type", "status.conditions.status",
       "status.conditions.reason", "status.conditions.message", "status.conditions.lastTransitionTime"},
      {}, true);
  add(kube::kDaemonSets, ns_, {"spec", "status"});
  add(kube::kPods, ns_, pod_fields(), {}, true);
  of(kube::kPods).add_index("node", [](const Json& pod) {
    return std::vector<std::string>{str(fleet::target_node(pod))};
  });
  of(kube::kPods).add_index("kind", [](const Json& pod) {
    return std::vector<std::string>{kind_of_pod(pod)};
  });
  add(kube::kControllerRevisions, ns_,
      {"revision", "data.spec.template.metadata.annotations",
       "data.spec.template.spec.initContainers.env.name",
       "data.spec.template.spec.initContainers.env.value"});
  add(kube::kConfigMaps, ns_, {"data"});
  add(kube::kSecrets, ns_, {});
  add(kube::kServices, ns_, {"spec"});
  add(kube::kServiceAccounts, ns_, {});
  add(kube::kRoles, ns_, {"rules"});
  add(kube::kRoleBindings, ns_, {"roleRef", "subjects"});
  add(kube::kClusterRoles, "", {"rules"});
  add(kube::kClusterRoleBindings, "", {"roleRef", "subjects"});
  add(kube::kRuntimeClasses, "", {"handler", "scheduling", "overhead"});
}

void ClusterCache::add(const kube::Resource& type, std::string ns, std::vector<std::string> keep,
                       std::vector<std::string> drop, bool many) {
  kube::InformerOptions options;
  options.ns = std::move(ns);
  options.keep = std::move(keep);
  options.drop = std::move(drop);
  options.compact = options.paged = many;
  auto informer = std::make_unique<kube::Informer>(client_, type, std::move(options));
  informer->on_change([this, type](const auto& old, const auto& now) {
    if (type.kind == "Node") gpu_nodes_.changed(old.get(), now.get());
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

std::string ClusterCache::fault() const {
  for (const auto& [key, watched] : watched_) {
    if (!watched.informer->synced() && !watched.informer->fault().empty()) return watched.informer->fault();
  }
  return {};
}

bool ClusterCache::synced(const kube::Resource& type) const {
  const auto found = watched_.find(map_key(type.api_version(), type.kind));
  return found != watched_.end() && found->second.informer->synced();
}

void ClusterCache::watch(const kube::Resource& type, std::string ns, std::vector<std::string> keep) {
  if (watched_.contains(map_key(type.api_version(), type.kind))) return;
  add(type, std::move(ns), std::move(keep));
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

void ClusterCache::for_each_object(
    const std::function<void(const std::shared_ptr<const Json>&)>& visit) const {
  for (const auto& [key, watched] : watched_)
    if (watched.type.kind != "Node" && watched.type.kind != "Pod") watched.informer->for_each(visit);
}

std::vector<std::shared_ptr<const Json>> ClusterCache::pods_on(std::string_view node) const {
  return of(kube::kPods).by_index("node", node);
}

std::vector<std::shared_ptr<const Json>> ClusterCache::examples_of_pods(std::string_view owner_uid) const {
  std::vector<std::shared_ptr<const Json>> out;
  const auto& pods = of(kube::kPods);
  for (const std::string& kind : pods.index_values("kind", std::string(owner_uid) + "/"))
    for (auto& pod : pods.by_index("kind", kind, 1)) out.push_back(std::move(pod));
  return out;
}

std::string ClusterCache::pod_of_a_gone_daemonset(std::string_view name_prefix) const {
  const auto& pods = of(kube::kPods);
  for (const std::string& kind : pods.index_values("kind", "")) {
    const auto example = pods.by_index("kind", kind, 1);
    const Json* owner = example.empty() ? nullptr : kube::controller_of(*example.front());
    if (!owner || get_string(*owner, {"kind"}) != "DaemonSet" ||
        !get_string(*owner, {"name"}).starts_with(name_prefix))
      continue;
    const auto live = of(kube::kDaemonSets).get(kube::object_key(ns_, get_string(*owner, {"name"})));
    if (!live || kube::uid_of(*live) != get_string(*owner, {"uid"}))
      return std::string(kube::name_of(*example.front()));
  }
  return {};
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
