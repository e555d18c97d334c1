#include "operator/refused_pods.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "fleet/refusals.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {

// A node that is on its way is given as long (node_health.cc).
constexpr Duration kPatience = 5s;

kube::InformerOptions refusals(const std::string& ns) {
  kube::InformerOptions options;
  options.ns = ns;
  options.field_selector = fleet::kRefusedPods;
  options.keep = fleet::event_fields();
  return options;
}

// Fewer pods are there than its controller wants.
bool lacks(const Json& set) {
  return get_int(set, {"status", "currentNumberScheduled"}) <
         get_int(set, {"status", "desiredNumberScheduled"});
}

}  // namespace

RefusedPods::RefusedPods(kube::Client& client, const std::string& ns,
                         std::function<void(const std::string& daemonset)> changed)
    : events_(client, kube::kEvents, refusals(ns)), loop_(client.loop()), changed_(std::move(changed)) {
  events_.on_change([this](const auto&, const auto&) { look(); });
}

void RefusedPods::seen(const Json& daemonset, bool gone) {
  if (watching_) return;
  const std::string name(kube::name_of(daemonset));
  if (gone || !lacks(daemonset)) {
    lacking_.erase(name);
  } else if (lacking_.insert(name).second && lacking_.size() == 1) {
    patience_ = loop_.after(kPatience, [this] {
      watching_ = !lacking_.empty();
      if (watching_) events_.start();
    });
  }
}

void RefusedPods::look() {
  fleet::Objects events;
  events_.for_each([&events](const auto& event) { events.push_back(event); });
  const auto before = std::exchange(why_, fleet::refused_pods(events));
  for (const auto& [name, why] : why_) {
    const auto known = before.find(name);
    if (known == before.end() || known->second != why) changed_(name);
  }
  for (const auto& [name, why] : before)
    if (!why_.contains(name)) changed_(name);
}

bool moves_pods(const Json& old, const Json& now) {
  const auto same = [&](std::string_view field) {
    const Json* left = find(old, {"spec", "template", "spec", field});
    const Json* right = find(now, {"spec", "template", "spec", field});
    return left && right ? *left == *right : left == right;
  };
  return lacks(old) != lacks(now) ||
         !std::ranges::all_of(std::initializer_list<std::string_view>{"nodeSelector", "affinity",
                                                                      "tolerations", "hostNetwork"},
                              same);
}

}  // namespace gpuop::op
