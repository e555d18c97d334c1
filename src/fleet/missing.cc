#include "fleet/missing.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"
#include "fleet/kubectl.h"
#include "fleet/refusals.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kDriver = "nvidia-driver-daemonset";

const Json& template_of(const Json& set) {
  static const Json kNone = JsonObject{};
  const Json* found = find(set, {"spec", "template"});
  return found ? *found : kNone;
}

const Json& pod_spec_of(const Json& set) {
  static const Json kNone = JsonObject{};
  const Json* found = find(template_of(set), {"spec"});
  return found ? *found : kNone;
}

bool makes_pods_of(const Json& set, std::string_view app) {
  const Json& pod = template_of(set);
  return kube::label(pod, "app") == app ||
         (app == kDriver && kube::label(pod, "app.kubernetes.io/component") == "nvidia-driver");
}

// Those that a DaemonSet controller tolerates for every pod of a DaemonSet; the last only with the host's
// network.
bool tolerated_by_itself(const Json& taint, const Json& pod_spec) {
  static constexpr std::array<std::string_view, 6> kKeys = {
      "node.kubernetes.io/not-ready",     "node.kubernetes.io/unreachable",
      "node.kubernetes.io/disk-pressure", "node.kubernetes.io/memory-pressure",
      "node.kubernetes.io/pid-pressure",  "node.kubernetes.io/unschedulable"};
  const auto key = get_string(taint, {"key"});
  return std::ranges::find(kKeys, key) != kKeys.end() ||
         (key == "node.kubernetes.io/network-unavailable" && get_bool(pod_spec, {"hostNetwork"}));
}

std::string text_of(const Json& taint) {
  const std::string value(get_string(taint, {"value"}));
  return std::string(get_string(taint, {"key"})) + (value.empty() ? "" : "=" + value) + ":" +
         std::string(get_string(taint, {"effect"}));
}

// As it is written in a policy: "{key: a, operator: Equal, value: b, effect: NoSchedule}".
std::string toleration_of(const Json& taint) {
  const std::string value(get_string(taint, {"value"}));
  return "{key: " + std::string(get_string(taint, {"key"})) +
         (value.empty() ? ", operator: Exists" : ", operator: Equal, value: \"" + value + "\"") +
         ", effect: " + std::string(get_string(taint, {"effect"})) + "}";
}

// The driver's DaemonSet, whose running pods stay as they are when the policy's tolerations change; "" when
// there is none with pods.
std::string stays_as_it_is(const Objects& daemonsets) {
  for (const auto& set : daemonsets) {
    const Json* owner = kube::controller_of(*set);
    if (owner && get_string(*owner, {"kind"}) == "ClusterPolicy" &&
        get_string(*set, {"spec", "updateStrategy", "type"}) == "OnDelete" &&
        get_int(*set, {"status", "currentNumberScheduled"}) > 0)
      return std::string(kube::name_of(*set));
  }
  return {};
}

std::string cure_of_taint(const Json& node, const Objects& daemonsets, const Json& set, const Json& taint) {
  const std::string off = "take the taint off: kubectl taint node " + std::string(kube::name_of(node)) + " " +
                          text_of(taint) + "-";
  const std::string add = "add " + toleration_of(taint) + " to ";
  const Json* owner = kube::controller_of(set);
  if (owner && get_string(*owner, {"kind"}) == "NVIDIADriver")
    return add + "tolerations of NVIDIADriver " + std::string(get_string(*owner, {"name"})) + ", or " + off;
  const std::string list = add +
                           "daemonsets.tolerations of the policy (that list replaces the default: keep {key: "
                           "nvidia.com/gpu, operator: Exists, effect: NoSchedule} in it)";
  const std::string stays = stays_as_it_is(daemonsets);
  if (stays.empty()) return list + ", or " + off;
  return off + ", or " + list + ", which changes DaemonSet " + stays +
         " too: its pods are replaced only when they are deleted (OnDelete), and the policy is notReady "
         "until "
         "they are; on each of its nodes end the pods that use GPUs, then delete the driver's pod";
}

Missing by_taint(const Json& node, const Objects& daemonsets, const Json& set, const Json& taint) {
  std::vector<std::string> names{std::string(kube::name_of(set))};
  for (const auto& other : daemonsets) {
    if (kube::name_of(*other) == kube::name_of(set) || !kube::controller_of(*other)) continue;
    const Json& spec = pod_spec_of(*other);
    if (kube::node_matches(node, spec) && !kube::tolerates(taint, get_array(spec, {"tolerations"})))
      names.emplace_back(kube::name_of(*other));
  }
  Missing out;
  out.certain = out.kept_off = true;
  out.detail = "taint " + text_of(taint) + " of the node is not tolerated by DaemonSet" +
               (names.size() > 1 ? "s " : " ") + first_few(names);
  out.cure = cure_of_taint(node, daemonsets, set, taint);
  return out;
}

Missing by_selector(const Json& node, const Json& set, bool kept_off) {
  const std::string name(kube::name_of(set));
  std::string why = "its affinity excludes it";
  for (const auto& [key, value] : get_object(pod_spec_of(set), {"nodeSelector"})) {
    const auto have = kube::label(node, key);
    if (have == as_text(value)) continue;
    why = "its nodeSelector asks for the label " + std::string(key) + "=" + std::string(as_text(value)) +
          (have.empty() ? ", which the node has not" : ", and the node has " + std::string(have));
    break;
  }
  return {"DaemonSet " + name + " is not for this node: " + why,
          "label the node so, or take what was added off the DaemonSet: " + kubectl(set, "edit daemonset"),
          true, kept_off};
}

// The controller does not count a pod that it could not make.
bool lacks_pods(const Json& set) {
  const auto wanted = get_int(set, {"status", "desiredNumberScheduled"});
  return wanted == 0 || get_int(set, {"status", "currentNumberScheduled"}) < wanted;
}

Missing by_refusal(const Json& set, const std::string& why) {
  Missing out;
  out.certain = out.refused = true;
  out.detail = "DaemonSet " + std::string(kube::name_of(set)) + " cannot make its pod: " + why;
  const std::string cure = cure_of_refusal(why);
  out.cure = cure.empty() ? "see what refuses it: " + kubectl(set, "describe daemonset") : cure.substr(2);
  return out;
}

}  // namespace

std::string_view target_node(const Json& pod) {
  if (const auto name = get_string(pod, {"spec", "nodeName"}); !name.empty()) return name;
  for (const Json& term :
       get_array(pod, {"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
                       "nodeSelectorTerms"}))
    for (const Json& field : get_array(term, {"matchFields"}))
      if (const auto& values = get_array(field, {"values"});
          get_string(field, {"key"}) == "metadata.name" && values.size() == 1)
        return as_text(values[0]);
  return {};
}

const Json* taint_keeping_off(const Json& node, const Json& pod_spec) {
  for (const Json& taint : get_array(node, {"spec", "taints"})) {
    const auto effect = get_string(taint, {"effect"});
    if ((effect == "NoSchedule" || effect == "NoExecute") && !tolerated_by_itself(taint, pod_spec) &&
        !kube::tolerates(taint, get_array(pod_spec, {"tolerations"})))
      return &taint;
  }
  return nullptr;
}

bool wanted_on(const Json& node, const Json& set) {
  const Json& spec = pod_spec_of(set);
  const Json* owner = kube::controller_of(set);
  bool any = false;
  for (const auto& [key, value] : get_object(spec, {"nodeSelector"})) {
    if (!key.starts_with("nvidia.com/") && !key.starts_with("feature.node.kubernetes.io/")) continue;
    if (kube::label(node, key) != as_text(value)) return false;
    any = true;
  }
  return any && owner && get_string(*owner, {"kind"}) == "ClusterPolicy" ? true
                                                                         : kube::node_matches(node, spec);
}

Missing why_no_pod(const Json& node, const ChainFacts& facts, const Json& set) {
  if (!kube::node_matches(node, pod_spec_of(set))) return by_selector(node, set, true);
  if (const Json* taint = taint_keeping_off(node, pod_spec_of(set)))
    return by_taint(node, facts.daemonsets, set, *taint);
  const auto refused = facts.refused.find(std::string(kube::name_of(set)));
  if (refused != facts.refused.end() && lacks_pods(set)) return by_refusal(set, refused->second);
  return {"pod of " + std::string(kube::name_of(set)) + " is not there yet",
          "see why its DaemonSet makes none: " + kubectl(set, "describe daemonset")};
}

Missing why_missing(const Json& node, const ChainFacts& facts, std::string_view app, std::string_view ns) {
  const Objects& daemonsets = facts.daemonsets;
  const std::string name(app);
  Missing out{"pod of " + name + " is not there yet",
              "see why its DaemonSet makes none: " + kubectl(ns, "describe daemonset", name), false};
  const Json* any = nullptr;
  const Json* fits = nullptr;
  for (const auto& set : daemonsets) {
    if (!makes_pods_of(*set, app)) continue;
    any = set.get();
    if (!fits && kube::node_matches(node, pod_spec_of(*set))) fits = set.get();
  }
  if (fits) {
    Missing why = why_no_pod(node, facts, *fits);
    if (!why.certain) why.detail = std::move(out.detail);
    return why;
  }
  if (any) return by_selector(node, *any, app != kDriver);
  if (!daemonsets.empty()) {
    out.detail = "there is no DaemonSet of " + name + " yet";
    out.cure = "read the conditions of the policy: kubectl describe clusterpolicy";
  }
  return out;
}

std::string undiscovered(const Json& node, const Objects& daemonsets) {
  for (const auto& label : get_object(node, {"metadata", "labels"})) {
    if (std::string_view(label.key()).starts_with("feature.node.kubernetes.io/")) return {};
  }
  for (const auto& set : daemonsets) {
    const Json& pod = template_of(*set);
    if (kube::label(pod, "role") != "worker" ||
        kube::label(pod, "app.kubernetes.io/name") != "node-feature-discovery" ||
        !kube::node_matches(node, pod_spec_of(*set)))
      continue;
    if (const Json* taint = taint_keeping_off(node, pod_spec_of(*set)))
      return "whether it has GPUs is not known: taint " + text_of(*taint) +
             " is not tolerated by feature discovery's DaemonSet " + std::string(kube::name_of(*set)) +
             "; add " + toleration_of(*taint) +
             " to the value node-feature-discovery.worker.tolerations if it has";
  }
  return {};
}

}  // namespace gpuop::fleet
