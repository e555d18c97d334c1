#include "operator/drift.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::op {
namespace {

using Step = Difference::Step;

// Says nothing: unlike false, 0 and "", which are as good as absent only where the API drops them.
bool is_nothing(const Json& value) {
  if (value.is_object())
    return std::ranges::all_of(value.get_object(),
                               [](const auto& field) { return is_nothing(field.value()); });
  return value.is_null() || (value.is_array() && value.get_array().empty());
}

bool is_empty(const Json& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return true;
    case boost::json::kind::bool_:
      return !value.get_bool();
    case boost::json::kind::int64:
      return value.get_int64() == 0;
    case boost::json::kind::uint64:
      return value.get_uint64() == 0;
    case boost::json::kind::double_:
      return value.get_double() == 0;
    case boost::json::kind::string:
      return value.get_string().empty();
    case boost::json::kind::array:
      return value.get_array().empty();
    case boost::json::kind::object:
      return std::ranges::all_of(value.get_object(),
                                 [](const auto& field) { return is_empty(field.value()); });
  }
  return false;
}

// Walks two values and tells of every place where the live one does not cover the wanted one, until it is
// told to stop.
class Walk {
 public:
  // Answers whether to go on.
  using Found = std::function<bool(const std::vector<Step>& path, const Json* live, const Json& wanted)>;
  // `absent`: what of a wanted value may be missing.
  explicit Walk(Found found, bool (*absent)(const Json&) = is_empty)
      : found_(std::move(found)), absent_(absent) {}

  // False: somebody said to stop.
  bool compare(const Json* live, const Json& wanted) {
    if (!live) return absent_(wanted) || found_(path_, live, wanted);
    if (wanted.is_object() && live->is_object()) return fields(*live, wanted);
    if (wanted.is_array() && live->is_array() && live->get_array().size() == wanted.get_array().size())
      return items(live->get_array(), wanted.get_array());
    const bool same = *live == wanted || (is_empty(wanted) && (live->is_null() || is_empty(*live)));
    return same || found_(path_, live, wanted);
  }
  bool field(const Json& live, const Json& wanted, std::string_view key) {
    const Json* mine = find(wanted, {key});
    return !mine || at({std::string(key), std::nullopt}, find(live, {key}), *mine);
  }
  void enter(std::string_view key) { path_.push_back({std::string(key), std::nullopt}); }
  void leave() { path_.pop_back(); }

 private:
  bool at(Step step, const Json* live, const Json& wanted) {
    path_.push_back(std::move(step));
    const bool go_on = compare(live, wanted);
    path_.pop_back();
    return go_on;
  }
  bool fields(const Json& live, const Json& wanted) {
    return std::ranges::all_of(wanted.get_object(), [&](const auto& field) {
      return at({std::string(field.key()), std::nullopt}, live.get_object().if_contains(field.key()),
                field.value());
    });
  }
  bool items(const JsonArray& live, const JsonArray& wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto name = get_string(wanted[i], {"name"});
      if (!at({name.empty() ? std::to_string(i) : std::string(name), i}, &live[i], wanted[i])) return false;
    }
    return true;
  }

  Found found_;
  bool (*absent_)(const Json&);
  std::vector<Step> path_;
};

constexpr std::string_view kWhole[] = {"data",    "rules",      "roleRef", "subjects",
                                       "handler", "scheduling", "overhead"};

constexpr std::string_view kPlacement[] = {"nodeSelector",   "affinity",      "tolerations",
                                           "nodeName",       "schedulerName", "topologySpreadConstraints",
                                           "schedulingGates"};

// What an API server fills into a DaemonSet's spec where nothing is said: a field's name and its value.
constexpr std::pair<std::string_view, std::string_view> kFilledIn[] = {
    {"schedulerName", R"("default-scheduler")"},
    {"restartPolicy", R"("Always")"},
    {"dnsPolicy", R"("ClusterFirst")"},
    {"terminationGracePeriodSeconds", "30"},
    {"terminationMessagePath", R"("/dev/termination-log")"},
    {"terminationMessagePolicy", R"("File")"},
    {"imagePullPolicy", R"("IfNotPresent")"},
    {"imagePullPolicy", R"("Always")"},
    {"protocol", R"("TCP")"},
    {"timeoutSeconds", "1"},
    {"periodSeconds", "10"},
    {"successThreshold", "1"},
    {"failureThreshold", "3"},
    {"scheme", R"("HTTP")"},
    {"path", R"("/")"},
    {"apiVersion", R"("v1")"},
    {"defaultMode", "420"},
    {"expirationSeconds", "3600"},
    {"procMount", R"("Default")"},
    {"revisionHistoryLimit", "10"},
    {"type", R"("RollingUpdate")"},
    {"maxUnavailable", "1"},
    {"maxSurge", "0"},
    {"type", R"("")"},
    {"service", R"("")"},
};

// Whether the API server itself put `value` beneath `key` of `parent`.
bool is_filled_in(std::string_view key, const Json& value, const Json* parent) {
  if (is_nothing(value)) return true;
  if (value.is_object())
    return std::ranges::all_of(value.get_object(), [&value](const auto& field) {
      return is_filled_in(field.key(), field.value(), &value);
    });
  if (value.is_array()) return false;
  // The old name of another field, and the ports of a pod in its host's network.
  if (key == "serviceAccount") return true;
  if (key == "hostPort" && parent) {
    const Json* port = find(*parent, {"containerPort"});
    return port && *port == value;
  }
  const std::string text = to_canonical_text(value);
  return std::ranges::any_of(kFilledIn,
                             [&](const auto& one) { return one.first == key && one.second == text; });
}

// What a path leads to; null: nothing.
const Json* follow(const Json& root, std::span<const Step> path) {
  const Json* at = &root;
  for (const Step& step : path) {
    if (step.index)
      at = at->is_array() && *step.index < at->get_array().size() ? &at->get_array()[*step.index] : nullptr;
    else
      at = at->is_object() ? at->get_object().if_contains(step.key) : nullptr;
    if (!at) return nullptr;
  }
  return at;
}

// Others may label and annotate pods (`kubectl rollout restart` does).
bool is_ours(const Json& live, const std::vector<Step>& path, const Json& value) {
  if (path.size() > 2 && path[1].key == "template" && path[2].key == "metadata") return false;
  return !is_filled_in(path.back().key, value, follow(live, std::span(path).first(path.size() - 1)));
}

// The part of a managed set below an item of a list; null when it is not in it.
const Json* item_of(const Json& set, const Json* item, std::size_t index) {
  for (const auto& [name, below] : set.get_object()) {
    const std::string_view key = name;
    if (key == "i:" + std::to_string(index)) return &below;
    if (!item || key.size() < 2 || (!key.starts_with("k:") && !key.starts_with("v:"))) continue;
    const auto value = parse_json(key.substr(2));
    if (value && (key[0] == 'v' ? *item == *value : covers(*item, *value))) return &below;
  }
  return nullptr;
}

// Whether a set of FieldsV1 has the path, something below it, or what holds it as one value.
bool has_path(const Json& set, const Json& live, const std::vector<Step>& path) {
  const Json* at = &set;
  const Json* here = &live;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (!at->is_object()) return false;
    if (i > 0 && at->get_object().empty()) return true;
    const Step& step = path[i];
    if (!step.index) {
      at = at->get_object().if_contains("f:" + step.key);
      here = here && here->is_object() ? here->get_object().if_contains(step.key) : nullptr;
    } else {
      here = here && here->is_array() && *step.index < here->get_array().size()
                 ? &here->get_array()[*step.index]
                 : nullptr;
      at = item_of(*at, here, *step.index);
    }
    if (!at) return false;
  }
  return true;
}

bool decides_placement(const Difference& one) {
  return one.path.size() > 3 && one.path[2].key == "spec" &&
         std::ranges::find(kPlacement, one.path[3].key) != std::end(kPlacement);
}

}  // namespace

bool covers(const Json& live, const Json& wanted) {
  return Walk([](const auto&, const Json*, const Json&) { return false; }).compare(&live, wanted);
}

std::string Difference::text() const {
  std::string out;
  for (const auto& step : path) {
    if (step.index)
      out += "[" + step.key + "]";
    else
      out += (out.empty() ? "" : ".") + step.key;
  }
  return out;
}

std::vector<Difference> differences(const Json& live, const Json& wanted) {
  std::vector<Difference> out;
  Walk walk([&out](const std::vector<Step>& path, const Json* there, const Json&) {
    out.push_back({path, there ? to_canonical_text(*there) : "", false});
    return true;
  });
  // Of what is owned whole: what is live and not wanted.
  Walk back([&out](const std::vector<Step>& path, const Json*, const Json& there) {
    Difference more{path, to_canonical_text(there), false};
    const auto same = [&more](const Difference& other) { return other.text() == more.text(); };
    if (std::ranges::none_of(out, same)) out.push_back(std::move(more));
    return true;
  });
  walk.field(live, wanted, "spec");
  if (get_string(wanted, {"kind"}) == "DaemonSet") {
    Walk added(
        [&](const std::vector<Step>& path, const Json* mine, const Json& there) {
          // Where both say something, it is told from the other side.
          if (!mine && is_ours(live, path, there)) out.push_back({path, to_canonical_text(there), true});
          return true;
        },
        is_nothing);
    added.field(wanted, live, "spec");
  }
  walk.enter("metadata");
  const Json none = JsonObject{};
  const Json* theirs = find(live, {"metadata"});
  const Json* mine = find(wanted, {"metadata"});
  for (std::string_view part : {"labels", "annotations", "ownerReferences"})
    walk.field(theirs ? *theirs : none, mine ? *mine : none, part);
  walk.leave();
  std::vector<std::string_view> whole(std::begin(kWhole), std::end(kWhole));
  if (get_string(wanted, {"kind"}) == "SecurityContextConstraints") {
    // Its fields are all at the top.
    for (const auto& [field, value] : wanted.get_object()) {
      if (field != "metadata" && field != "apiVersion" && field != "kind") whole.push_back(field);
    }
  }
  for (std::string_view field : whole) {
    walk.field(live, wanted, field);
    back.field(wanted, live, field);
  }
  return out;
}

std::vector<Difference> of_placement(const std::vector<Difference>& found) {
  std::vector<Difference> out;
  std::ranges::copy_if(found, std::back_inserter(out), decides_placement);
  return out;
}

std::vector<Difference> applied_beside(const Json& live, const std::vector<Difference>& found,
                                       std::string_view own) {
  const auto& entries = get_array(live, {"metadata", "managedFields"});
  std::vector<Difference> out;
  std::ranges::copy_if(found, std::back_inserter(out), [&](const Difference& one) {
    return one.added && !decides_placement(one) && std::ranges::any_of(entries, [&](const Json& entry) {
             const Json* set = find(entry, {"fieldsV1"});
             return get_string(entry, {"operation"}) == "Apply" && get_string(entry, {"manager"}) != own &&
                    set && has_path(*set, live, one.path);
           });
  });
  return out;
}

std::optional<std::vector<std::string>> managers_of(const Json& live, const std::vector<Difference>& found,
                                                    std::string_view own) {
  const auto& entries = get_array(live, {"metadata", "managedFields"});
  if (entries.empty()) return std::nullopt;
  std::vector<std::string> out;
  for (const Json& entry : entries) {
    const std::string manager(get_string(entry, {"manager"}));
    const Json* set = find(entry, {"fieldsV1"});
    if (manager == own || !set || std::ranges::find(out, manager) != out.end()) continue;
    if (std::ranges::any_of(found, [&](const Difference& one) { return has_path(*set, live, one.path); }))
      out.push_back(manager);
  }
  return out;
}

std::string fields_text(const std::vector<Difference>& found) {
  std::vector<std::string> fields;
  for (const auto& one : found) fields.push_back(one.text());
  return first_few(fields);
}

}  // namespace gpuop::op
