#include "operator/taints.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kEffect = "NoSchedule";

bool is_taint(const Json& taint, std::string_view key) {
  return get_string(taint, {"key"}) == key && get_string(taint, {"effect"}) == kEffect;
}

// KEY, or KEY=VALUE.
std::string name_of(std::string_view key, std::string_view value) {
  return std::string(key) + (value.empty() ? "" : "=" + std::string(value));
}

class NodeTaints {
 public:
  explicit NodeTaints(const Json& node)
      : taints_(get_array(node, {"spec", "taints"})),
        boot_(get_string(node, {"status", "nodeInfo", "bootID"})),
        validated_(kube::annotation(node, kValidatedAnnotation)) {
    for (std::string& taint : split(kube::annotation(node, kTaintsAnnotation), ',')) {
      if (!taint.empty()) own_.insert(std::move(taint));
    }
    before_ = joined(own_);
  }

  std::set<std::string> owned() const { return own_; }
  bool validated_this_boot() const {
    return !validated_.empty() && validated_ == (boot_.empty() ? "-" : boot_);
  }

  void put(const std::string& key) {
    if (find_taint(key)) return;
    taints_.push_back(JsonObject{{"key", key}, {"effect", kEffect}});
    own_.insert(key);
    changed_ = true;
  }
  // One that the node has is taken off it once it is validated.
  void put_until_validated(const std::string& key) {
    put(key);
    const std::string_view value = get_string(*find_taint(key), {"value"});
    if (!value.empty()) own_.insert(name_of(key, value));
  }
  // Of one that somebody else made nothing but our word on it goes.
  void take(const std::string& owned) {
    own_.erase(owned);
    const Json* taint = find_taint(owned);
    if (taint && get_string(*taint, {"value"}).empty()) erase(*taint);
  }
  void take_validated(const std::string& key) {
    const Json* taint = find_taint(key);
    const std::string name = taint ? name_of(key, get_string(*taint, {"value"})) : key;
    if (taint && (name == key || own_.contains(name))) erase(*taint);
    own_.erase(key);
    own_.erase(name);
  }
  void set_validated(bool yes) { validated_now_ = yes ? (boot_.empty() ? "-" : boot_) : ""; }

  TaintChange change() const {
    TaintChange out;
    if (changed_) out.taints = taints_;
    const std::string own = joined(own_);
    if (own != before_) out.annotations[std::string(kTaintsAnnotation)] = absent_if_empty(own);
    if (validated_now_ && *validated_now_ != validated_)
      out.annotations[std::string(kValidatedAnnotation)] = absent_if_empty(*validated_now_);
    return out;
  }

 private:
  static std::string joined(const std::set<std::string>& own) {
    const std::vector<std::string> list(own.begin(), own.end());
    return join(list, ",");
  }
  // A node has no two taints of one key and effect.
  const Json* find_taint(std::string_view key) const {
    const auto found = std::ranges::find_if(taints_, [&](const Json& taint) { return is_taint(taint, key); });
    return found == taints_.end() ? nullptr : &*found;
  }
  void erase(const Json& taint) {
    taints_.erase(taints_.begin() + (&taint - taints_.data()));
    changed_ = true;
  }
  static std::optional<std::string> absent_if_empty(const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  }

  JsonArray taints_;
  std::string boot_;
  std::string validated_;  // as the node says it
  std::optional<std::string> validated_now_;
  std::set<std::string> own_;
  std::string before_;
  bool changed_ = false;
};

}  // namespace

TaintRules taint_rules(const policy::ClusterPolicySpec& spec) {
  TaintRules rules;
  if (spec.fleet.startup_taint.enabled) rules.startup = spec.fleet.startup_taint.key;
  if (spec.fleet.dedicated_taint.enabled) rules.dedicated = spec.fleet.dedicated_taint.key;
  return rules;
}

JsonArray own_taints(const TaintRules& rules) {
  JsonArray out;
  for (const std::string* key : {&rules.startup, &rules.dedicated}) {
    if (!key->empty()) out.push_back(JsonObject{{"key", *key}, {"effect", kEffect}});
  }
  return out;
}

void tolerate(Json& pod_spec, const JsonArray& taints) {
  for (const Json& taint : taints) {
    if (kube::tolerates(taint, get_array(pod_spec, {"tolerations"}))) continue;
    JsonArray tolerations = get_array(pod_spec, {"tolerations"});
    tolerations.push_back(
        JsonObject{{"key", get_string(taint, {"key"})}, {"operator", "Exists"}, {"effect", kEffect}});
    set(pod_spec, {"tolerations"}, std::move(tolerations));
  }
}

TaintChange decide_taints(const Json& node, const TaintRules& rules, bool gpu, bool served, bool validated) {
  NodeTaints now(node);
  const bool starts = gpu && served && !rules.startup.empty() && !validated && !now.validated_this_boot();
  const bool dedicated = gpu && !rules.dedicated.empty();
  // Also one that the node was registered with, for which the policy names it; and before what else is ours
  // goes, which would forget whose it is.
  if (!starts && gpu && !rules.startup.empty() && !(dedicated && rules.startup == rules.dedicated))
    now.take_validated(rules.startup);
  for (const auto& taint : now.owned()) {
    const std::string key = taint.substr(0, taint.find('='));
    if (!(starts && key == rules.startup) && !(dedicated && taint == rules.dedicated)) now.take(taint);
  }
  if (starts) now.put_until_validated(rules.startup);
  if (dedicated) now.put(rules.dedicated);
  if (!gpu || rules.startup.empty())
    now.set_validated(false);
  else if (validated)
    now.set_validated(true);
  return now.change();
}

TaintChange take_taints(const Json& node) {
  return decide_taints(node, {}, false, false, false);
}

void add_taints(Json& patch, const TaintChange& change, const Json& node) {
  for (const auto& [key, value] : change.annotations)
    set(patch, {"metadata", "annotations", key}, value ? Json(*value) : Json(nullptr));
  if (!change.taints) return;
  set(patch, {"spec", "taints"}, change.taints->empty() ? Json(nullptr) : Json(*change.taints));
  set(patch, {"metadata", "resourceVersion"}, get_string(node, {"metadata", "resourceVersion"}));
}

}  // namespace gpuop::op
