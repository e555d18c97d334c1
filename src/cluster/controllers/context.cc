#include "cluster/controllers/context.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "cluster/controllers/claims.h"

namespace gpuop::cluster {
namespace {

using kube::InformerOptions;

std::vector<std::string> uid_index(const Json& object) {
  return {str(kube::uid_of(object))};
}

std::vector<std::string> owner_index(const Json& object) {
  const Json* owner = kube::controller_of(object);
  return owner == nullptr ? std::vector<std::string>() : std::vector{str(get_string(*owner, {"uid"}))};
}

std::vector<std::string> node_index(const Json& pod) {
  const std::string_view node = get_string(pod, {"spec", "nodeName"});
  return node.empty() ? std::vector<std::string>() : std::vector{str(node)};
}

InformerOptions whole() {
  return {.keep = {"spec", "status", "data"}};
}

}  // namespace

Context::Context(Loop& l, kube::Client& c, ControllerOptions o)
    : loop(l),
      client(c),
      options(std::move(o)),
      pods(client, kube::kPods,
           {.keep = {"spec.nodeName", "spec.schedulerName", "spec.nodeSelector", "spec.affinity",
                     "spec.tolerations", "spec.overhead", "spec.priority", "spec.schedulingGates",
                     "spec.hostNetwork", "spec.containers.resources", "spec.containers.ports",
                     "spec.initContainers.resources", "spec.initContainers.restartPolicy", "status.phase",
                     "status.podIP", "status.conditions", "status.containerStatuses.restartCount",
                     "status.containerStatuses.state.terminated.exitCode"}}),
      nodes(client, kube::kNodes,
            {.keep = {"spec", "status.allocatable", "status.conditions", "status.nodeInfo.bootID"}}),
      daemon_sets(client, kube::kDaemonSets, whole()),
      revisions(client, kube::kControllerRevisions, {.keep = {"data", "revision"}}),
      deployments(client, kube::kDeployments, whole()),
      replica_sets(client, kube::kReplicaSets, whole()),
      jobs(client, kube::kJobs, whole()),
      namespaces(client, kube::kNamespaces, {.keep = {"spec", "status"}}),
      service_accounts(client, kube::kServiceAccounts, {.field_selector = "metadata.name=default"}),
      root_cas(client, kube::kConfigMaps, {.field_selector = "metadata.name=kube-root-ca.crt"}),
      leases(client, kube::kLeases, {.ns = "kube-node-lease", .keep = {"spec.renewTime"}}) {
  pods.add_index("node", node_index);
  pods.add_index("owner", owner_index);
  for (kube::Informer* informer : {&revisions, &replica_sets, &jobs})
    informer->add_index("owner", owner_index);
  for (kube::Informer* informer : {&pods, &revisions, &replica_sets})
    informer->add_index("orphan", orphan_index);
  for (kube::Informer* informer : {&daemon_sets, &deployments, &replica_sets, &jobs}) {
    informer->add_index("uid", uid_index);
    informer->add_index("selector", selector_index);
  }
}

std::vector<kube::Informer*> Context::informers() {
  return {&pods, &nodes,      &daemon_sets,      &revisions, &deployments, &replica_sets,
          &jobs, &namespaces, &service_accounts, &root_cas,  &leases};
}

kube::Informer* Context::informer_of(std::string_view group, std::string_view plural) {
  const std::pair<const kube::Resource*, kube::Informer*> known[] = {
      {&kube::kPods, &pods},
      {&kube::kNodes, &nodes},
      {&kube::kDaemonSets, &daemon_sets},
      {&kube::kControllerRevisions, &revisions},
      {&kube::kDeployments, &deployments},
      {&kube::kReplicaSets, &replica_sets},
      {&kube::kJobs, &jobs},
      {&kube::kNamespaces, &namespaces}};
  for (const auto& [type, informer] : known) {
    if (type->group == group && type->plural == plural) return informer;
  }
  return nullptr;
}

Object controller_in(const kube::Informer& informer, const Json& object) {
  const Json* owner = kube::controller_of(object);
  if (owner == nullptr) return nullptr;
  const auto found = informer.by_index("uid", get_string(*owner, {"uid"}));
  return found.empty() ? nullptr : found.front();
}

bool is_terminating(const Json& object) {
  return !get_string(object, {"metadata", "deletionTimestamp"}).empty();
}

bool is_finished(const Json& pod) {
  const std::string_view phase = get_string(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

bool is_ready(const Json& pod) {
  const Json* ready = kube::condition(pod, "Ready");
  return ready != nullptr && get_string(*ready, {"status"}) == "True";
}

std::optional<Time> available_at(const Json& pod, Duration min_ready) {
  const Json* ready = kube::condition(pod, "Ready");
  if (ready == nullptr || get_string(*ready, {"status"}) != "True") return std::nullopt;
  if (min_ready <= Duration::zero()) return Time();
  const auto since = parse_time(get_string(*ready, {"lastTransitionTime"}));
  return since ? std::optional(*since + min_ready) : std::nullopt;
}

std::string_view target_node(const Json& pod) {
  if (const std::string_view bound = get_string(pod, {"spec", "nodeName"}); !bound.empty()) return bound;
  for (const Json& term :
       get_array(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
                       "nodeSelectorTerms"})) {
    for (const Json& field : get_array(term, {"matchFields"})) {
      if (get_string(field, {"key"}) != "metadata.name" || get_string(field, {"operator"}) != "In") continue;
      const JsonArray& values = get_array(field, {"values"});
      if (values.size() == 1) return as_text(values[0]);
    }
  }
  return {};
}

Json pod_from_template(const Json& owner, const Json& pod_template) {
  JsonObject metadata;
  metadata["generateName"] = str(kube::name_of(owner)) + "-";
  metadata["namespace"] = kube::namespace_of(owner);
  for (const char* key : {"labels", "annotations", "finalizers"}) {
    const Json* value = find(pod_template, {"metadata", key});
    if (value != nullptr && !value->is_null()) metadata[key] = *value;
  }
  metadata["ownerReferences"] = JsonArray{kube::owner_reference(owner)};
  JsonObject out{{"apiVersion", "v1"}, {"kind", "Pod"}};
  out["metadata"] = std::move(metadata);
  const Json* spec = find(pod_template, {"spec"});
  out["spec"] = spec == nullptr ? Json(JsonObject()) : *spec;
  return out;
}

std::string template_hash(const Json& pod_template, std::int64_t collisions) {
  static constexpr std::string_view kCharacters = "bcdfghjklmnpqrstvwxz2456789";
  std::string text = to_canonical_text(pod_template);
  if (collisions > 0) text += "/" + std::to_string(collisions);
  std::uint64_t hash = fnv1a64(text);
  std::string out;
  for (int i = 0; i < 10; ++i, hash /= kCharacters.size()) out += kCharacters[hash % kCharacters.size()];
  return out;
}

std::int64_t scaled_value(const Json* value, std::int64_t fallback, std::int64_t total, bool round_up) {
  if (value == nullptr || value->is_null()) return fallback;
  if (value->is_int64()) return value->get_int64();
  if (value->is_uint64()) return static_cast<std::int64_t>(value->get_uint64());
  std::string_view text = as_text(*value);
  if (!text.ends_with('%')) return parse_int(text).value_or(fallback);
  text.remove_suffix(1);
  const auto percent = parse_int(text);
  if (!percent) return fallback;
  return (*percent * total + (round_up ? 99 : 0)) / 100;
}

void patch_status(Context& context, const kube::Resource& type, const Json& object, const Json& status,
                  std::function<void(bool)> done) {
  JsonObject changed;
  const Json* old = find(object, {"status"});
  for (const auto& [key, value] : status.get_object()) {
    const Json* before = old == nullptr ? nullptr : find(*old, {key});
    if (before == nullptr ? !value.is_null() : *before != value) changed[key] = value;
  }
  if (changed.empty()) return done(true);
  JsonObject patch{{"status", std::move(changed)}};
  context.client
      .patch(
          type, kube::namespace_of(object), kube::name_of(object), kube::Patch::kMerge, patch,
          {.subresource = "status"},
          [done = std::move(done)](kube::ApiResult<> result) { done(result || result.error().not_found()); })
      .detach();
}

struct Gather::State {
  Loop& loop;
  std::function<void(bool)> all;
  int open = 1;  // close() is a step of its own
  bool ok = true;

  void finish(const std::shared_ptr<State>& self, bool step_ok) {
    ok = ok && step_ok;
    if (--open == 0) loop.post([self] { self->all(self->ok); });
  }
};

Gather::Gather(Loop& loop, std::function<void(bool)> all)
    : state_(std::make_shared<State>(State{loop, std::move(all)})) {}

std::function<void(bool)> Gather::step() {
  ++state_->open;
  return [state = state_](bool ok) { state->finish(state, ok); };
}

void Gather::close() {
  state_->finish(state_, true);
}

}  // namespace gpuop::cluster
