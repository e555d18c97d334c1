// Facts about Kubernetes objects that many rooms need: names, owners, selectors, quantities, patches.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::kube {

std::string_view name_of(const Json& object);
std::string_view namespace_of(const Json& object);
std::string_view uid_of(const Json& object);
std::string_view label(const Json& object, std::string_view key);  // "" when absent
std::string_view annotation(const Json& object, std::string_view key);
// The owner reference with controller=true, or null.
const Json* controller_of(const Json& object);
Json owner_reference(const Json& owner, bool controller = true);
// The condition of that type in status.conditions, or null.
const Json* condition(const Json& object, std::string_view type);
// Sets a condition; lastTransitionTime moves only when the status does. Answers whether anything but times
// changed.
bool set_condition(Json& object, std::string_view type, std::string_view status, std::string_view reason,
                   std::string_view message, std::string_view now_text);

// Label selectors: text ("a=b,c in (d,e),!f") and metav1.LabelSelector objects.
class LabelSelector {
 public:
  static Result<LabelSelector> parse(std::string_view text);
  static Result<LabelSelector> from_object(const Json& selector);  // null: matches nothing; {}: everything
  bool matches(const JsonObject& labels) const;
  bool empty() const { return terms_.empty() && !nothing_; }
  // The text form, which parse() reads back.
  std::string text() const;

 private:
  struct Term {
    std::string key;
    enum class Op { kIn, kNotIn, kExists, kAbsent, kGreater, kLess } op;
    std::vector<std::string> values;
  };
  std::vector<Term> terms_;
  bool nothing_ = false;
};

// Syntax of names: "[prefix/]name" of at most 63 characters behind the prefix; label values; RFC 1123.
bool is_label_key(std::string_view key);
bool is_label_value(std::string_view value);
bool is_dns_label(std::string_view text);
bool is_dns_subdomain(std::string_view text);

// A v1.NodeSelector ({nodeSelectorTerms}): any term fits; no terms and empty terms fit no node.
bool node_selector_matches(const Json& node, const Json& selector);
// A node's fit for spec.nodeSelector and required node affinity (matchExpressions and matchFields).
bool node_matches(const Json& node, const Json& pod_spec);
// The first taint with `effect` in effects that no toleration of the pod tolerates; null when none.
const Json* untolerated_taint(const Json& node, const Json& pod_spec,
                              std::initializer_list<std::string_view> effects);
bool tolerates(const Json& taint, const JsonArray& tolerations);

// Quantities ("1500m", "2Gi", "1e3", 8) in thousandths. kInvalid for anything else.
Result<__int128> parse_quantity_milli(const Json& value);
// Whole units, rounded up.
Result<std::int64_t> parse_quantity(const Json& value);
// Canonical text as the API server stores it ("1500m" "1500m", "1024Mi" "1Gi").
Result<std::string> canonical_quantity(const Json& value);

// RFC 7386 (an absent key and a null are the same): what turns `from` into `to`; an empty object when they
// are equal.
Json merge_diff(const Json& from, const Json& to);
void merge_apply(Json& target, const Json& patch);
// RFC 6902. On an error `target` is unchanged. kInvalid: malformed; kNotFound: a path leads nowhere;
// kConflict: a test failed.
Result<> json_patch_apply(Json& target, const Json& patch);

}  // namespace gpuop::kube
