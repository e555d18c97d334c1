#include "operator/controller.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "kube/events.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "kube/work_queue.h"
#include "operator/apply.h"
#include "operator/cache.h"
#include "operator/facts.h"
#include "operator/node_labels.h"
#include "operator/readiness.h"
#include "operator/status.h"

namespace gpuop::op {

using Object = std::shared_ptr<const Json>;
using Finished = std::function<void(bool ok)>;

struct Controller::Impl {
  Impl(Loop& l, kube::Client& c, ControllerOptions o, Metrics& m)
      : loop(l),
        client(c),
        options(std::move(o)),
        metrics(m),
        cache(c, options.ns),
        applier(c, cache),
        events(c, "gpu-operator"),
        policies(
            l, [this](const std::string&, Finished done) { reconcile(std::move(done)); }, policy_queue()),
        nodes(
            l, [this](const std::string& name, Finished done) { reconcile_node(name, std::move(done)); },
            node_queue()) {
    cache.on_change([this](const kube::Resource& type, const Object& old, const Object& now) {
      changed(type, old, now);
    });
  }

  static kube::QueueOptions policy_queue() {
    kube::QueueOptions queue;
    queue.base_delay = 100ms;  // operator.md §3.4
    queue.max_delay = 3s;
    return queue;
  }
  static kube::QueueOptions node_queue() {
    kube::QueueOptions queue;
    queue.base_delay = 100ms;
    queue.max_delay = 30s;
    queue.workers = 8;
    return queue;
  }

  void changed(const kube::Resource& type, const Object& old, const Object& now);
  void node_changed(const Object& old, const Object& now);
  void pass();
  void ask_server(std::function<void(Result<>)> done);
  void reconcile(Finished done);
  void reconcile_active(const Object& live, Finished done);
  void finish(const Object& live, Outcome outcome, std::vector<std::string> notes, bool retry, Finished done);
  void write_status(const Object& live, const Outcome& outcome, const std::vector<std::string>& notes,
                    std::function<void(bool)> done);
  std::vector<StateReport> report(const Plan& plan, const Applier::Report& applied) const;
  Readiness ready_of(const Json& wanted) const;
  ClusterView view() const;
  void reconcile_node(const std::string& name, Finished done);
  std::vector<Object> all_policies() const;

  Loop& loop;
  kube::Client& client;
  ControllerOptions options;
  Metrics& metrics;
  ClusterCache cache;
  Applier applier;
  kube::EventRecorder events;
  kube::WorkQueue policies;
  kube::WorkQueue nodes;
  ServerFacts server;
  bool server_known = false;
  bool leading = false;
  std::string active;                         // name of the active policy
  std::int64_t seen_generation = -1;          // of the active policy, when the server was last asked
  std::optional<LabelRules> rules;            // of the active policy, once it could be read
  std::map<std::string, Duration> vanished;   // node to when its GPU label was first missed (loop time)
  std::map<std::string, std::string> warned;  // node to the last warning, so that each is said once
  std::vector<std::string> last_warnings;
  Handle asking;
};

namespace {

bool is_gpu(const Object& node) {
  return node && kube::label(*node, "nvidia.com/gpu.present") == "true";
}

// What of a node's labels and annotations the operator acts on.
bool same_relevant(const Json& a, const Json& b) {
  const auto relevant = [](std::string_view key) {
    return key.starts_with("nvidia.com/") || key.starts_with("feature.node.kubernetes.io/pci-") ||
           key.starts_with("feature.node.kubernetes.io/system-os_release") ||
           key == "feature.node.kubernetes.io/kernel-version.full";
  };
  for (std::string_view part : {"labels", "annotations"}) {
    const auto& left = get_object(a, {"metadata", part});
    const auto& right = get_object(b, {"metadata", part});
    for (const auto& [key, value] : left) {
      if (!relevant(key)) continue;
      const Json* other = right.if_contains(key);
      if (!other || *other != value) return false;
    }
    for (const auto& [key, value] : right) {
      if (relevant(key) && !left.contains(key)) return false;
    }
  }
  return true;
}

}  // namespace

void Controller::Impl::pass() {
  if (leading && cache.synced()) policies.add("policy");
}

void Controller::Impl::changed(const kube::Resource& type, const Object& old, const Object& now) {
  if (type.kind == "Node") return node_changed(old, now);
  applier.seen(now ? *now : *old, !now);
  if (type.kind == "ClusterPolicy" && old && now) {
    // Our own status writes come back here and ask for nothing.
    if (get_int(*old, {"metadata", "generation"}) == get_int(*now, {"metadata", "generation"}) &&
        get_string(*old, {"metadata", "uid"}) == get_string(*now, {"metadata", "uid"})) {
      return;
    }
  }
  if (type.kind == "Pod") {
    // Pods matter for OnDelete readiness alone, and there only what their status says.
    const Object& pod = now ? now : old;
    const Json* owner = kube::controller_of(*pod);
    if (!owner || get_string(*owner, {"kind"}) != "DaemonSet") return;
    const auto set =
        cache.of(kube::kDaemonSets).get(kube::object_key(options.ns, get_string(*owner, {"name"})));
    if (!set || get_string(*set, {"spec", "updateStrategy", "type"}) != "OnDelete") return;
  }
  pass();
}

void Controller::Impl::node_changed(const Object& old, const Object& now) {
  if (!now) {
    vanished.erase(std::string(kube::name_of(*old)));
    warned.erase(std::string(kube::name_of(*old)));
    if (is_gpu(old) || !server_known) pass();
    return;
  }
  if (old && same_relevant(*old, *now)) return;
  if (leading && rules) nodes.add(std::string(kube::name_of(*now)));
  // Rendering looks at GPU nodes; readiness and its words at whether any node is labelled at all.
  const bool first_labels = has_feature_labels(get_object(*now, {"metadata", "labels"})) &&
                            (!old || !has_feature_labels(get_object(*old, {"metadata", "labels"})));
  if (is_gpu(now) || is_gpu(old) || first_labels) pass();
}

void Controller::Impl::ask_server(std::function<void(Result<>)> done) {
  HttpRequest version;
  version.path = "/version";
  asking = client.raw(version, [this, done](kube::ApiResult<HttpResponse> answer) {
    if (!answer) return done(fail(answer.error().error("read the API server's version")));
    const auto body = parse_json(answer->body);
    if (!body) return done(fail(body.error().in("read the API server's version")));
    server.kubernetes_version = get_string(*body, {"gitVersion"});
    HttpRequest monitoring;
    monitoring.path = "/apis/monitoring.coreos.com/v1";
    asking = client.raw(monitoring, [this, done](kube::ApiResult<HttpResponse> found) {
      if (!found && !found.error().not_found()) {
        return done(fail(found.error().error("discover monitoring.coreos.com")));
      }
      if (found) {
        if (const auto list = parse_json(found->body)) {
          for (const auto& resource : get_array(*list, {"resources"})) {
            if (get_string(resource, {"name"}) == "servicemonitors") server.has_service_monitors = true;
            if (get_string(resource, {"name"}) == "prometheusrules") server.has_prometheus_rules = true;
          }
        }
      }
      if (server.has_service_monitors) cache.watch_service_monitors();
      HttpRequest openshift;
      openshift.path = "/apis/config.openshift.io/v1/clusterversions/version";
      asking = client.raw(openshift, [this, done](kube::ApiResult<HttpResponse> cluster) {
        if (!cluster && !cluster.error().not_found()) {
          return done(fail(cluster.error().error("read OpenShift's version")));
        }
        if (cluster) {
          const auto object = parse_json(cluster->body);
          if (!object) return done(fail(object.error().in("read OpenShift's version")));
          for (const auto& entry : get_array(*object, {"status", "history"})) {
            if (get_string(entry, {"state"}) != "Completed") continue;
            const auto parts = split(get_string(entry, {"version"}), '.');
            if (parts.size() >= 2) server.openshift_version = parts[0] + "." + parts[1];
            break;
          }
          if (server.openshift_version.empty()) {
            return done(
                fail(Code::kUnavailable, "read OpenShift's version: no completed update in its history"));
          }
        }
        server_known = true;
        done({});
      });
    });
  });
}

std::vector<Object> Controller::Impl::all_policies() const {
  std::vector<Object> all;
  cache.of(kube::kClusterPolicies).for_each([&all](const Object& policy) {
    if (!has(*policy, {"metadata", "deletionTimestamp"})) all.push_back(policy);
  });
  return all;
}

ClusterView Controller::Impl::view() const {
  ClusterView out;
  cache.of(kube::kNodes).for_each([&out](const Object& node) {
    if (is_gpu(node)) ++out.gpu_nodes;
    out.has_feature_labels =
        out.has_feature_labels || has_feature_labels(get_object(*node, {"metadata", "labels"}));
  });
  return out;
}

void Controller::Impl::reconcile(Finished done) {
  if (!leading) return done(true);
  const auto all = all_policies();
  const std::string chosen = active_policy(all);
  metrics.set_gpu_nodes(view().gpu_nodes);
  if (chosen.empty()) {
    active.clear();
    rules.reset();
    metrics.set_status(-1);
    return done(true);
  }
  for (const auto& policy : all) {
    if (kube::name_of(*policy) != chosen) write_status(policy, ignored_outcome(chosen), {}, [](bool) {});
  }
  const auto live = cache.of(kube::kClusterPolicies).get(chosen);
  if (chosen != active) {
    log::info("active ClusterPolicy", {{"name", chosen}});
    active = chosen;
    seen_generation = -1;
  }
  // Installed types may change between edits of the policy, not between two events of a DaemonSet.
  const std::int64_t generation = get_int(*live, {"metadata", "generation"});
  if (server_known && generation == seen_generation) return reconcile_active(live, std::move(done));
  if (!has(*live, {"status", "state"})) write_status(live, reconciling_outcome(), {}, [](bool) {});
  ask_server([this, live, generation, done](Result<> asked) mutable {
    if (!asked) return finish(live, failed_outcome(asked.error().text()), {}, true, std::move(done));
    seen_generation = generation;
    reconcile_active(live, std::move(done));
  });
}

void Controller::Impl::reconcile_active(const Object& live, Finished done) {
  auto parsed = policy::parse_cluster_policy(*live);
  if (!parsed) return finish(live, failed_outcome(parsed.error().text()), {}, false, std::move(done));
  std::vector<std::string> notes;
  for (const auto& note : parsed->notes) notes.push_back(note.text);
  if (auto checked = policy::check(parsed->spec); !checked) {
    return finish(live, failed_outcome(checked.error().text()), notes, false, std::move(done));
  }
  rules = label_rules(parsed->spec);
  metrics.set_auto_upgrade(rules->auto_upgrade);
  cache.of(kube::kNodes).for_each([this](const Object& node) {
    const auto& labels = get_object(*node, {"metadata", "labels"});
    if (has_gpu_feature(labels) || labels.contains("nvidia.com/gpu.present"))
      nodes.add(std::string(kube::name_of(*node)));
  });
  std::vector<std::string> warnings;
  ClusterFacts facts = gather_facts(cache, parsed->spec, server);
  facts.own_image = options.own_image;
  facts.env = options.env;
  facts.runtime = detect_runtime(cache, facts.openshift(), warnings);
  auto plan = std::make_shared<Plan>(render(*parsed, facts, options.assets));
  warnings.insert(warnings.end(), plan->warnings.begin(), plan->warnings.end());
  if (warnings != last_warnings) {
    for (const auto& warning : warnings) {
      log::warn(warning);
      events.event(*live, "Warning", "ClusterWarning", warning);
    }
    last_warnings = warnings;
  }
  applier.apply(*plan, parsed->uid, [this, live, plan, notes, done](Applier::Report applied) mutable {
    metrics.count_write(applied.writes);
    const auto states = report(*plan, applied);
    const ClusterView seen = view();
    metrics.set_has_nfd_labels(seen.has_feature_labels);
    finish(live, outcome_of(states, seen), std::move(notes), !applied.errors.empty() || applied.raced,
           std::move(done));
  });
}

Readiness Controller::Impl::ready_of(const Json& wanted) const {
  const ObjectRef ref = ref_of(wanted);
  const auto live = cache.live(ref);
  if (ref.kind != "DaemonSet") return {};
  if (live && kube::annotation(*live, kHashAnnotation) != kube::annotation(wanted, kHashAnnotation)) {
    return {false, "its new form is being rolled out"};
  }
  std::vector<Object> pods;
  std::vector<Object> revisions;
  if (live && get_string(*live, {"spec", "updateStrategy", "type"}) == "OnDelete") {
    cache.of(kube::kPods).for_each([&pods](const Object& pod) { pods.push_back(pod); });
    cache.of(kube::kControllerRevisions).for_each([&](const Object& revision) {
      revisions.push_back(revision);
    });
  }
  return daemonset_ready(live.get(), pods, revisions);
}

std::vector<StateReport> Controller::Impl::report(const Plan& plan, const Applier::Report& applied) const {
  std::vector<StateReport> out;
  for (const auto& state : plan.states) {
    StateReport entry;
    entry.name = state.name;
    entry.enabled = state.enabled;
    if (const auto error = applied.errors.find(state.name); error != applied.errors.end())
      entry.error = error->second;
    for (const auto& object : state.objects) {
      const Readiness readiness = ready_of(object);
      if (readiness.ready) continue;
      entry.ready = false;
      entry.reason = readiness.reason;
      break;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

void Controller::Impl::finish(const Object& live, Outcome outcome, std::vector<std::string> notes, bool retry,
                              Finished done) {
  metrics.set_status(outcome.metric);
  metrics.count_pass(!outcome.ready);
  if (outcome.reason == "ReconcileFailed") metrics.count_error();
  if (outcome.ready) {
    metrics.set_last_success(std::chrono::duration<double>(loop.now().time_since_epoch()).count());
  }
  write_status(live, outcome, notes, [retry, done](bool ok) { done(ok && !retry); });
}

void Controller::Impl::write_status(const Object& given, const Outcome& outcome,
                                    const std::vector<std::string>& notes, std::function<void(bool)> done) {
  // The latest we know of: the pass may have taken a while.
  const auto cached = cache.of(kube::kClusterPolicies).get(kube::name_of(*given));
  if (!cached) return done(true);
  const Json status = status_of(*cached, outcome, notes, options.ns, loop.now());
  const Json* before = find(*cached, {"status"});
  if (before && same_status(*before, status)) return done(true);
  const std::string name(kube::name_of(*cached));
  const std::string old_state(get_string(*cached, {"status", "state"}));
  kube::WriteOptions write;
  write.subresource = "status";
  const Json patch = JsonObject{{"status", status}};
  client
      .patch(kube::kClusterPolicies, "", name, kube::Patch::kMerge, patch, write,
             [this, name, cached, outcome, old_state, done](kube::ApiResult<> result) {
               if (!result && !result.error().not_found()) {
                 log::warn("status was not written", {{"policy", name}, {"error", result.error().message}});
                 return done(false);
               }
               if (old_state != outcome.state) {
                 log::info("ClusterPolicy state",
                           {{"policy", name}, {"state", outcome.state}, {"reason", outcome.reason}});
                 events.event(*cached, outcome.reason == "ReconcileFailed" ? "Warning" : "Normal",
                              outcome.reason, outcome.message);
               }
               done(true);
             })
      .detach();
}

void Controller::Impl::reconcile_node(const std::string& name, Finished done) {
  const auto node = cache.of(kube::kNodes).get(name);
  if (!leading || !node || !rules) return done(true);
  const auto& labels = get_object(*node, {"metadata", "labels"});
  std::optional<Duration> missing;
  if (!has_gpu_feature(labels) && is_gpu(node)) {
    const auto since = vanished.emplace(name, loop.elapsed()).first->second;
    missing = loop.elapsed() - since;
  } else {
    vanished.erase(name);
  }
  const NodeChange change =
      decide_node(labels, get_object(*node, {"metadata", "annotations"}), *rules, missing);
  if (change.wait) nodes.add_after(name, *change.wait);
  const std::string warning = join(change.warnings, "; ");
  if (!warning.empty() && warned[name] != warning) {
    log::warn(warning, {{"node", name}});
    events.event(*node, "Warning", "GPUOperatorNodeLabels", warning);
    warned[name] = warning;
  }
  if (change.empty()) return done(true);
  client
      .patch(kube::kNodes, "", name, kube::Patch::kMerge, node_patch(change), {},
             [name, done](kube::ApiResult<> result) {
               if (!result && !result.error().not_found()) {
                 log::warn("node was not labelled", {{"node", name}, {"error", result.error().message}});
                 return done(false);
               }
               log::info("labelled", {{"node", name}});
               done(true);
             })
      .detach();
}

Controller::Controller(Loop& loop, kube::Client& client, ControllerOptions options, Metrics& metrics)
    : impl_(std::make_unique<Impl>(loop, client, std::move(options), metrics)) {}
Controller::~Controller() = default;

void Controller::start_watching() {
  impl_->cache.start([raw = impl_.get()] { raw->pass(); });
}
bool Controller::synced() const {
  return impl_->cache.synced();
}
void Controller::lead() {
  impl_->leading = true;
  impl_->pass();
}

}  // namespace gpuop::op
