// Nodes that fall silent, taints that follow their conditions, and the pods of nodes that are gone
// (kubernetes-api.md §14.3, §14.4).
#include <algorithm>
#include <set>

#include "base/log.h"
#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kNotReady = "node.kubernetes.io/not-ready";
constexpr const char* kUnreachable = "node.kubernetes.io/unreachable";
constexpr const char* kUnschedulable = "node.kubernetes.io/unschedulable";
constexpr std::string_view kKubeletConditions[] = {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"};
constexpr std::pair<const char*, const char*> kPressure[] = {
    {"MemoryPressure", "node.kubernetes.io/memory-pressure"},
    {"DiskPressure", "node.kubernetes.io/disk-pressure"},
    {"PIDPressure", "node.kubernetes.io/pid-pressure"},
    {"NetworkUnavailable", "node.kubernetes.io/network-unavailable"}};

std::string_view status_of(const Json& node, std::string_view type) {
  const Json* found = kube::condition(node, type);
  return found == nullptr ? std::string_view() : get_string(*found, {"status"});
}

// The taints that a node should have: those of others as they are, ours as its conditions say. Pure.
JsonArray wanted_taints(const Json& node, const std::string& now) {
  std::set<std::pair<std::string, std::string>> ours;
  const std::string_view ready = status_of(node, "Ready");
  if (ready == "Unknown") {
    ours.emplace(kUnreachable, "NoSchedule");
    ours.emplace(kUnreachable, "NoExecute");
  } else if (ready != "True") {
    ours.emplace(kNotReady, "NoSchedule");
    // A node that has never reported is not emptied.
    if (!ready.empty()) ours.emplace(kNotReady, "NoExecute");
  }
  for (const auto& [condition, taint] : kPressure) {
    if (status_of(node, condition) == "True") ours.emplace(taint, "NoSchedule");
  }
  if (get_bool(node, {"spec", "unschedulable"})) ours.emplace(kUnschedulable, "NoSchedule");
  const std::set<std::string_view> managed = {kNotReady,           kUnreachable,        kUnschedulable,
                                              kPressure[0].second, kPressure[1].second, kPressure[2].second,
                                              kPressure[3].second};
  JsonArray out;
  for (const Json& taint : get_array(node, {"spec", "taints"})) {
    const std::pair key{str(get_string(taint, {"key"})), str(get_string(taint, {"effect"}))};
    if (!managed.contains(key.first) || ours.erase(key) > 0) out.push_back(taint);
  }
  for (const auto& [key, effect] : ours) {
    JsonObject taint{{"key", key}, {"effect", effect}};
    if (effect == "NoExecute") taint["timeAdded"] = now;
    out.push_back(std::move(taint));
  }
  return out;
}

// How long a pod may stay on a node with these taints; nullopt: as long as it likes.
std::optional<Duration> may_stay(const Json& node, const Json& pod, Time now) {
  const JsonArray& tolerations = get_array(pod, {"spec", "tolerations"});
  std::optional<Duration> least;
  for (const Json& taint : get_array(node, {"spec", "taints"})) {
    if (get_string(taint, {"effect"}) != "NoExecute") continue;
    std::optional<std::int64_t> seconds;
    bool tolerated = false, forever = false;
    for (const Json& toleration : tolerations) {
      if (!kube::tolerates(taint, JsonArray{toleration})) continue;
      tolerated = true;
      if (!has(toleration, {"tolerationSeconds"})) {
        forever = true;
      } else {
        const auto own = std::max<std::int64_t>(0, get_int(toleration, {"tolerationSeconds"}));
        seconds = seconds ? std::min(*seconds, own) : own;
      }
    }
    if (forever && !seconds) continue;
    const auto added = parse_time(get_string(taint, {"timeAdded"}));
    const Duration left = tolerated ? (added ? *added : now) + std::chrono::seconds(seconds.value_or(0)) - now
                                    : Duration::zero();
    least = least ? std::min(*least, left) : left;
  }
  return least;
}

class NodeController final : public Controller {
 public:
  explicit NodeController(Context& context)
      : context_(context),
        recorder_(context.client, "node-controller"),
        queue_(context.loop,
               [this](const std::string& name, auto finished) { sync(name, std::move(finished)); },
               {.base_delay = 100ms, .max_delay = 30s, .workers = 16}),
        pod_queue_(context.loop,
                   [this](const std::string& key, auto finished) { sync_pod(key, std::move(finished)); },
                   {.base_delay = 100ms, .max_delay = 30s, .workers = 16}) {}

  void start() override {
    context_.nodes.on_change([this](const Object& old, const Object& now) { node_changed(old, now); });
    context_.leases.on_change([this](const Object&, const Object& now) {
      if (now) heard_from(str(kube::name_of(*now)));
    });
    context_.pods.on_change([this](const Object& old, const Object& now) { pod_changed(old, now); });
  }

 private:
  void node_changed(const Object& old, const Object& now) {
    const std::string name = str(kube::name_of(now ? *now : *old));
    if (!now) {
      silence_.erase(name);
      for (const Object& pod : context_.pods.by_index("node", name)) pod_queue_.add(kube::object_key(*pod));
      return;
    }
    const Json* before = old ? find(*old, {"status", "conditions"}) : nullptr;
    const Json* after = find(*now, {"status", "conditions"});
    const bool reported = before == nullptr || after == nullptr || *before != *after;
    // Our own verdict is no sign of life.
    if (!old || (reported && status_of(*now, "Ready") != "Unknown")) heard_from(name);
    queue_.add(name);
    const Json* taints_before = old ? find(*old, {"spec", "taints"}) : nullptr;
    const Json* taints_after = find(*now, {"spec", "taints"});
    const bool same = taints_before == taints_after || (taints_before != nullptr && taints_after != nullptr &&
                                                        *taints_before == *taints_after);
    if (!same || !old) {
      for (const Object& pod : context_.pods.by_index("node", name)) pod_queue_.add(kube::object_key(*pod));
    }
  }

  void pod_changed(const Object& old, const Object& now) {
    if (!now) return;
    const std::string_view node = get_string(*now, {"spec", "nodeName"});
    if (node.empty() || (old && get_string(*old, {"spec", "nodeName"}) == node)) return;
    const Object object = context_.nodes.get(node);
    const bool calm = object && get_array(*object, {"spec", "taints"}).empty();
    if (!calm) pod_queue_.add(kube::object_key(*now));
  }

  void heard_from(const std::string& name) {
    silent_.erase(name);
    silence_[name] = context_.loop.after(context_.options.node_grace, [this, name] {
      silent_.insert(name);
      queue_.add(name);
    });
  }

  void sync(const std::string& name, std::function<void(bool)> finished) {
    const Object node = context_.nodes.get(name);
    if (!node || is_terminating(*node)) return finished(true);
    if (silent_.contains(name) && status_of(*node, "Ready") != "Unknown")
      return mark_unknown(node, std::move(finished));
    const std::string now = format_time(context_.loop.now());
    const JsonArray taints = wanted_taints(*node, now);
    if (taints == get_array(*node, {"spec", "taints"})) return finished(true);
    // Lists are written whole, so only upon the state that was read.
    JsonObject metadata{{"resourceVersion", str(get_string(*node, {"metadata", "resourceVersion"}))}};
    JsonObject patch;
    patch["metadata"] = std::move(metadata);
    patch["spec"] = JsonObject{{"taints", taints.empty() ? Json() : Json(taints)}};
    context_.client
        .patch(kube::kNodes, "", name, kube::Patch::kMerge, patch, {},
               [finished = std::move(finished)](kube::ApiResult<> result) {
                 finished(result || result.error().not_found());
               })
        .detach();
  }

  void mark_unknown(const Object& node, std::function<void(bool)> finished) {
    const std::string name = str(kube::name_of(*node));
    const std::string now = format_time(context_.loop.now());
    JsonArray conditions;
    for (const std::string_view type : kKubeletConditions) {
      JsonObject condition{{"status", "Unknown"},
                           {"reason", "NodeStatusUnknown"},
                           {"message", "Kubelet stopped posting node status."},
                           {"lastTransitionTime", now}};
      condition["type"] = type;
      const Json* old = kube::condition(*node, type);
      condition["lastHeartbeatTime"] =
          old == nullptr ? now : str(get_string(*old, {"lastHeartbeatTime"}, now));
      conditions.push_back(std::move(condition));
    }
    JsonObject patch{{"status", JsonObject{{"conditions", std::move(conditions)}}}};
    log::info("node is silent", {{"node", name}});
    recorder_.event(*node, "Normal", "NodeNotReady", "Node " + name + " status is now: NodeNotReady");
    context_.client
        .patch(kube::kNodes, "", name, kube::Patch::kStrategic, patch, {.subresource = "status"},
               [this, alive = std::weak_ptr(alive_), name,
                finished = std::move(finished)](kube::ApiResult<> result) {
                 if (alive.expired()) return;
                 if (result) mark_pods_not_ready(name);
                 finished(result || result.error().not_found());
               })
        .detach();
  }

  // Nobody speaks for these pods any more, so they do not count as ready.
  void mark_pods_not_ready(const std::string& node) {
    const std::string now = format_time(context_.loop.now());
    for (const Object& pod : context_.pods.by_index("node", node)) {
      if (!is_ready(*pod)) continue;
      JsonObject condition{
          {"type", "Ready"}, {"status", "False"}, {"lastTransitionTime", now}, {"reason", "NodeNotReady"}};
      JsonObject patch{{"status", JsonObject{{"conditions", JsonArray{Json(std::move(condition))}}}}};
      context_.client
          .patch(kube::kPods, kube::namespace_of(*pod), kube::name_of(*pod), kube::Patch::kStrategic, patch,
                 {.subresource = "status"}, [](kube::ApiResult<>) {})
          .detach();
    }
  }

  void sync_pod(const std::string& key, std::function<void(bool)> finished) {
    const Object pod = context_.pods.get(key);
    const std::string node_name = pod ? str(get_string(*pod, {"spec", "nodeName"})) : "";
    if (node_name.empty()) return finished(true);
    const Object node = context_.nodes.get(node_name);
    const std::string uid = str(kube::uid_of(*pod));
    if (!node) {
      const auto [entry, fresh] = orphaned_.try_emplace(uid, context_.loop.elapsed());
      const Duration left = entry->second + context_.options.orphaned_pod_delay - context_.loop.elapsed();
      if (left > Duration::zero()) {
        pod_queue_.add_after(key, left);
        return finished(true);
      }
      orphaned_.erase(entry);
      // No kubelet is left to end it.
      return remove_pod(*pod, 0, std::move(finished));
    }
    orphaned_.erase(uid);
    if (is_terminating(*pod)) return finished(true);
    const auto left = may_stay(*node, *pod, context_.loop.now());
    if (!left) return finished(true);
    if (*left > Duration::zero()) {
      pod_queue_.add_after(key, *left);
      return finished(true);
    }
    recorder_.event(*pod, "Normal", "TaintManagerEviction", "Marking for deletion Pod " + key);
    remove_pod(*pod, std::nullopt, std::move(finished));
  }

  void remove_pod(const Json& pod, std::optional<int> grace, std::function<void(bool)> finished) {
    context_.client
        .remove(kube::kPods, kube::namespace_of(pod), kube::name_of(pod),
                {.grace_seconds = grace, .precondition_uid = str(kube::uid_of(pod))},
                [finished = std::move(finished)](kube::ApiResult<> result) {
                  finished(result || result.error().not_found());
                })
        .detach();
  }

  Context& context_;
  kube::EventRecorder recorder_;
  std::map<std::string, Handle> silence_;  // by node: when its grace ends
  std::set<std::string> silent_;
  std::map<std::string, Duration> orphaned_;  // pod uid -> since when its node is gone
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  kube::WorkQueue queue_;
  kube::WorkQueue pod_queue_;
};

}  // namespace

std::unique_ptr<Controller> make_node_controller(Context& context) {
  return std::make_unique<NodeController>(context);
}

}  // namespace gpuop::cluster
