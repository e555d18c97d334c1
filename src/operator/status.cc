#include "operator/status.h"

#include <algorithm>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::op {

Outcome outcome_of(const std::vector<StateReport>& states, const ClusterView& view) {
  std::string failed;
  std::vector<std::string> others;
  for (const auto& state : states) {
    if (state.error.empty()) continue;
    if (failed.empty())
      failed = "Failed to reconcile " + state.name + ": " + state.error;
    else
      others.push_back(state.name);
  }
  if (!failed.empty())
    return failed_outcome(failed + (others.empty() ? "" : "; also failed: [" + join(others, " ") + "]"));
  std::vector<std::string> waiting;
  std::vector<std::string> reasons;
  for (const auto& state : states) {
    if (!state.enabled || state.ready) continue;
    waiting.push_back(state.name);
    if (!state.reason.empty()) reasons.push_back(state.name + ": " + state.reason);
  }
  const bool all_there = view.lost.empty() && view.kept_off.empty();
  if (!waiting.empty() || !all_there) {
    std::string message = "ClusterPolicy is not ready";
    if (!waiting.empty()) message += "; states not ready: [" + join(waiting, " ") + "]";
    if (!view.lost.empty()) message += "; nodes not ready: [" + first_few(view.lost, 3, " ") + "]";
    // The device plugin's state may have said it.
    const std::string said = join(reasons, "; ");
    for (const std::string& words : view.kept_off)
      if (!said.contains(words)) reasons.push_back(words);
    if (!reasons.empty()) message += "; " + join(reasons, "; ");
    const bool fault = std::ranges::any_of(states, [](const auto& state) { return state.fault; });
    return {"notReady", false, "OperandNotReady", std::move(message), 0, !fault && all_there};
  }
  if (!view.has_feature_labels) {
    return {"ready", true, "NFDLabelsMissing",
            "No node carries labels of node feature discovery, so GPU nodes cannot be told from others and "
            "no operand "
            "is deployed; check that the node-feature-discovery worker runs",
            1};
  }
  if (view.gpu_nodes == 0) {
    return {
        "ready", true, "NoGPUNodes",
        "No node with an NVIDIA GPU (PCI vendor 10de) was found; operands are deployed as soon as one joins",
        1};
  }
  return {"ready", true, "Reconciled", "All resources have been successfully reconciled", 1};
}

Outcome failed_outcome(const std::string& message) {
  return {"notReady", false, "ReconcileFailed", message, 0};
}

Outcome ignored_outcome(std::string_view active) {
  return {"ignored", false, "Ignored",
          "ClusterPolicy '" + std::string(active) + "' is the active one; only the oldest is reconciled", -1};
}

Outcome unusable_outcome(const std::string& message) {
  Outcome out = failed_outcome(message);
  out.metric = -1;
  return out;
}

Outcome excluded_outcome(std::string_view gpu_cluster) {
  return unusable_outcome(
      "GPUCluster '" + std::string(gpu_cluster) +
      "' exists beside this ClusterPolicy; a cluster has one or the other: delete one of them");
}

Outcome gpu_cluster_outcome(std::string_view cluster_policy) {
  if (!cluster_policy.empty()) {
    return {"notReady", false, "PrerequisiteNotMet",
            "ClusterPolicy '" + std::string(cluster_policy) +
                "' exists beside this GPUCluster; a cluster has one or the other: delete one of them",
            0};
  }
  return {"notReady", false, "OperandNotReady",
          "This version deploys nothing for a GPUCluster: operands of dynamic resource allocation are not "
          "part of it yet; "
          "use a ClusterPolicy",
          0};
}

Outcome reconciling_outcome() {
  return {"notReady", false, "Reconciling", "The first reconcile is under way", 0};
}

namespace {

void drop_condition(Json& object, std::string_view type) {
  Json* conditions = find_mutable(object, {"status", "conditions"});
  if (!conditions || !conditions->is_array()) return;
  auto& list = conditions->get_array();
  list.erase(
      std::remove_if(list.begin(), list.end(),
                     [type](const Json& condition) { return get_string(condition, {"type"}) == type; }),
      list.end());
}

// The API server takes 32768 bytes.
std::string condition_text(const std::vector<std::string>& sentences) {
  constexpr std::size_t kMost = 16384;
  std::string text = join(sentences, "; ");
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  // Not inside a character: what goes on one in UTF-8 begins with the bits 10.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end) + "…";
}

void add_notes(Json& object, const StatusNotes& notes, const std::string& now) {
  if (!notes.looked) return;
  std::vector<std::string> fields = notes.fields;
  if (!notes.dropped.empty()) {
    fields.insert(
        fields.begin(),
        "the CustomResourceDefinition in this cluster is older than the operator and drops " +
            join(notes.dropped, ", ") +
            "; bring it up to date: kubectl apply --server-side --force-conflicts -f deploy/chart/crds");
  }
  if (fields.empty())
    drop_condition(object, "FieldsIgnored");
  else
    kube::set_condition(object, "FieldsIgnored", "True",
                        notes.dropped.empty() ? "UnknownOrDeprecatedFields" : "StaleDefinition",
                        condition_text(fields), now);
  if (notes.advice.empty())
    drop_condition(object, "Advice");
  else
    kube::set_condition(object, "Advice", "True", "SettingsToReview", condition_text(notes.advice), now);
  if (notes.incompatible)
    kube::set_condition(object, "Compatible", notes.incompatible->empty() ? "True" : "False", "VersionMatrix",
                        condition_text(*notes.incompatible), now);
}

}  // namespace

Json status_of(const Json& policy, const Outcome& outcome, const StatusNotes& notes, std::string_view ns,
               Time now) {
  Json object = JsonObject{};
  if (const Json* status = find(policy, {"status"})) set(object, {"status"}, *status);
  const std::string text = format_time(now);
  set(object, {"status", "state"}, outcome.state);
  set(object, {"status", "namespace"}, ns);
  set(object, {"status", "observedGeneration"}, get_int(policy, {"metadata", "generation"}));
  if (outcome.ready) {
    kube::set_condition(object, "Ready", "True", outcome.reason, outcome.message, text);
    kube::set_condition(object, "Error", "False", "Ready", "", text);
  } else if (outcome.reason == "Ignored" || outcome.reason == "Reconciling") {
    kube::set_condition(object, "Ready", "False", outcome.reason, outcome.message, text);
    kube::set_condition(object, "Error", "False", outcome.reason, "", text);
  } else {
    kube::set_condition(object, "Ready", "False", "Error", "", text);
    kube::set_condition(object, "Error", "True", outcome.reason, outcome.message, text);
  }
  add_notes(object, notes, text);
  return *find(object, {"status"});
}

bool same_status(const Json& a, const Json& b) {
  // Upstream's CRD has no observedGeneration, and prunes ours: a status without it says nothing about it.
  const bool generations = has(a, {"observedGeneration"}) && has(b, {"observedGeneration"});
  const auto bare = [generations](Json status) {
    if (!generations) remove(status, {"observedGeneration"});
    if (Json* conditions = find_mutable(status, {"conditions"}); conditions && conditions->is_array()) {
      for (auto& condition : conditions->get_array()) remove(condition, {"lastTransitionTime"});
    }
    return to_canonical_text(status);
  };
  return bare(a) == bare(b);
}

std::string active_policy(const std::vector<std::shared_ptr<const Json>>& policies) {
  std::pair<std::string_view, std::string_view> best;
  bool any = false;
  for (const auto& policy : policies) {
    // RFC 3339 in UTC compares as text.
    const std::pair<std::string_view, std::string_view> key{
        get_string(*policy, {"metadata", "creationTimestamp"}), kube::name_of(*policy)};
    if (!any || key < best) best = key;
    any = true;
  }
  return std::string(best.second);
}

}  // namespace gpuop::op
