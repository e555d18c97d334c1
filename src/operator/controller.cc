#include "operator/controller.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "fleet/missing.h"
#include "hardware/validation_note.h"
#include "kube/events.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "kube/work_queue.h"
#include "operator/apply.h"
#include "operator/cache.h"
#include "operator/driver_controller.h"
#include "operator/facts.h"
#include "operator/label_turns.h"
#include "operator/namespace_labels.h"
#include "operator/node_choices.h"
#include "operator/node_health.h"
#include "operator/node_labels.h"
#include "operator/readiness.h"
#include "operator/refusals.h"
#include "operator/refused_pods.h"
#include "operator/review.h"
#include "operator/server.h"
#include "operator/status_writer.h"
#include "operator/wake.h"

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
        server(c, cache),
        events(c, "gpu-operator"),
        applier(c, cache, events),
        status(c, cache, events),
        driver_controller(c, cache, options, status, events, [this] { drivers_pass(); }),
        health(c, cache, events, metrics),
        waker(l, c, options.ns),
        configured(c, kube::kEvents, configured_runtimes(options.ns)),
        refused_pods(
            c, options.ns,
            [this](const std::string& daemonset) {
              if (const auto set = cache.of(kube::kDaemonSets).get(kube::object_key(options.ns, daemonset)))
                look_where_wanted(*set);
            }),
        policies(
            l,
            [this](const std::string& key, const Finished& done) {
              if (const Finished rest = rested(policies, key, policy_rest, done)) reconcile(rest);
            },
            policy_queue()),
        nodes(
            l, [this](const std::string& name, const Finished& done) { reconcile_node(name, done); },
            node_queue()),
        drivers(
            l,
            [this](const std::string& key, const Finished& done) {
              if (Finished rest = rested(drivers, key, drivers_rest, done))
                reconcile_drivers(std::move(rest));
            },
            policy_queue()) {
    cache.on_change([this](const kube::Resource& type, const Object& old, const Object& now) {
      changed(type, old, now);
    });
    configured.on_change([this](const Object&, const Object& now) {
      if (now) waker.told(*now);
    });
  }

  static kube::InformerOptions configured_runtimes(const std::string& ns) {
    kube::InformerOptions events;
    events.ns = ns;
    events.field_selector = "reason=" + std::string(kRuntimeConfigured);
    events.keep = {"involvedObject.uid"};
    return events;
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
  void touch_drivers(const kube::Resource& type, const Json& object);
  void pass();
  void reconcile(const Finished& done);
  void reconcile_active(const Object& live, const Finished& done);
  void finish(const Object& live, Outcome outcome, const StatusNotes& notes, bool retry,
              const Finished& done);
  std::vector<StateReport> report(const Plan& plan, const Applier::Report& applied) const;
  void add_all_nodes();
  std::string nodes_without_gpus() const;
  void nodes_refused(const kube::ApiError& error);
  void tell_unsynced();
  void label_namespace(std::int64_t generation);
  NodeChange labels_of(const Object& node);
  Object config_map(const std::string& name) const;
  bool made_for(const Label& label, const std::string& node);
  std::vector<std::string> wrong_choices();
  void patch_node(const Object& node, const NodeChange& change, const TaintChange& taints, bool turn,
                  const Finished& done);
  void look_again(const std::string& node);
  void look_where_wanted(const Json& daemonset);
  void label_again(const std::string& node);
  void look(const Object& node, const fleet::NodeChain& chain, bool wanted, const Finished& done);
  ClusterView view() const;
  void reconcile_node(const std::string& name, const Finished& done);
  void reconcile_drivers(Finished done);
  void drivers_pass();
  Finished rested(kube::WorkQueue& queue, const std::string& key, Duration& until, const Finished& done);
  std::vector<Object> all_policies() const;
  std::string gpu_cluster() const;

  Loop& loop;
  kube::Client& client;
  ControllerOptions options;
  Metrics& metrics;
  ClusterCache cache;
  Server server;
  kube::EventRecorder events;
  Applier applier;
  StatusWriter status;
  DriverController driver_controller;
  NodeHealth health;
  Waker waker;
  kube::Informer configured;  // Events of toolkits
  RefusedPods refused_pods;
  kube::WorkQueue policies;
  kube::WorkQueue nodes;
  kube::WorkQueue drivers;
  std::optional<policy::ClusterPolicySpec> active_spec;  // once it could be read
  bool leading = false;
  Duration policy_rest{0}, drivers_rest{0};  // no pass before (loop time)
  std::string active;                        // name of the active policy
  std::int64_t seen_generation = -1;         // of the active policy, when the server was last asked
  std::int64_t nodes_generation = -1;        // of the active policy, when all nodes were last looked at
  NodeChoices node_choices;
  LabelTurns turns;
  std::optional<LabelRules> rules;            // of the active policy, once it could be read
  std::set<std::string> held_nodes;           // whose turn came while a kind was not listed yet
  std::map<std::string, Duration> vanished;   // node to when its GPU label was first missed (loop time)
  std::map<std::string, std::string> warned;  // node to the last warning, so that each is said once
  std::vector<std::string> last_warnings;
  std::int64_t namespace_generation = -1;  // of the policy for which the namespace was last labelled
  std::string namespace_fault;
  std::string refused_nodes;  // why nodes are not labelled: a right that is missing; "" when they are
  std::string broken_nodes;   // as the policy's condition last had them
  std::vector<std::string> kept_off_nodes;  // the same
  Handle waiting;                           // for the cache's first lists
};

namespace {

constexpr Duration kWordsDelay = 200ms;
// From a pass to the next: 200 ms with 5,000 nodes; small clusters have none.
constexpr std::size_t kLarge = 100;
constexpr Duration kRestPerNode = 40us;
constexpr Duration kUnsynced = 10s;
constexpr Duration kAgain = 30s;

constexpr const char* kNoFeatures =
    "node feature discovery: its kind nodefeatures.nfd.k8s-sigs.io is not in the cluster: labels of nodes "
    "stay "
    "as they are, and nodes that join get none; bring its CustomResourceDefinition back (helm upgrade, or "
    "kubectl apply -k deploy)";

// Whether the master of node feature discovery wrote labels on a node.
bool any_node_is_discovered(const ClusterCache& cache) {
  bool any = false;
  cache.of(kube::kNodes).for_each([&any](const Object& node) {
    any = any || !kube::annotation(*node, "nfd.node.kubernetes.io/feature-labels").empty();
  });
  return any;
}

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

// Whether a node's labels are to be decided anew; one that was made again in between is another.
bool concern_labels(const Json& before, const Json& now) {
  return kube::uid_of(before) != kube::uid_of(now) ||
         concerns_labels(get_object(before, {"metadata", "labels"}), get_object(now, {"metadata", "labels"}));
}

// DaemonSets that come in layouts: by kernel, by RHCOS version, or one for all.
bool leaves_pods(std::string_view daemonset) {
  return daemonset.starts_with("nvidia-driver-daemonset") ||
         daemonset.starts_with("nvidia-vgpu-manager-daemonset");
}

// What of a node's state its chain and its taints depend on.
bool same_health(const Json& a, const Json& b) {
  const auto same = [&](std::string_view part, std::string_view field) {
    const Json* left = find(a, {part, field});
    const Json* right = find(b, {part, field});
    return left && right ? *left == *right : left == right;
  };
  return same("status", "conditions") && same("status", "allocatable") && same("status", "capacity") &&
         same("status", "nodeInfo") && same("spec", "taints");
}

}  // namespace

void Controller::Impl::pass() {
  if (leading && cache.synced()) {
    policies.add("policy");
    for (const std::string& node : std::exchange(held_nodes, {})) nodes.add(node);
  }
  drivers_pass();
}

// What happens meanwhile in a large cluster is one pass; the first news after a rest is not kept waiting.
// Null: there is still a rest, and the pass comes at its end.
Finished Controller::Impl::rested(kube::WorkQueue& queue, const std::string& key, Duration& until,
                                  const Finished& done) {
  if (const Duration left = until - loop.elapsed(); left > Duration::zero()) {
    queue.add_after(key, left);
    done(true);
    return nullptr;
  }
  return [this, &until, done](bool ok) {
    const std::size_t count = cache.gpu_nodes().count();
    if (count > kLarge) until = loop.elapsed() + kRestPerNode * static_cast<int>(count);
    done(ok);
  };
}

void Controller::Impl::drivers_pass() {
  if (leading && cache.synced()) drivers.add("drivers");
}

void Controller::Impl::reconcile_drivers(Finished done) {
  if (!leading) return done(true);
  if (!server.known()) {
    // Tells whether the kind is there; its first list asks for the next pass.
    return server.ask([done](const Result<>& known) {
      if (!known) log::warn(known.error().text());
      done(known.has_value());
    });
  }
  // Until the active policy could be read nobody knows whether these resources are wanted.
  if (!driver_controller.synced() || (!all_policies().empty() && !active_spec)) return done(true);
  driver_controller.pass(active_spec, server.facts(), std::move(done));
}

void Controller::Impl::changed(const kube::Resource& type, const Object& old, const Object& now) {
  if (type.kind == "Node") return node_changed(old, now);
  if (!old && !now) {
    driver_controller.touch_all();
    return pass();
  }
  applier.seen(now ? *now : *old, !now);
  driver_controller.seen(now ? *now : *old, !now);
  touch_drivers(type, now ? *now : *old);
  if (type.kind == "NVIDIADriver" || type.kind == "GPUCluster") {
    // Our own status writes come back here and ask for nothing.
    if (old && now &&
        get_int(*old, {"metadata", "generation"}) == get_int(*now, {"metadata", "generation"}) &&
        has(*old, {"metadata", "deletionTimestamp"}) == has(*now, {"metadata", "deletionTimestamp"}))
      return;
    driver_controller.touch_all();
    return pass();
  }
  if (type.kind == "ClusterPolicy" && old && now) {
    // Our own status writes come back here and ask for nothing.
    if (get_int(*old, {"metadata", "generation"}) == get_int(*now, {"metadata", "generation"}) &&
        get_string(*old, {"metadata", "uid"}) == get_string(*now, {"metadata", "uid"})) {
      return;
    }
  }
  if (type.kind == "ClusterPolicy") driver_controller.touch_all();
  if (type.kind == "DaemonSet") refused_pods.seen(now ? *now : *old, !now);
  if (type.kind == "DaemonSet" && (!old || !now || moves_pods(*old, *now)))
    look_where_wanted(now ? *now : *old);
  if (type.kind == "Pod") {
    waker.changed(old, now);
    const Object& pod = now ? now : old;
    const Json* before = old ? find(*old, {"status"}) : nullptr;
    const Json* after = now ? find(*now, {"status"}) : nullptr;
    const auto note = [](const Object& each) {
      return each ? kube::annotation(*each, hardware::kValidationAnnotation) : std::string_view();
    };
    const auto ends = [](const Object& each) { return has(*each, {"metadata", "deletionTimestamp"}); };
    if (!before || !after || *before != *after || note(old) != note(now) || ends(old) != ends(now))
      look_again(str(fleet::target_node(*pod)));
    // A driver that comes up is an event of its node's labels (operator.md §3.5).
    const auto runs = [](const Object& each) {
      return each && get_string(*each, {"status", "phase"}) == "Running";
    };
    if (now && kube::label(*now, "app.kubernetes.io/component") == "nvidia-driver" &&
        (!old || (runs(now) && !runs(old))))
      label_again(str(fleet::target_node(*now)));
    // Beside that they matter for OnDelete readiness alone, and there only what their status says.
    const Json* owner = kube::controller_of(*pod);
    if (!owner || get_string(*owner, {"kind"}) != "DaemonSet") return;
    const auto set =
        cache.of(kube::kDaemonSets).get(kube::object_key(options.ns, get_string(*owner, {"name"})));
    // The last one of a layout that was left lets the next one be ready.
    const bool last_ones = !set && !now && leaves_pods(get_string(*owner, {"name"}));
    if (!last_ones && (!set || get_string(*set, {"spec", "updateStrategy", "type"}) != "OnDelete")) return;
  }
  pass();
}

// Which NVIDIADrivers an event concerns.
void Controller::Impl::touch_drivers(const kube::Resource& type, const Json& object) {
  const Json* owner = kube::controller_of(object);
  if (owner && get_string(*owner, {"kind"}) == "NVIDIADriver") {
    driver_controller.touch(str(get_string(*owner, {"name"})));
    // The probe's script is one for all of them.
    if (type.kind != "ConfigMap") return;
  }
  // What they refer to, and what OpenShift gives every driver.
  for (std::string_view kind : {"ConfigMap", "Secret", "Proxy", "ImageStream"})
    if (type.kind == kind) driver_controller.touch_all();
  // Pods and revisions belong to a DaemonSet, which belongs to one.
  if (owner && get_string(*owner, {"kind"}) == "DaemonSet") {
    const auto set =
        cache.of(kube::kDaemonSets).get(kube::object_key(options.ns, get_string(*owner, {"name"})));
    const Json* above = set ? kube::controller_of(*set) : nullptr;
    if (above && get_string(*above, {"kind"}) == "NVIDIADriver")
      driver_controller.touch(str(get_string(*above, {"name"})));
  }
}

void Controller::Impl::node_changed(const Object& old, const Object& now) {
  if (!now) {
    turns.forget(std::string(kube::name_of(*old)));
    vanished.erase(std::string(kube::name_of(*old)));
    warned.erase(std::string(kube::name_of(*old)));
    health.forget(std::string(kube::name_of(*old)));
    driver_controller.touch_node(std::string(kube::name_of(*old)));
    if (is_gpu(old) || !server.known()) pass();
    return;
  }
  const bool own = turns.seen(std::string(kube::name_of(*now)), version_of(*now), loop.elapsed());
  if (own || !old || concern_labels(*old, *now)) label_again(std::string(kube::name_of(*now)));
  if (old && driver_controller.selects_otherwise(*old, *now)) {
    driver_controller.touch_node(std::string(kube::name_of(*now)));
    label_again(std::string(kube::name_of(*now)));
    drivers_pass();
  }
  if (old && same_relevant(*old, *now)) {
    if (same_health(*old, *now)) return;
    look_again(std::string(kube::name_of(*now)));
    if (fleet::not_allocatable(*old) != fleet::not_allocatable(*now) ||
        get_array(*old, {"spec", "taints"}) != get_array(*now, {"spec", "taints"}) ||
        fleet::node_fault(*old).empty() != fleet::node_fault(*now).empty())
      pass();
    return;
  }
  driver_controller.touch_node(std::string(kube::name_of(*now)));
  if (leading && rules) nodes.add(std::string(kube::name_of(*now)));
  // Rendering looks at GPU nodes; readiness and its words at whether any node is labelled at all.
  const bool first_labels = has_feature_labels(get_object(*now, {"metadata", "labels"})) &&
                            (!old || !has_feature_labels(get_object(*old, {"metadata", "labels"})));
  if (is_gpu(now) || is_gpu(old) || first_labels) pass();
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
  out.gpu_nodes = cache.gpu_nodes().count();
  out.lost.assign(cache.gpu_nodes().lost().begin(), cache.gpu_nodes().lost().end());
  out.kept_off = health.kept_off();
  out.has_feature_labels = cache.gpu_nodes().any_feature_labels();
  return out;
}

// The GPUCluster, which no ClusterPolicy may stand beside; "" when there is none.
std::string Controller::Impl::gpu_cluster() const {
  std::string name;
  if (cache.synced(kube::kGpuClusters))
    cache.of(kube::kGpuClusters).for_each([&name](const Object& each) { name = kube::name_of(*each); });
  return name;
}

void Controller::Impl::reconcile(const Finished& done) {
  if (!leading) return done(true);
  const auto all = all_policies();
  const std::string chosen = active_policy(all);
  if (cache.synced(kube::kGpuClusters)) {
    cache.of(kube::kGpuClusters).for_each([&](const Object& each) {
      status.write(kube::kGpuClusters, *each, gpu_cluster_outcome(chosen), {});
    });
  }
  metrics.set_gpu_nodes(view().gpu_nodes);
  if (chosen.empty()) {
    active.clear();
    rules.reset();
    active_spec.reset();
    metrics.set_status(-1);
    // Nobody serves the nodes any more: what the operator says of them goes.
    cache.of(kube::kNodes).for_each([this](const Object& node) {
      if (kube::condition(*node, kGpuReady) || !take_taints(*node).empty())
        nodes.add(std::string(kube::name_of(*node)));
    });
    return done(true);
  }
  for (const auto& policy : all) {
    if (kube::name_of(*policy) != chosen)
      status.write(kube::kClusterPolicies, *policy, ignored_outcome(chosen), {});
  }
  const auto live = cache.of(kube::kClusterPolicies).get(chosen);
  if (chosen != active) {
    log::info("active ClusterPolicy", {{"logger", "controllers.ClusterPolicy"}, {"name", chosen}});
    active = chosen;
    seen_generation = nodes_generation = -1;
  }
  // Installed types may change between edits of the policy, not between two events of a DaemonSet.
  const std::int64_t generation = get_int(*live, {"metadata", "generation"});
  if (server.known() && generation == seen_generation) return reconcile_active(live, done);
  if (!has(*live, {"status", "state"}))
    status.write(kube::kClusterPolicies, *live, reconciling_outcome(), {});
  server.ask([this, live, generation, done](const Result<>& known) {
    if (!known) return finish(live, unusable_outcome(known.error().text()), {.looked = false}, true, done);
    seen_generation = generation;
    // Kinds that are watched from now on: their first lists ask for the next pass.
    if (!cache.synced()) {
      waiting = loop.after(kUnsynced, [this] { tell_unsynced(); });
      return done(true);
    }
    driver_controller.touch_all();  // what the server is may have changed
    reconcile_active(live, done);
  });
}

void Controller::Impl::reconcile_active(const Object& live, const Finished& done) {
  // Tried again when either of the two changes.
  if (const std::string other = gpu_cluster(); !other.empty()) {
    rules.reset();
    return finish(live, excluded_outcome(other), {.looked = false}, false, done);
  }
  auto parsed = policy::parse_cluster_policy(*live);
  if (!parsed) return finish(live, unusable_outcome(parsed.error().text()), {.looked = false}, false, done);
  StatusNotes notes;
  for (const auto& note : parsed->notes) notes.fields.push_back(note.text);
  notes.dropped = server.dropped();
  if (auto checked = policy::check(parsed->spec); !checked) {
    return finish(live, unusable_outcome(checked.error().text()), notes, false, done);
  }
  const auto before = std::exchange(rules, label_rules(parsed->spec));
  if (parsed->spec.driver.use_nvidia_driver_crd && driver_controller.synced())
    rules->auto_upgrade_by_owner = driver_controller.auto_upgrades();
  rules->choices =
      node_choices.of(parsed->spec, [this](const std::string& name) { return config_map(name); });
  active_spec = parsed->spec;
  drivers_pass();
  label_namespace(get_int(*live, {"metadata", "generation"}));
  if (!namespace_fault.empty()) notes.advice.push_back(namespace_fault);
  for (std::string& wrong : wrong_defaults(parsed->spec, rules->choices))
    notes.advice.push_back(std::move(wrong));
  metrics.set_auto_upgrade(rules->auto_upgrade);
  if (std::exchange(nodes_generation, seen_generation) != seen_generation || before != rules) add_all_nodes();
  std::vector<std::string> warnings;
  ClusterFacts facts =
      gather_facts(cache, config_map_refs(parsed->spec), secret_refs(parsed->spec), server.facts());
  facts.own_image = options.own_image;
  facts.env = options.env;
  facts.own_taints = own_taints(rules->taints);
  facts.runtime = detect_runtime(cache, facts.openshift(), warnings);
  metrics.set_driver_toolkit(driver_toolkit_findings(parsed->spec, facts));
  const Review found = review(*live, server.facts(), cache);
  notes.advice.insert(notes.advice.end(), found.advice.begin(), found.advice.end());
  if (!health.refused().empty()) notes.advice.push_back(health.refused());
  if (server.lacks_node_features() && any_node_is_discovered(cache)) notes.advice.emplace_back(kNoFeatures);
  notes.incompatible = found.lines();
  metrics.set_compatibility(found.errors(), found.incompatible.size() - found.errors());
  const auto enforce = options.env.find("COMPATIBILITY_ENFORCE");
  if (found.errors() > 0 && enforce != options.env.end() && enforce->second == "true") {
    const std::string why = "incompatible, and COMPATIBILITY_ENFORCE is true: " + join(found.lines(), "; ");
    return finish(live, failed_outcome(why), notes, false, done);
  }
  auto plan = std::make_shared<Plan>(render(*parsed, facts, options.assets));
  for (auto& state : plan->states) {
    const auto refused = found.refused.find(state.name);
    if (refused != found.refused.end() && state.enabled) state.error.emplace(Code::kInvalid, refused->second);
  }
  for (const auto* more : {&plan->warnings, &notes.advice, &*notes.incompatible})
    warnings.insert(warnings.end(), more->begin(), more->end());
  if (warnings != last_warnings) {
    for (const auto& warning : warnings) {
      if (std::ranges::find(last_warnings, warning) != last_warnings.end()) continue;
      log::warn(warning);
      events.event(*live, "Warning", "ClusterWarning", warning);
    }
    last_warnings = warnings;
  }
  // Of these the nodes' own events tell.
  for (std::string& wrong : wrong_choices()) notes.advice.push_back(std::move(wrong));
  applier.apply(*plan, parsed->uid, [this, live, plan, notes, done](const Applier::Report& applied) {
    metrics.count_write(applied.writes);
    const auto states = report(*plan, applied);
    const ClusterView seen = view();
    metrics.set_has_nfd_labels(seen.has_feature_labels);
    StatusNotes all = notes;
    all.advice.insert(all.advice.end(), applied.changed_by_others.begin(), applied.changed_by_others.end());
    if (applied.again) policies.add_after("policy", *applied.again);
    finish(live, outcome_of(states, seen), all, !applied.errors.empty() || applied.raced, done);
  });
}

// What holds for each node has changed; else a node's own events bring it.
void Controller::Impl::add_all_nodes() {
  cache.of(kube::kNodes).for_each([this](const Object& node) {
    const auto& labels = get_object(*node, {"metadata", "labels"});
    if (has_gpu_feature(labels) || labels.contains("nvidia.com/gpu.present"))
      label_again(std::string(kube::name_of(*node)));
  });
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
      const Readiness readiness = live_readiness(cache, object);
      if (readiness.ready) continue;
      entry.ready = false;
      entry.reason = readiness.reason;
      entry.fault = readiness.fault;
      break;
    }
    // Two layouts of one driver do not stand on a node (operator.md §3.6).
    for (const Sweep& sweep : state.sweeps) {
      if (!entry.enabled || !entry.ready || !entry.error.empty()) break;
      const std::string pod = cache.pod_of_a_gone_daemonset(sweep.name_prefix);
      entry.ready = pod.empty();
      if (!pod.empty()) entry.reason = "pod " + pod + " of another layout is still there";
    }
    if (entry.enabled && entry.ready && entry.error.empty() && entry.name == "state-device-plugin") {
      entry.reason = nodes_without_gpus();
      entry.ready = entry.reason.empty();
      entry.fault = !entry.ready;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

// The plugin's pods may all run while the kubelet has no healthy device of theirs. The first few nodes by
// name.
std::string Controller::Impl::nodes_without_gpus() const {
  constexpr std::size_t kShown = 3;
  const auto& without = cache.gpu_nodes().not_allocatable();
  std::vector<std::string> all;
  for (const auto& [name, why] : without) {
    if (all.size() == kShown) break;
    const auto* link = health.link_of(name);
    all.push_back("node " + name + ": " + (link ? link->text() : why));
  }
  const std::size_t more = without.size() - all.size();
  return join(all, "; ") + (more > 0 ? "; and " + std::to_string(more) + " more" : "");
}

void Controller::Impl::finish(const Object& live, Outcome outcome, const StatusNotes& notes, bool retry,
                              const Finished& done) {
  // What nodes do not get is no state's error.
  if (!refused_nodes.empty() && outcome.reason != "ReconcileFailed") outcome = failed_outcome(refused_nodes);
  metrics.set_status(outcome.metric);
  metrics.count_pass(!outcome.ready);
  if (outcome.reason == "ReconcileFailed") metrics.count_error();
  broken_nodes = health.words();
  kept_off_nodes = health.kept_off();
  if (outcome.reason == "OperandNotReady" && !broken_nodes.empty()) {
    outcome.message += "; " + broken_nodes;
    outcome.on_its_way = false;
  }
  if (outcome.ready) {
    metrics.set_last_success(std::chrono::duration<double>(loop.now().time_since_epoch()).count());
  }
  status.write(kube::kClusterPolicies, *live, outcome, notes);
  done(!retry);
}

void Controller::Impl::look_again(const std::string& node) {
  if (leading && !node.empty()) nodes.add(node);
}

void Controller::Impl::look_where_wanted(const Json& daemonset) {
  if (const Json* spec = find(daemonset, {"spec", "template", "spec"}); spec && leading)
    for (const std::string& node : cache.gpu_nodes().placed(*spec)) look_again(node);
}

// Without rules nobody labels; whatever they are, their coming gives every node a turn.
void Controller::Impl::label_again(const std::string& node) {
  if (!leading || !rules || node.empty()) return;
  turns.add(node);
  nodes.add(node);
}

void Controller::Impl::look(const Object& node, const fleet::NodeChain& chain, bool wanted,
                            const Finished& done) {
  const std::string name(kube::name_of(*node));
  if (const auto wait = health.look(*node, chain, wanted, done)) nodes.add_after(name, *wait);
  // The policy's condition has the same words; many nodes that fail at once are one pass.
  const bool news = health.words() != broken_nodes || health.kept_off() != kept_off_nodes;
  if (news && !active.empty()) policies.add_after("policy", kWordsDelay);
}

void Controller::Impl::reconcile_node(const std::string& name, const Finished& done) {
  const auto node = cache.of(kube::kNodes).get(name);
  if (!leading || !node) return done(true);
  // Its turn comes when every kind has been listed.
  if (!cache.synced()) {
    held_nodes.insert(name);
    return done(true);
  }
  if (!rules) {
    // A policy that cannot be read, or stands beside a GPUCluster, takes nothing away.
    if (!all_policies().empty()) return done(true);
    const TaintChange taints = take_taints(*node);
    if (taints.empty()) return look(node, {}, false, done);
    return patch_node(node, {}, taints, false, done);
  }
  const bool turn = turns.take(name, version_of(*node));
  NodeChange change = labels_of(node);
  if (!turn) {
    change.labels.clear();
    change.annotations.clear();
  }
  if (change.wait) turns.add(name);
  const bool served = change.gpu && wants_operands(*node);
  const auto chain = health.chain(*node, refused_pods.why());
  const bool advertised = !active_spec->device_plugin.enabled || fleet::not_allocatable(*node).empty();
  const bool validated = chain.usable() && is_gpu(node) && advertised;
  const TaintChange taints = decide_taints(*node, rules->taints, change.gpu, served, validated);
  // The patch's own event brings the node back here, and looks at what it was decided on once more.
  if (change.empty() && taints.empty()) return look(node, chain, is_gpu(node) && served, done);
  patch_node(node, change, taints, turn, done);
}

Object Controller::Impl::config_map(const std::string& name) const {
  return cache.of(kube::kConfigMaps).get(kube::object_key(options.ns, name));
}

// A MIG configuration that the node's own manager offers beside those of the default file.
bool Controller::Impl::made_for(const Label& label, const std::string& node) {
  return label.first == "nvidia.com/mig.config" && active_spec &&
         active_spec->mig_manager.config.name.empty() &&
         node_choices.made_for(node, [this](const std::string& name) { return config_map(name); })
             .contains(label.second);
}

// What nodes' labels choose and is not there, with the first few of the nodes.
std::vector<std::string> Controller::Impl::wrong_choices() {
  std::vector<std::string> out;
  for (const auto& choice : cache.gpu_nodes().choices()) {
    const Label& label = choice.first;
    if (label.first == "nvidia.com/gpu.workload.config" && !rules->sandbox) continue;
    const std::string wrong = wrong_choice(label, rules->choices);
    if (wrong.empty()) continue;
    std::vector<std::string> nodes(choice.second.begin(), choice.second.end());
    std::erase_if(nodes, [&](const std::string& node) { return made_for(label, node); });
    if (nodes.empty()) continue;
    out.push_back("node " + first_few(nodes) + ": " + wrong);
  }
  return out;
}

NodeChange Controller::Impl::labels_of(const Object& node) {
  const std::string name(kube::name_of(*node));
  const auto& labels = get_object(*node, {"metadata", "labels"});
  std::optional<Duration> missing;
  if (!has_gpu_feature(labels) && is_gpu(node)) {
    const auto since = vanished.emplace(name, loop.elapsed()).first->second;
    missing = loop.elapsed() - since;
  } else {
    vanished.erase(name);
  }
  NodeChange change = decide_node(labels, get_object(*node, {"metadata", "annotations"}), *rules, missing);
  if (change.wait) nodes.add_after(name, *change.wait);
  for (const auto& [key, value] : labels) {
    const Label label(key, as_text(value));
    // Of the workload decide_node() has said it.
    if (!change.gpu || label.first == "nvidia.com/gpu.workload.config") continue;
    std::string wrong = wrong_choice(label, rules->choices);
    if (!wrong.empty() && !made_for(label, name)) change.warnings.push_back(std::move(wrong));
  }
  const std::string warning = join(change.warnings, "; ");
  if (warning.empty()) {
    warned.erase(name);
  } else if (std::exchange(warned[name], warning) != warning) {
    log::warn(warning, {{"node", name}});
    events.event(*node, "Warning", "GPUOperatorNodeLabels", warning);
  }
  return change;
}

void Controller::Impl::patch_node(const Object& node, const NodeChange& change, const TaintChange& taints,
                                  bool turn, const Finished& done) {
  const std::string name(kube::name_of(*node));
  Json patch = node_patch(change);
  add_taints(patch, taints, *node);
  client
      .patch(kube::kNodes, "", name, kube::Patch::kMerge, patch, {},
             [this, name, turn, done](kube::ApiResult<> result) {
               if (turn && !result && !result.error().not_found())
                 turns.failed(name, result.error().unavailable(), loop.elapsed());
               if (const auto known = cache.of(kube::kNodes).get(name); turn && result && known)
                 turns.written(name, version_of(*result), version_of(*known));
               // A conflict is news of the node that is on its way here.
               if (!result && !result.error().not_found()) {
                 if (!result.error().conflict())
                   log::warn("node was not labelled", {{"node", name}, {"error", result.error().message}});
                 if (result.error().forbidden()) nodes_refused(result.error());
                 return done(false);
               }
               log::info("labelled", {{"logger", "controllers.NodeLabeling"}, {"node", name}});
               if (!std::exchange(refused_nodes, {}).empty()) pass();
               done(true);
             })
      .detach();
}

// Once for each form of the policy: who takes a label away later means it.
void Controller::Impl::label_namespace(std::int64_t generation) {
  if (namespace_generation == generation ||
      (!active_spec->psa.enabled && server.facts().openshift_version.empty()))
    return;
  namespace_generation = generation;
  const auto failed = [this](const kube::ApiError& error) {
    namespace_fault =
        error.error("label namespace '" + options.ns + "'").text() + cure_of_refusal(error.message);
    namespace_generation = -1;
    policies.add_after("policy", kAgain);
  };
  client
      .get(kube::kNamespaces, "", options.ns,
           [this, failed, wanted = active_spec->psa.enabled](kube::ApiResult<> live) {
             if (!live) return failed(live.error());
             const Json patch = namespace_patch(*live, wanted, !server.facts().openshift_version.empty());
             if (patch.get_object().empty()) return namespace_fault.clear();
             client
                 .patch(kube::kNamespaces, "", options.ns, kube::Patch::kMerge, patch, {},
                        [this, failed](kube::ApiResult<> written) {
                          if (!written) return failed(written.error());
                          namespace_fault.clear();
                          log::info("labelled the namespace", {{"namespace", options.ns}});
                        })
                 .detach();
           })
      .detach();
}

void Controller::Impl::nodes_refused(const kube::ApiError& error) {
  const std::string why = error.error("label nodes").text() + cure_of_refusal(error.message);
  if (std::exchange(refused_nodes, why) != why) pass();
}

// A kind that may not be listed or watched keeps every pass from its start: it is said on the policies, and
// again for as long as it is so.
void Controller::Impl::tell_unsynced() {
  if (cache.synced()) return;
  waiting = loop.after(kUnsynced, [this] { tell_unsynced(); });
  const std::string fault = cache.fault();
  if (fault.empty()) return;
  const std::string why = "read the cluster: " + fault + cure_of_refusal(fault);
  log::error(why);
  if (!cache.of(kube::kClusterPolicies).synced()) return;
  for (const auto& policy : all_policies())
    status.write(kube::kClusterPolicies, *policy, failed_outcome(why), {.looked = false});
}

Controller::Controller(Loop& loop, kube::Client& client, ControllerOptions options, Metrics& metrics)
    : impl_(std::make_unique<Impl>(loop, client, std::move(options), metrics)) {}
Controller::~Controller() = default;

void Controller::start_watching() {
  impl_->cache.start([raw = impl_.get()] { raw->pass(); });
  impl_->server.watch_definitions([raw = impl_.get()] { raw->pass(); });
  impl_->configured.start();
}
kube::Informer& Controller::nodes() {
  return impl_->cache.of(kube::kNodes);
}
bool Controller::synced() const {
  return impl_->cache.synced();
}
void Controller::lead() {
  impl_->leading = true;
  impl_->waiting = impl_->loop.after(kUnsynced, [raw = impl_.get()] { raw->tell_unsynced(); });
  impl_->waker.lead();
  impl_->pass();
}

}  // namespace gpuop::op
