#include "features/master.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "features/sources.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "kube/work_queue.h"

namespace gpuop::features {
namespace {

constexpr std::string_view kPrefix = "feature.node.kubernetes.io/";
constexpr std::string_view kOwned = "nfd.node.kubernetes.io/feature-labels";
constexpr std::string_view kNodeName = "nfd.node.kubernetes.io/node-name";
// More than this share of the nodes losing labels at once is a fault of ours or of discovery, not of the
// nodes.
constexpr double kBreakerShare = 0.3;
constexpr std::size_t kBreakerMinimum = 10;

bool listed(const std::vector<std::string>& list, std::string_view ns) {
  return std::any_of(list.begin(), list.end(), [ns](const std::string& entry) {
    return entry.starts_with('*') ? ns.ends_with(std::string_view(entry).substr(1)) : ns == entry;
  });
}

bool in_namespace(std::string_view ns, std::string_view root) {
  return ns == root ||
         (ns.ends_with(root) && ns.size() > root.size() && ns[ns.size() - root.size() - 1] == '.');
}

// "" when the label may be set; else why not.
std::string refusal(const std::string& key, const std::string& value, const MasterOptions& options) {
  if (!valid_label_key(key)) return "not a valid label key";
  if (!valid_label_value(value)) return "'" + value + "' is not a valid label value";
  const std::string ns = key.substr(0, key.find('/'));
  if (std::find(options.extra_label_ns.begin(), options.extra_label_ns.end(), ns) !=
      options.extra_label_ns.end())
    return {};
  if (listed(options.deny_label_ns, ns)) return "its namespace is denied";
  const bool kubernetes = in_namespace(ns, "kubernetes.io");
  const bool ours =
      in_namespace(ns, "feature.node.kubernetes.io") || in_namespace(ns, "profile.node.kubernetes.io");
  if (kubernetes && !ours) return "namespace " + ns + " belongs to Kubernetes";
  return {};
}

std::string without_prefix(const std::string& key) {
  return key.starts_with(kPrefix) ? key.substr(kPrefix.size()) : key;
}
std::string with_prefix(std::string_view key) {
  return key.find('/') == std::string_view::npos ? std::string(kPrefix) + std::string(key) : std::string(key);
}

}  // namespace

void order_features(std::vector<std::shared_ptr<const Json>>& objects, std::string_view own_ns) {
  std::sort(objects.begin(), objects.end(), [own_ns](const auto& a, const auto& b) {
    const auto key = [own_ns](const Json& object) {
      return std::tuple(kube::namespace_of(object) != own_ns, kube::name_of(object),
                        kube::namespace_of(object));
    };
    return key(*a) < key(*b);
  });
}

std::map<std::string, std::string> merge_labels(const std::vector<std::shared_ptr<const Json>>& objects,
                                                const MasterOptions& options,
                                                std::vector<std::string>& rejected) {
  std::map<std::string, std::string> labels;
  for (const auto& object : objects) {
    const auto& given = get_object(*object, {"spec", "labels"});
    for (const auto& [name, value] : given) {
      const std::string key = with_prefix(name);
      // A key that is written with its prefix wins over the same one without.
      if (key != name && given.contains(key)) continue;
      const std::string text(as_text(value));
      if (auto why = refusal(key, text, options); !why.empty()) {
        rejected.push_back(key + ": " + why);
      } else {
        labels[key] = text;
      }
    }
  }
  return labels;
}

LabelChange decide_labels(const JsonObject& labels, const JsonObject& annotations,
                          const std::map<std::string, std::string>& wanted, bool may_remove) {
  LabelChange change;
  const Json* recorded = annotations.if_contains(kOwned);
  const std::string before = recorded ? std::string(as_text(*recorded)) : std::string();
  std::set<std::string> owned;
  for (const auto& [key, value] : wanted) {
    owned.insert(without_prefix(key));
    const Json* present = labels.if_contains(key);
    if (!present || as_text(*present) != value) change.labels[key] = value;
  }
  for (const auto& name : split(before, ',')) {
    if (name.empty() || owned.contains(name)) continue;
    if (!may_remove) {
      owned.insert(name);
      continue;
    }
    const std::string key = with_prefix(name);
    if (labels.contains(key)) change.labels[key] = std::nullopt;
  }
  const std::string now = join(std::vector<std::string>(owned.begin(), owned.end()), ",");
  if (now != before) change.owned = now;
  return change;
}

Json label_patch(const LabelChange& change, std::string_view resource_version) {
  JsonObject metadata;
  if (!change.labels.empty()) {
    JsonObject labels;
    for (const auto& [key, value] : change.labels) labels[key] = value ? Json(*value) : Json(nullptr);
    metadata["labels"] = std::move(labels);
  }
  if (change.owned) {
    metadata["annotations"] =
        JsonObject{{kOwned, change.owned->empty() ? Json(nullptr) : Json(*change.owned)}};
  }
  if (!resource_version.empty()) metadata["resourceVersion"] = resource_version;
  return JsonObject{{"metadata", std::move(metadata)}};
}

namespace {
bool same(const Json& a, const Json& b, Keys keys) {
  const Json *left = find(a, keys), *right = find(b, keys);
  return left && right ? *left == *right : left == right;
}
}  // namespace

struct Master::Impl {
  Impl(Loop& l, kube::Client& c, MasterOptions o, kube::Informer* shared)
      : loop(l),
        client(c),
        options(std::move(o)),
        features(c, kube::kNodeFeatures, feature_options()),
        own_nodes(shared != nullptr ? nullptr
                                    : std::make_unique<kube::Informer>(c, kube::kNodes, node_options())),
        nodes(shared != nullptr ? *shared : *own_nodes),
        queue(
            l, [this](const std::string& node, const std::function<void(bool)>& done) { work(node, done); },
            queue_options()),
        collections(
            l,
            [this](const std::string& node, const std::function<void(bool)>& done) { collect(node, done); },
            queue_options()) {
    features.add_index("node", [](const Json& object) {
      return std::vector<std::string>{std::string(kube::label(object, kNodeName))};
    });
    features.on_change([this](const auto& old, const auto& now) { feature_changed(old, now); });
    nodes.on_change([this, weak = std::weak_ptr(alive)](const auto& old, const auto& now) {
      if (!weak.expired()) node_changed(old, now);
    });
  }

  static kube::InformerOptions feature_options() {
    kube::InformerOptions keep;
    keep.keep = {"spec.labels"};  // raw features matter to rules only, and they are large
    keep.compact = keep.paged = true;
    return keep;
  }
  static kube::InformerOptions node_options() {
    kube::InformerOptions keep;
    keep.compact = keep.paged = true;
    return keep;
  }
  static kube::QueueOptions queue_options() {
    kube::QueueOptions out;
    out.base_delay = 50ms;
    out.max_delay = 100s;
    out.workers = 10;
    return out;
  }

  bool synced() const { return features.synced() && nodes.synced(); }

  void begin() {
    if (!leading || !synced()) return;
    nodes.for_each([this](const auto& node) { queue.add(std::string(kube::name_of(*node))); });
    collect_all();
  }

  void feature_changed(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now) {
    const Json& object = now ? *now : *old;
    const std::string node(kube::label(object, kNodeName));
    if (node.empty()) {
      log::warn("NodeFeature without the node-name label is ignored",
                {{"namespace", kube::namespace_of(object)}, {"name", kube::name_of(object)}});
      return;
    }
    if (!now)
      gone[node] = loop.elapsed();
    else
      gone.erase(node);
    if (old && now && same(*old, *now, {"spec"}) && same(*old, *now, {"metadata", "labels"})) return;
    if (!leading || !synced()) return;
    if (now && !nodes.get(node)) collections.add(node);
    queue.add(node);
  }

  void node_changed(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now) {
    const std::string name(kube::name_of(now ? *now : *old));
    if (!now) {
      seen.erase(name);
      gone.erase(name);
      if (leading && synced()) collections.add(name);
      return;
    }
    if (old && same(*old, *now, {"metadata", "labels"}) && same(*old, *now, {"metadata", "annotations"}))
      return;
    if (leading && synced()) queue.add(name);
  }

  // Takes NodeFeatures of a node that is not there away, until none is left.
  void collect(const std::string& node, const std::function<void(bool)>& done) {
    const auto objects = features.by_index("node", node);
    if (!leading || nodes.get(node) || objects.empty()) return done(true);
    struct Round {
      std::size_t open;
      bool ok = true;
    };
    auto round = std::make_shared<Round>(Round{objects.size()});
    for (const auto& object : objects) {
      log::info("removing the NodeFeature of a vanished node",
                {{"node", node}, {"namespace", kube::namespace_of(*object)}});
      kube::DeleteOptions how;
      how.precondition_uid = kube::uid_of(*object);
      client
          .remove(kube::kNodeFeatures, kube::namespace_of(*object), kube::name_of(*object), how,
                  [node, round, done](kube::ApiResult<> result) {
                    // A conflict: another has its name now, which is news on its way here.
                    if (!result && !result.error().not_found() && !result.error().conflict()) {
                      log::warn("NodeFeature was not removed",
                                {{"node", node}, {"error", result.error().message}});
                      round->ok = false;
                    }
                    if (--round->open == 0) done(round->ok);
                  })
          .detach();
    }
  }
  void collect_all() {
    std::set<std::string> lost;
    features.for_each([&](const auto& object) {
      const std::string node(kube::label(*object, kNodeName));
      if (!node.empty() && !nodes.get(node)) lost.insert(node);
    });
    for (const auto& node : lost) collections.add(node);
  }

  // Removal needs to have been seen: never on the first sight of a node that nothing reports on (§5.4).
  bool may_remove(const std::string& node, bool any_feature, std::optional<Duration>& wait) {
    if (any_feature) return true;
    // Without its kind nothing is reported on any node, which says nothing of them.
    if (!features.fault().empty()) {
      wait = options.removal_grace;
      return false;
    }
    const auto vanished = gone.find(node);
    if (vanished == gone.end()) return seen.contains(node) && removal_allowed();
    const Duration passed = loop.elapsed() - vanished->second;
    if (passed < options.removal_grace) {
      wait = options.removal_grace - passed;
      return false;
    }
    return removal_allowed();
  }
  bool removal_allowed() {
    std::size_t bare = 0;
    nodes.for_each(
        [&](const auto& node) { bare += features.by_index("node", kube::name_of(*node)).empty(); });
    if (bare < kBreakerMinimum ||
        static_cast<double>(bare) <= kBreakerShare * static_cast<double>(nodes.size()))
      return true;
    log::error("labels are kept: too many nodes without a NodeFeature at once", {{"nodes", bare}});
    return false;
  }

  void work(const std::string& name, const std::function<void(bool)>& done) {
    const auto node = nodes.get(name);
    if (!leading || !node) return done(true);
    auto objects = features.by_index("node", name);
    std::optional<Duration> wait;
    const bool remove = may_remove(name, !objects.empty(), wait);
    if (wait) queue.add_after(name, *wait);
    order_features(objects, options.ns);
    std::vector<std::string> rejected;
    const auto wanted = merge_labels(objects, options, rejected);
    if (const std::string text = join(rejected, "; "); text.empty()) {
      told.erase(name);
    } else if (std::exchange(told[name], text) != text) {
      log::warn("labels rejected", {{"node", name}, {"labels", text}});
    }
    const LabelChange change = decide_labels(get_object(*node, {"metadata", "labels"}),
                                             get_object(*node, {"metadata", "annotations"}), wanted, remove);
    seen.insert(name);
    if (change.empty()) return done(true);
    const Json patch = label_patch(change, get_string(*node, {"metadata", "resourceVersion"}));
    client
        .patch(kube::kNodes, "", name, kube::Patch::kMerge, patch, {},
               [name, done](kube::ApiResult<> result) {
                 if (result)
                   log::info("node labelled by feature discovery", {{"node", name}});
                 else if (result.error().conflict())
                   return done(false);  // somebody was faster; the cache follows
                 else if (!result.error().not_found()) {
                   log::warn("node was not labelled", {{"node", name}, {"error", result.error().message}});
                   return done(false);
                 }
                 done(true);
               })
        .detach();
  }

  Loop& loop;
  kube::Client& client;
  MasterOptions options;
  kube::Informer features;
  std::unique_ptr<kube::Informer> own_nodes;  // where no other is shared
  kube::Informer& nodes;
  kube::WorkQueue queue;
  kube::WorkQueue collections;  // nodes that are gone
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  bool leading = false;
  std::set<std::string> seen;            // nodes that had a pass
  std::map<std::string, Duration> gone;  // node to when its last NodeFeature was seen to vanish
  std::map<std::string, std::string> told;
};

Master::Master(Loop& loop, kube::Client& client, MasterOptions options, kube::Informer* nodes)
    : impl_(std::make_unique<Impl>(loop, client, std::move(options), nodes)) {}
Master::~Master() = default;

void Master::start_watching() {
  impl_->features.on_synced([raw = impl_.get()] { raw->begin(); });
  impl_->nodes.on_synced([raw = impl_.get(), weak = std::weak_ptr(impl_->alive)] {
    if (!weak.expired()) raw->begin();
  });
  impl_->features.start();
  if (impl_->own_nodes) impl_->own_nodes->start();
}
bool Master::synced() const {
  return impl_->synced();
}
void Master::lead() {
  impl_->leading = true;
  impl_->begin();
}

}  // namespace gpuop::features
