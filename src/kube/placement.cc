// Whether a pod may sit on a node: selectors, required affinity, taints.
#include <algorithm>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::kube {
namespace {

bool contains(const JsonArray& values, std::string_view text) {
  return std::ranges::any_of(values, [&](const Json& value) { return as_text(value) == text; });
}

// One requirement of a node selector term against the value it speaks of (null: absent).
bool requirement_holds(const Json& requirement, const std::string_view* value) {
  const std::string_view op = get_string(requirement, {"operator"});
  const JsonArray& values = get_array(requirement, {"values"});
  if (op == "In") return value != nullptr && contains(values, *value);
  if (op == "NotIn") return value == nullptr || !contains(values, *value);
  if (op == "Exists") return value != nullptr;
  if (op == "DoesNotExist") return value == nullptr;
  if (op == "Gt" || op == "Lt") {
    if (value == nullptr || values.size() != 1) return false;
    const auto have = parse_int(*value);
    const auto limit = parse_int(as_text(values[0]));
    if (!have || !limit) return false;
    return op == "Gt" ? *have > *limit : *have < *limit;
  }
  return false;
}

bool term_matches(const Json& node, const Json& term) {
  const JsonArray& expressions = get_array(term, {"matchExpressions"});
  const JsonArray& fields = get_array(term, {"matchFields"});
  if (expressions.empty() && fields.empty()) return false;  // an empty term selects no node
  const JsonObject& labels = get_object(node, {"metadata", "labels"});
  for (const Json& requirement : expressions) {
    const Json* found = find(labels, get_string(requirement, {"key"}));
    const std::string_view value = found == nullptr ? std::string_view() : as_text(*found);
    if (!requirement_holds(requirement, found == nullptr ? nullptr : &value)) return false;
  }
  for (const Json& requirement : fields) {
    if (get_string(requirement, {"key"}) != "metadata.name") return false;
    const std::string_view name = name_of(node);
    if (!requirement_holds(requirement, &name)) return false;
  }
  return true;
}

}  // namespace

bool node_selector_matches(const Json& node, const Json& selector) {
  const JsonArray& terms = get_array(selector, {"nodeSelectorTerms"});
  return std::ranges::any_of(terms, [&](const Json& term) { return term_matches(node, term); });
}

bool node_matches(const Json& node, const Json& pod_spec) {
  const JsonObject& labels = get_object(node, {"metadata", "labels"});
  for (const auto& [key, value] : get_object(pod_spec, {"nodeSelector"})) {
    const Json* have = find(labels, key);
    if (have == nullptr || as_text(*have) != as_text(value)) return false;
  }
  const Json* required =
      find(pod_spec, {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
  return required == nullptr || required->is_null() || node_selector_matches(node, *required);
}

bool tolerates(const Json& taint, const JsonArray& tolerations) {
  const std::string_view taint_key = get_string(taint, {"key"});
  return std::ranges::any_of(tolerations, [&](const Json& toleration) {
    const std::string_view effect = get_string(toleration, {"effect"});
    if (!effect.empty() && effect != get_string(taint, {"effect"})) return false;
    const std::string_view key = get_string(toleration, {"key"});
    const std::string_view op = get_string(toleration, {"operator"}, "Equal");
    if (key.empty()) return op == "Exists";
    if (key != taint_key) return false;
    if (op == "Exists") return true;
    return (op.empty() || op == "Equal") && get_string(toleration, {"value"}) == get_string(taint, {"value"});
  });
}

const Json* untolerated_taint(const Json& node, const Json& pod_spec,
                              std::initializer_list<std::string_view> effects) {
  const JsonArray& tolerations = get_array(pod_spec, {"tolerations"});
  for (const Json& taint : get_array(node, {"spec", "taints"})) {
    if (std::ranges::find(effects, get_string(taint, {"effect"})) == effects.end()) continue;
    if (!tolerates(taint, tolerations)) return &taint;
  }
  return nullptr;
}

}  // namespace gpuop::kube
