#include "features/worker.h"

#include <algorithm>

#include "base/inotify.h"
#include "base/log.h"
#include "base/version.h"
#include "kube/object.h"

namespace gpuop::features {
namespace {

constexpr std::string_view kNodeName = "nfd.node.kubernetes.io/node-name";
constexpr Duration kDebounce = 1s;
constexpr Duration kForbiddenLimit = 10min;

void withhold(FeatureSet& features, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& [name, value] : features.flags) names.push_back(name);
  for (const auto& [name, value] : features.attributes) names.push_back(name);
  for (const auto& [name, value] : features.instances) names.push_back(name);
  for (const auto& pattern : patterns) {
    for (const auto& name : names) {
      const bool prefix =
          pattern.ends_with('*') && name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
      if (prefix || name == pattern) features.erase(name);
    }
  }
}

bool same_part(const Json& a, const Json& b, Keys keys) {
  const Json* left = find(a, keys);
  const Json* right = find(b, keys);
  const auto empty = [](const Json* value) {
    return !value || value->is_null() || (value->is_object() && value->get_object().empty()) ||
           (value->is_array() && value->get_array().empty());
  };
  if (empty(left) || empty(right)) return empty(left) && empty(right);
  return to_canonical_text(*left) == to_canonical_text(*right);
}

}  // namespace

Json node_feature(const WorkerOptions& options, const Discovery& discovery, const JsonArray& owners) {
  FeatureSet features = discovery.features;
  withhold(features, options.config.no_publish_features);
  JsonObject labels;
  for (const auto& [key, value] : discovery.labels) labels[key] = value;
  JsonObject annotations{{"nfd.node.kubernetes.io/worker.version", GPUOP_VERSION}};
  if (!options.pod_uid.empty()) annotations["nfd.node.kubernetes.io/worker.pod.uid"] = options.pod_uid;
  JsonObject metadata{{"name", options.node},
                      {"namespace", options.ns},
                      {"labels", JsonObject{{kNodeName, options.node}}},
                      {"annotations", std::move(annotations)}};
  if (!owners.empty()) metadata["ownerReferences"] = owners;
  return JsonObject{
      {"apiVersion", "nfd.k8s-sigs.io/v1alpha1"},
      {"kind", "NodeFeature"},
      {"metadata", std::move(metadata)},
      {"spec", JsonObject{{"features", features_to_json(features)}, {"labels", std::move(labels)}}}};
}

bool differs(const Json& live, const Json& wanted) {
  return !same_part(live, wanted, {"metadata", "annotations"}) ||
         !same_part(live, wanted, {"metadata", "labels"}) ||
         !same_part(live, wanted, {"metadata", "ownerReferences"}) || !same_part(live, wanted, {"spec"});
}

struct Worker::Impl {
  Impl(Loop& l, kube::Client* c, WorkerOptions o, std::function<void(Result<>)> f)
      : loop(l), client(c), options(std::move(o)), finished(std::move(f)) {}

  void find_owners();
  bool owners_later(const kube::ApiError& error);
  void add_owner(std::string_view api_version, std::string_view kind, std::string_view name,
                 std::string_view uid);
  void discover_and_publish();
  void publish(const Json& wanted);
  void written(kube::ApiResult<> result, const std::string& doing);
  void schedule();
  void files_changed();

  Loop& loop;
  kube::Client* client;
  WorkerOptions options;
  std::function<void(Result<>)> finished;
  JsonArray owners;
  bool owners_known = false;
  std::shared_ptr<const Json> live;  // as we last saw or wrote it
  bool published = false;
  bool busy = false;
  bool again = false;
  Duration backoff = 1s;
  std::optional<Duration> refused_since;
  std::vector<std::string> told;
  std::minstd_rand random{std::random_device{}()};
  std::unique_ptr<DirWatch> watch;
  Handle request, timer, debounce, retry;
};

void Worker::Impl::add_owner(std::string_view api_version, std::string_view kind, std::string_view name,
                             std::string_view uid) {
  owners.push_back(JsonObject{{"apiVersion", api_version},
                              {"kind", kind},
                              {"name", name},
                              {"uid", uid},
                              {"blockOwnerDeletion", false}});
}

// A server that is busy will know the owners later; without them the object would outlive its pod for good.
bool Worker::Impl::owners_later(const kube::ApiError& error) {
  if (!error.unavailable()) {
    log::warn("owner references are left out", {{"error", error.message}});
    return false;
  }
  const auto delay = error.retry_after.value_or(backoff);
  backoff = std::min<Duration>(backoff * 2, 60s);
  retry = loop.after(delay, [this] { find_owners(); });
  return true;
}

// Owners in the order node, pod, ds; what does not exist is left out.
void Worker::Impl::find_owners() {
  owners.clear();
  const auto wants = [this](std::string_view name) {
    return std::find(options.config.owner_refs.begin(), options.config.owner_refs.end(), name) !=
           options.config.owner_refs.end();
  };
  const auto known = [this] {
    owners_known = true;
    discover_and_publish();
  };
  const auto with_pod = [this, wants, known] {
    if (wants("pod") && !options.pod_name.empty() && !options.pod_uid.empty()) {
      add_owner("v1", "Pod", options.pod_name, options.pod_uid);
    }
    if (!wants("ds") || options.pod_name.empty()) return known();
    request = client->get(kube::kPods, options.ns, options.pod_name, [this, known](kube::ApiResult<> pod) {
      if (!pod && owners_later(pod.error())) return;
      if (pod) {
        for (const auto& owner : get_array(*pod, {"metadata", "ownerReferences"})) {
          if (get_string(owner, {"kind"}) != "DaemonSet") continue;
          add_owner(get_string(owner, {"apiVersion"}), "DaemonSet", get_string(owner, {"name"}),
                    get_string(owner, {"uid"}));
        }
      }
      known();
    });
  };
  if (!wants("node")) return with_pod();
  request = client->get(kube::kNodes, "", options.node, [this, with_pod](kube::ApiResult<> node) {
    if (!node && owners_later(node.error())) return;
    if (node) add_owner("v1", "Node", options.node, kube::uid_of(*node));
    with_pod();
  });
}

void Worker::Impl::discover_and_publish() {
  if (busy) {
    again = true;
    return;
  }
  const Duration began = loop.elapsed();
  const Discovery discovery = discover(options.host, options.config, loop.now());
  if (discovery.problems != told) {
    for (const auto& problem : discovery.problems) log::warn(problem);
    told = discovery.problems;
  }
  const Duration took = loop.elapsed() - began;
  if (options.config.sleep_interval > 0s && took > options.config.sleep_interval / 2) {
    log::warn("discovery takes long", {{"took", format_go_duration(took)}});
  }
  schedule();
  if (options.config.no_publish || !client) {
    if (options.oneshot) finished({});
    return;
  }
  busy = true;
  const Json wanted = node_feature(options, discovery, owners);
  if (live) return publish(wanted);
  request =
      client->get(kube::kNodeFeatures, options.ns, options.node, [this, wanted](kube::ApiResult<> found) {
        if (found)
          live = std::make_shared<const Json>(std::move(*found));
        else if (!found.error().not_found())
          return written(std::unexpected(found.error()), "read NodeFeature");
        publish(wanted);
      });
}

void Worker::Impl::publish(const Json& wanted) {
  if (!live) {
    request = client->create(kube::kNodeFeatures, options.ns, wanted, {}, [this](kube::ApiResult<> result) {
      written(std::move(result), "create NodeFeature");
    });
    return;
  }
  if (!differs(*live, wanted)) return written(*live, "");
  Json body = wanted;
  set(body, {"metadata", "resourceVersion"}, get_string(*live, {"metadata", "resourceVersion"}));
  request =
      client->update(kube::kNodeFeatures, options.ns, options.node, body, {},
                     [this](kube::ApiResult<> result) { written(std::move(result), "update NodeFeature"); });
}

void Worker::Impl::written(kube::ApiResult<> result, const std::string& doing) {
  busy = false;
  if (result) {
    if (!doing.empty()) log::info("published", {{"node", options.node}});
    live = std::make_shared<const Json>(std::move(*result));
    published = true;
    backoff = 1s;
    refused_since.reset();
    if (options.oneshot) return finished({});
    if (std::exchange(again, false)) discover_and_publish();
    return;
  }
  live.reset();  // whatever it was, read it again
  const auto& error = result.error();
  log::warn("not published", {{"error", error.error(doing).text()}});
  if (error.status == 401 || error.status == 403) {
    if (!refused_since) refused_since = loop.elapsed();
    if (loop.elapsed() - *refused_since > kForbiddenLimit) return finished(fail(error.error(doing)));
  } else {
    refused_since.reset();
  }
  std::uniform_real_distribution<double> jitter(0.8, 1.2);
  const auto delay = std::chrono::duration_cast<Duration>(backoff * jitter(random));
  backoff = std::min<Duration>(backoff * 2, 60s);
  retry = loop.after(delay, [this] { discover_and_publish(); });
}

void Worker::Impl::schedule() {
  if (options.oneshot || options.config.sleep_interval <= 0s) return;
  // Spread: a fleet that was started together must not write together.
  std::uniform_real_distribution<double> part(0.5, 1.0);
  const auto delay =
      std::chrono::duration_cast<Duration>(options.config.sleep_interval * (timer ? 1.0 : part(random)));
  timer = loop.after(delay, [this] { discover_and_publish(); });
}

// At once when all was quiet, and once more after a burst, so that the last state is always published.
void Worker::Impl::files_changed() {
  if (!owners_known) return;
  if (debounce) {
    again = true;
    return;
  }
  debounce = loop.after(kDebounce, [this] {
    debounce.reset();
    if (std::exchange(again, false)) files_changed();
  });
  discover_and_publish();
}

Worker::Worker(Loop& loop, kube::Client* client, WorkerOptions options,
               std::function<void(Result<>)> finished)
    : impl_(std::make_unique<Impl>(loop, client, std::move(options), std::move(finished))) {}
Worker::~Worker() = default;
bool Worker::published() const {
  return impl_->published;
}

Result<> Worker::start() {
  auto& self = *impl_;
  for (const auto& warning : self.options.config.warnings) log::warn(warning);
  if (!self.options.oneshot) {
    bool first = true;
    self.watch =
        TRY(DirWatch::create(self.loop, self.options.host.features_d, [raw = &self, first]() mutable {
          if (!std::exchange(first, false)) raw->files_changed();
        }));
  }
  if (self.client && !self.options.config.no_publish) {
    self.find_owners();
  } else {
    self.owners_known = true;
    self.discover_and_publish();
  }
  return {};
}

}  // namespace gpuop::features
