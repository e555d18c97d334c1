#include "operator/driver_controller.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "operator/taints.h"

namespace gpuop::op {
namespace {

Outcome driver_failed(const std::string& message) {
  return {"notReady", false, "ReconcileFailed", "Error syncing state state-driver: " + message, 0};
}

Outcome driver_waiting(const std::string& why) {
  return {"notReady", false, "DriverNotReady",
          "Waiting for driver pod to be ready" + (why.empty() ? "" : ": " + why), 0};
}

Outcome driver_ready() {
  return {"ready", true, "Reconciled", "All resources have been successfully reconciled", 1};
}

Outcome driver_disabled() {
  return {"disabled", false, "Reconciled", "useNvidiaDriverCRD is not enabled in ClusterPolicy", 0};
}

}  // namespace

struct DriverController::Pass {
  std::optional<policy::ClusterPolicySpec> active;
  ServerFacts server;
  std::function<void(bool)> done;
  bool ok = true;
  std::shared_ptr<const Nodes> nodes;
  std::vector<std::pair<Object, policy::NvidiaDriver>> todo;
  std::size_t at = 0;
  std::string now;            // the resource that is under way
  std::size_t labelling = 0;  // owner labels without an answer yet
  bool walked = false;        // every resource is through
};

DriverController::DriverController(kube::Client& client, ClusterCache& cache,
                                   const ControllerOptions& options, StatusWriter& status,
                                   kube::EventRecorder& events, std::function<void()> ask_for_pass)
    : client_(client),
      cache_(cache),
      options_(options),
      status_(status),
      applier_(client, cache, events),
      ask_for_pass_(std::move(ask_for_pass)) {}

bool DriverController::synced() const {
  return cache_.synced(kube::kNvidiaDrivers);
}

std::vector<DriverController::Object> DriverController::live_drivers() const {
  std::vector<Object> out;
  cache_.of(kube::kNvidiaDrivers).for_each([&out](const Object& driver) {
    if (!has(*driver, {"metadata", "deletionTimestamp"})) out.push_back(driver);
  });
  return out;
}

const Result<policy::NvidiaDriver>& DriverController::parsed(const Json& live) const {
  const std::string name(kube::name_of(live));
  const std::string version(get_string(live, {"metadata", "resourceVersion"}));
  const auto found = read_.find(name);
  if (found != read_.end() && found->second.version == version) return found->second.driver;
  return read_.insert_or_assign(name, Read{version, policy::parse_nvidia_driver(live)}).first->second.driver;
}

std::map<std::string, bool> DriverController::auto_upgrades() const {
  std::map<std::string, bool> out;
  for (const auto& live : live_drivers()) {
    if (const auto& driver = parsed(*live)) out[driver->name] = driver->spec.upgrade_policy.auto_upgrade;
  }
  return out;
}

bool DriverController::selects_otherwise(const Json& old, const Json& now) const {
  if (!synced()) return false;
  return std::ranges::any_of(live_drivers(), [&](const Object& live) {
    const auto& driver = parsed(*live);
    return driver && std::ranges::any_of(driver->spec.node_selector, [&](const auto& entry) {
             return kube::label(old, entry.first) != kube::label(now, entry.first);
           });
  });
}

void DriverController::touch_node(const std::string& node) {
  nodes_.reset();
  const auto owner = owners_.find(node);
  if (owner != owners_.end() && !owner->second.empty()) touched_.insert(owner->second);
}

void DriverController::touch_changed_hands(const DriverOwnership& ownership) {
  const auto touch_owner = [this](const std::string& owner) {
    if (!owner.empty()) touched_.insert(owner);
  };
  for (const auto& [node, owner] : ownership.owner) {
    const auto before = owners_.find(node);
    if (before != owners_.end() && before->second == owner) continue;
    touch_owner(owner);
    if (before != owners_.end()) touch_owner(before->second);
  }
  for (const auto& [node, owner] : owners_) {
    if (!ownership.owner.contains(node)) touch_owner(owner);
  }
  owners_ = ownership.owner;
  std::map<std::string, std::string> refused;
  for (const auto& [name, why] : ownership.refused) refused[name] = why.reason + ": " + why.message;
  for (const auto* one : {&refused, &refused_}) {
    const auto& other = one == &refused ? refused_ : refused;
    for (const auto& [name, why] : *one) {
      const auto there = other.find(name);
      if (there == other.end() || there->second != why) touched_.insert(name);
    }
  }
  refused_ = std::move(refused);
}

std::vector<DriverNode> DriverController::gpu_nodes() const {
  std::vector<DriverNode> out;
  cache_.of(kube::kNodes).for_each([&out](const Object& node) {
    if (kube::label(*node, "nvidia.com/gpu.present") == "true")
      out.push_back({std::string(kube::name_of(*node)), get_object(*node, {"metadata", "labels"})});
  });
  return out;
}

void DriverController::pass(const std::optional<policy::ClusterPolicySpec>& active, const ServerFacts& server,
                            std::function<void(bool)> done) {
  auto pass = std::make_shared<Pass>();
  pass->active = active;
  pass->server = server;
  pass->done = std::move(done);
  const bool enabled = !active || active->driver.use_nvidia_driver_crd;
  std::vector<policy::NvidiaDriver> drivers;
  const auto all = live_drivers();
  std::erase_if(read_,
                [this](const auto& entry) { return !cache_.of(kube::kNvidiaDrivers).get(entry.first); });
  for (const auto& live : all) {
    if (!enabled) {
      write_status(live, driver_disabled(), {});
      continue;
    }
    const auto& driver = parsed(*live);
    if (!driver) {
      write_status(live, {"notReady", false, "ReconcileFailed", driver.error().text(), 0}, {});
      continue;
    }
    pass->todo.emplace_back(live, *driver);
    drivers.push_back(*driver);
  }
  // Only a node or a resource that changed makes another owner.
  const bool news = all_touched_ || !nodes_;
  if (news) {
    Nodes now;
    if (!all.empty()) now.all = gpu_nodes();
    now.ownership = decide_ownership(drivers, now.all);
    nodes_ = std::make_shared<const Nodes>(std::move(now));
  }
  pass->nodes = nodes_;
  std::vector<std::string> warnings;
  if (const auto runtime = detect_runtime(cache_, !server.openshift_version.empty(), warnings);
      std::exchange(runtime_, runtime) != runtime)
    all_touched_ = true;
  if (news) touch_changed_hands(pass->nodes->ownership);
  if (!all_touched_)
    std::erase_if(pass->todo, [this](const auto& entry) { return !touched_.contains(entry.second.name); });
  all_touched_ = false;
  touched_.clear();
  // Without these resources nobody's label is looked at: they may be another operator's.
  if (news && enabled && !all.empty()) label_nodes(pass);
  next(pass);
}

void DriverController::label_nodes(const std::shared_ptr<Pass>& pass) {
  const auto& owner = pass->nodes->ownership.owner;
  for (const auto& node : pass->nodes->all) {
    const auto wanted = owner.find(node.name);
    if (wanted == owner.end()) continue;
    const Json* present = node.labels.if_contains(kDriverOwner);
    if (wanted->second == (present ? as_text(*present) : "")) continue;
    const Json value = wanted->second.empty() ? Json(nullptr) : Json(wanted->second);
    const Json patch = JsonObject{{"metadata", JsonObject{{"labels", JsonObject{{kDriverOwner, value}}}}}};
    ++pass->labelling;
    client_
        .patch(kube::kNodes, "", node.name, kube::Patch::kMerge, patch, {},
               [this, pass, name = node.name](const kube::ApiResult<>& result) {
                 --pass->labelling;
                 if (!result && !result.error().not_found()) {
                   log::warn("node got no driver owner", {{"node", name}, {"error", result.error().message}});
                   nodes_.reset();
                   pass->ok = false;
                 }
                 end_if_through(pass);
               })
        .detach();
  }
}

void DriverController::failed(Pass& pass) {
  touch(pass.now);
  pass.ok = false;
}

// What failed after the pass would never be tried again.
void DriverController::end_if_through(const std::shared_ptr<Pass>& pass) {
  if (!pass->walked || pass->labelling > 0) return;
  client_.loop().post([pass] { std::exchange(pass->done, nullptr)(pass->ok); });
}

void DriverController::next(const std::shared_ptr<Pass>& pass) {
  if (pass->at == pass->todo.size()) {
    pass->walked = true;
    return end_if_through(pass);
  }
  const auto& [live, driver] = pass->todo[pass->at++];
  pass->now = driver.name;
  const auto refused = pass->nodes->ownership.refused.find(driver.name);
  if (refused == pass->nodes->ownership.refused.end()) return reconcile(pass, live, driver);
  write_status(live, {"notReady", false, refused->second.reason, refused->second.message, 0}, driver.notes);
  next(pass);
}

ClusterFacts DriverController::facts_for(const Pass& pass, const policy::NvidiaDriverSpec& spec) const {
  ClusterFacts facts = gather_facts(cache_, config_map_refs(spec), secret_refs(spec), pass.server);
  facts.own_image = options_.own_image;
  facts.env = options_.env;
  if (pass.active) facts.own_taints = own_taints(taint_rules(*pass.active));
  std::vector<std::string> warnings;
  facts.runtime = detect_runtime(cache_, facts.openshift(), warnings);
  return facts;
}

// The startup probe's script is one object for all resources: as long as it says what it should and one of
// them owns it, it is left alone, or two resources would write it in turns for ever.
void DriverController::keep_shared_script(State& state) const {
  std::erase_if(state.objects, [this](const Json& object) {
    if (get_string(object, {"kind"}) != "ConfigMap") return false;
    const auto live = cache_.live(ref_of(object));
    const Json* owner = live ? kube::controller_of(*live) : nullptr;
    if (!owner || get_string(*owner, {"kind"}) != "NVIDIADriver") return false;
    const auto owning = cache_.of(kube::kNvidiaDrivers).get(get_string(*owner, {"name"}));
    const Json* data = find(*live, {"data"});
    return owning && get_string(*owning, {"metadata", "uid"}) == get_string(*owner, {"uid"}) && data &&
           *data == *find(object, {"data"});
  });
}

void DriverController::reconcile(const std::shared_ptr<Pass>& pass, const Object& live,
                                 const policy::NvidiaDriver& driver) {
  std::vector<DriverNode> owned;
  for (const auto& node : pass->nodes->all) {
    const auto owner = pass->nodes->ownership.owner.find(node.name);
    if (owner != pass->nodes->ownership.owner.end() && owner->second == driver.name) owned.push_back(node);
  }
  const ClusterFacts facts = facts_for(*pass, driver.spec);
  std::vector<std::string> warnings;
  const auto pools = driver_pools(driver.spec, owned, facts.openshift(), warnings);
  for (const auto& warning : warnings) log::warn(warning, {{"driver", driver.name}});
  const std::string root = pass->active ? pass->active->host_paths.root_fs : "";
  auto plan = std::make_shared<Plan>();
  plan->states.push_back(render_driver(driver, pools, facts, options_.assets, root));
  State& state = plan->states.front();
  // A node that lost its feature labels for a moment keeps its driver: what is not wanted now may be in a
  // moment.
  if (!state.error && warnings.empty())
    state.sweeps.push_back({.name_prefix = "nvidia-" + driver.spec.driver_type + "-driver-"});
  keep_shared_script(state);
  applier_.apply(*plan, driver.uid,
                 [this, pass, plan, live, notes = driver.notes](const Applier::Report& report) {
                   Outcome outcome = driver_ready();
                   if (!report.errors.empty()) {
                     outcome = driver_failed(report.errors.begin()->second);
                     failed(*pass);
                   } else {
                     for (const Json& object : plan->states.front().objects) {
                       const Readiness readiness = live_readiness(cache_, object, true);
                       if (readiness.ready) continue;
                       outcome = driver_waiting(str(kube::name_of(object)) + ": " + readiness.reason);
                       break;
                     }
                   }
                   if (report.raced) failed(*pass);
                   if (report.again) look_again(str(kube::name_of(*live)), *report.again);
                   write_status(live, outcome, notes, report.changed_by_others);
                   next(pass);
                 });
}

void DriverController::look_again(const std::string& driver, Duration wait) {
  again_[driver] = client_.loop().after(wait, [this, driver] {
    touch(driver);
    ask_for_pass_();
  });
}

void DriverController::write_status(const Object& live, const Outcome& outcome,
                                    const std::vector<policy::Note>& notes, std::vector<std::string> advice) {
  StatusNotes texts;
  texts.advice = std::move(advice);
  for (const auto& note : notes) texts.fields.push_back(note.text);
  status_.write(kube::kNvidiaDrivers, *live, outcome, texts);
}

}  // namespace gpuop::op
