#include <algorithm>

#include "cluster/controllers/daemon_set.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kTemplateGeneration = "deprecated.daemonset.template.generation";

Duration min_ready_of(const Json& daemon_set) {
  return std::chrono::seconds(get_int(daemon_set, {"spec", "minReadySeconds"}));
}

bool is_available(const OwnedPod& entry, Duration min_ready, Time now) {
  const auto at = available_at(*entry.pod, min_ready);
  return at && *at <= now;
}

// The first pods of a node, old and new, that are not on their way out.
struct NodePods {
  const OwnedPod* old = nullptr;
  const OwnedPod* fresh = nullptr;
  bool leaving = false;
};
NodePods sort_pods(const Json& daemon_set, const std::vector<OwnedPod>& pods, std::string_view hash) {
  NodePods out;
  for (const OwnedPod& entry : pods) {
    if (entry.terminating || is_finished(*entry.pod)) {
      out.leaving = true;
    } else if (is_current(daemon_set, *entry.pod, hash)) {
      out.fresh = &entry;
    } else {
      out.old = &entry;
    }
  }
  return out;
}

const Json* rolling(const Json& daemon_set, std::string_view key) {
  return find(daemon_set, {"spec", "updateStrategy", "rollingUpdate", key});
}

}  // namespace

bool is_current(const Json& daemon_set, const Json& pod, std::string_view hash) {
  if (kube::label(pod, "controller-revision-hash") == hash) return true;
  const std::string_view counted = kube::annotation(daemon_set, kTemplateGeneration);
  return !counted.empty() && kube::label(pod, "pod-template-generation") == counted;
}

bool allows_surge(const Json& daemon_set) {
  return get_string(daemon_set, {"spec", "updateStrategy", "type"}, "RollingUpdate") == "RollingUpdate" &&
         scaled_value(rolling(daemon_set, "maxSurge"), 0, 100, true) > 0;
}

Eligibility daemon_eligibility(const Json& node, const Json& pod_spec) {
  const std::string_view wanted = get_string(pod_spec, {"nodeName"});
  if (!wanted.empty() && wanted != kube::name_of(node)) return {};
  if (!kube::node_matches(node, pod_spec)) return {};
  Json spec = JsonObject{{"tolerations", get_array(pod_spec, {"tolerations"})}};
  if (get_bool(pod_spec, {"hostNetwork"})) set(spec, {"hostNetwork"}, Json(true));
  add_daemon_tolerations(spec);
  const bool blocked = kube::untolerated_taint(node, spec, {"NoSchedule", "NoExecute"}) != nullptr;
  const bool expelled = kube::untolerated_taint(node, spec, {"NoExecute"}) != nullptr;
  return {!blocked, !expelled};
}

void add_daemon_tolerations(Json& pod_spec) {
  Json& list = ensure(pod_spec, {"tolerations"});
  if (!list.is_array()) list = JsonArray();
  const auto add = [&](const char* key, const char* effect) {
    Json entry = JsonObject{
        {"key", std::string("node.kubernetes.io/") + key}, {"operator", "Exists"}, {"effect", effect}};
    JsonArray& entries = list.get_array();
    if (std::ranges::find(entries, entry) == entries.end()) entries.push_back(std::move(entry));
  };
  add("not-ready", "NoExecute");
  add("unreachable", "NoExecute");
  for (const char* key : {"disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"})
    add(key, "NoSchedule");
  if (get_bool(pod_spec, {"hostNetwork"})) add("network-unavailable", "NoSchedule");
}

Json daemon_pod(const Json& daemon_set, const std::string& hash, const std::string& node) {
  const Json none = JsonObject();
  const Json* pod_template = find(daemon_set, {"spec", "template"});
  Json pod = pod_from_template(daemon_set, pod_template == nullptr ? none : *pod_template);
  set(pod, {"metadata", "labels", "controller-revision-hash"}, Json(hash));
  const std::string_view counted = kube::annotation(daemon_set, kTemplateGeneration);
  set(pod, {"metadata", "labels", "pod-template-generation"},
      Json(counted.empty() ? std::to_string(get_int(daemon_set, {"metadata", "generation"}, 1))
                           : str(counted)));
  Json& spec = ensure(pod, {"spec"});
  // The node was chosen here; the template's own terms have done their work.
  JsonObject field{{"key", "metadata.name"}, {"operator", "In"}, {"values", JsonArray{Json(node)}}};
  JsonObject term{{"matchFields", JsonArray{Json(std::move(field))}}};
  set(spec, {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"},
      JsonObject{{"nodeSelectorTerms", JsonArray{Json(std::move(term))}}});
  add_daemon_tolerations(spec);
  return pod;
}

RollDecision decide_roll(const RollFacts& facts) {
  RollDecision out;
  const Json& set = *facts.daemon_set;
  const auto total = static_cast<std::int64_t>(facts.desired.size());
  const std::int64_t surge = scaled_value(rolling(set, "maxSurge"), 0, total, true);
  const std::int64_t most = scaled_value(rolling(set, "maxUnavailable"), surge > 0 ? 0 : 1, total, true);
  const Duration min_ready = min_ready_of(set);
  std::int64_t unavailable = 0, surging = 0;
  std::vector<Object> replaceable, candidates;
  std::vector<std::string> urgent, beside;
  for (const std::string& node : facts.desired) {
    const auto found = facts.pods->find(node);
    const NodePods pods = found == facts.pods->end() ? NodePods() : sort_pods(set, found->second, facts.hash);
    const bool old_serves = pods.old != nullptr && is_available(*pods.old, min_ready, facts.now);
    const bool fresh_serves = pods.fresh != nullptr && is_available(*pods.fresh, min_ready, facts.now);
    if (surge > 0) {
      if (pods.old == nullptr) continue;
      if (pods.fresh == nullptr) {
        (old_serves ? beside : urgent).push_back(node);
      } else {
        ++surging;
        // The old one goes when the new one serves, or when it does not serve itself.
        if (fresh_serves || !old_serves) replaceable.push_back(pods.old->pod);
      }
      continue;
    }
    if (pods.fresh != nullptr ? !fresh_serves : !old_serves) ++unavailable;
    if (pods.old == nullptr) continue;
    (old_serves ? candidates : replaceable).push_back(pods.old->pod);
  }
  out.remove = std::move(replaceable);
  if (surge > 0) {
    out.create_beside = std::move(urgent);
    const auto left = surge - surging;
    for (std::int64_t i = 0; i < left && i < std::ssize(beside); ++i) out.create_beside.push_back(beside[i]);
  } else {
    for (std::int64_t i = 0; i < most - unavailable && i < std::ssize(candidates); ++i) {
      out.remove.push_back(candidates[i]);
    }
  }
  return out;
}

Json daemon_status(const RollFacts& facts, std::int64_t misscheduled) {
  const Duration min_ready = min_ready_of(*facts.daemon_set);
  std::int64_t current = 0, ready = 0, available = 0, updated = 0;
  for (const std::string& node : facts.desired) {
    const auto found = facts.pods->find(node);
    if (found == facts.pods->end() || found->second.empty()) continue;
    ++current;
    // The oldest pod speaks for the node; with a surge, the new one counts as updated all the same.
    const auto alive =
        std::ranges::find_if(found->second, [](const OwnedPod& entry) { return !entry.terminating; });
    if (alive == found->second.end()) continue;
    ready += is_ready(*alive->pod);
    available += is_available(*alive, min_ready, facts.now);
    updated += is_current(*facts.daemon_set, *alive->pod, facts.hash);
  }
  const auto desired = static_cast<std::int64_t>(facts.desired.size());
  const auto omitted_at_zero = [](std::int64_t count) { return count == 0 ? Json() : Json(count); };
  JsonObject out;
  out["currentNumberScheduled"] = current;
  out["numberMisscheduled"] = misscheduled;
  out["desiredNumberScheduled"] = desired;
  out["numberReady"] = ready;
  out["observedGeneration"] = get_int(*facts.daemon_set, {"metadata", "generation"});
  out["updatedNumberScheduled"] = omitted_at_zero(updated);
  out["numberAvailable"] = omitted_at_zero(available);
  out["numberUnavailable"] = omitted_at_zero(desired - available);
  return out;
}

}  // namespace gpuop::cluster
