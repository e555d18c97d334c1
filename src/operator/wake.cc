#include "operator/wake.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"

namespace gpuop::op {

std::string configured_runtime(const Json& pod) {
  if (kube::label(pod, kTellsRuntime) != "true") return "";
  const JsonArray& containers = get_array(pod, {"status", "containerStatuses"});
  if (containers.empty() || !get_bool(containers[0], {"ready"})) return "";
  return str(get_string(pod, {"metadata", "uid"})) + "/" +
         std::to_string(get_int(containers[0], {"restartCount"}));
}

bool waits_for_runtime(const Json& pod) {
  if (get_string(pod, {"status", "phase"}) != "Pending" || get_string(pod, {"spec", "nodeName"}).empty() ||
      get_string(pod, {"spec", "runtimeClassName"}).empty() || has(pod, {"metadata", "deletionTimestamp"}))
    return false;
  // Old kubelets do not tell whether there is a sandbox; a pod that has one is woken in vain.
  const Json* sandbox = kube::condition(pod, "PodReadyToStartContainers");
  return sandbox == nullptr || get_string(*sandbox, {"status"}) != "True";
}

Waker::Waker(Loop& loop, kube::Client& client, std::string ns)
    : client_(client),
      ns_(std::move(ns)),
      writes_(loop,
              [this](const std::string& pod, std::function<void(bool)> done) { write(pod, std::move(done)); },
              {.base_delay = 100ms, .max_delay = 30s, .workers = 8}) {}

void Waker::changed(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now) {
  const Json& pod = now ? *now : *old;
  const std::string node_name(get_string(pod, {"spec", "nodeName"}));
  if (node_name.empty()) return;
  const std::string name(kube::name_of(pod));
  Node& node = nodes_[node_name];
  if (now && waits_for_runtime(pod)) {
    node.waiting.insert(name);
  } else {
    node.waiting.erase(name);
    to_wake_.erase(name);
  }
  if (now && !kube::label(pod, kWoken).empty()) {
    woken_.insert(name);
    if (leading_) writes_.add(name);
  } else {
    woken_.erase(name);
  }
  if (kube::label(pod, kTellsRuntime) == "true") {
    if (now)
      toolkits_[std::string(kube::uid_of(pod))] = node_name;
    else
      toolkits_.erase(std::string(kube::uid_of(pod)));
    const std::string before = std::exchange(node.toolkit, now ? configured_runtime(pod) : "");
    if (!node.toolkit.empty() && node.toolkit != before) wake(node);
  }
  if (node.toolkit.empty() && node.waiting.empty()) nodes_.erase(node_name);
}

void Waker::told(const Json& event) {
  const auto toolkit = toolkits_.find(std::string(get_string(event, {"involvedObject", "uid"})));
  if (toolkit == toolkits_.end()) return;
  if (const auto node = nodes_.find(toolkit->second); node != nodes_.end()) wake(node->second);
}

void Waker::lead() {
  if (std::exchange(leading_, true)) return;
  for (const std::string& pod : woken_) writes_.add(pod);
  for (const auto& [name, node] : nodes_)
    if (!node.toolkit.empty()) wake(node);
}

void Waker::wake(const Node& node) {
  if (!leading_) return;
  for (const std::string& pod : node.waiting) {
    to_wake_.insert(pod);
    writes_.add(pod);
  }
}

void Waker::write(const std::string& pod, std::function<void(bool)> done) {
  const bool set = to_wake_.contains(pod);
  if (!set && !woken_.contains(pod)) return done(true);
  const Json value = set ? Json("true") : Json(nullptr);
  const Json patch{{"metadata", JsonObject{{"labels", JsonObject{{kWoken, value}}}}}};
  client_
      .patch(kube::kPods, ns_, pod, kube::Patch::kMerge, patch, {},
             [this, pod, set, done = std::move(done)](const kube::ApiResult<>& result) {
               if (result && set) to_wake_.erase(pod);
               if (!result && !result.error().not_found())
                 log::warn("a pod that waits for the runtime was not woken",
                           {{"pod", pod}, {"error", result.error().message}});
               done(result || result.error().not_found());
             })
      .detach();
}

}  // namespace gpuop::op
