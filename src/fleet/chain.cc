#include "fleet/chain.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>

#include "base/text.h"
#include "fleet/faults.h"
#include "fleet/kubectl.h"
#include "fleet/missing.h"
#include "fleet/validation.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kValidator = "nvidia-operator-validator";

// What an operand is called where it has a stage.
struct Operand {
  std::string_view stage, label, app;
};
constexpr Operand kDriver{"driver", "driver", "nvidia-driver-daemonset"};
constexpr Operand kToolkit{"toolkit", "container-toolkit", "nvidia-container-toolkit-daemonset"};
constexpr Operand kCuda{"cuda", "", "nvidia-cuda-validator"};
constexpr Operand kPlugin{"plugin", "device-plugin", "nvidia-device-plugin-daemonset"};
constexpr Operand kLabels{"labels", "gpu-feature-discovery", "gpu-feature-discovery"};
constexpr Operand kTelemetry{"telemetry", "dcgm-exporter", "nvidia-dcgm-exporter"};
constexpr Operand kSandbox{"nvidia-sandbox-validator", "sandbox-validator", "nvidia-sandbox-validator"};

bool newer(const Json& pod, const Json& other) {
  return get_string(pod, {"metadata", "creationTimestamp"}) >
         get_string(other, {"metadata", "creationTimestamp"});
}

bool is_discovery(const Json& pod) {
  return kube::label(pod, "app.kubernetes.io/name") == "node-feature-discovery";
}

// The pod of an operand on this node: the newest that is not being deleted.
const Json* pod_of(const Objects& pods, std::string_view app) {
  const Json* found = nullptr;
  for (const auto& pod : pods) {
    if (kube::label(*pod, "app") != app || has(*pod, {"metadata", "deletionTimestamp"})) continue;
    if (!found || newer(*pod, *found)) found = pod.get();
  }
  return found;
}

// The driver's pod: its app differs with the way it is deployed (one for all, by kernel, by NVIDIADriver).
const Json* driver_pod(const Objects& pods) {
  Objects drivers;
  for (const auto& pod : pods) {
    if (kube::label(*pod, "app") == "nvidia-driver-daemonset" ||
        kube::label(*pod, "app.kubernetes.io/component") == "nvidia-driver")
      drivers.push_back(pod);
  }
  return drivers.empty() ? nullptr : pod_of(drivers, kube::label(*drivers.back(), "app"));
}

// A pod of an operand that is being deleted: its DaemonSet makes no other before it is gone.
template <class Ours>
const Json* ending_pod(const Objects& pods, Ours ours) {
  const auto found = std::ranges::find_if(
      pods, [&ours](const auto& pod) { return ours(*pod) && has(*pod, {"metadata", "deletionTimestamp"}); });
  return found == pods.end() ? nullptr : found->get();
}

std::string deploy_key(std::string_view operand) {
  return "nvidia.com/gpu.deploy." + std::string(operand);
}
std::string deploy_label(const Json& node, std::string_view operand) {
  return std::string(kube::label(node, deploy_key(operand)));
}

// Whether a node's label lets an operand's pod come to it (operator.md §4.2, §4.5).
struct Deploy {
  enum class State { kWanted, kPaused, kOff } state = State::kWanted;
  std::string
      why;  // paused, off: "switched off on this node by its label nvidia.com/gpu.deploy.driver=false"
  std::string cure;           // "… : kubectl label …"
  bool preinstalled = false;  // off, since the node has a driver of its own
  bool wanted() const { return state == State::kWanted; }
  bool off() const { return state == State::kOff; }
};

Deploy deploy_of(const Json& node, std::string_view operand) {
  const std::string key = deploy_key(operand);
  const std::string value = deploy_label(node, operand);
  const std::string command = "kubectl label node " + std::string(kube::name_of(node)) + " " + key;
  if (value == "true") return {};
  if (value.empty())
    return {Deploy::State::kOff, "not wanted on this node, which has no label " + key,
            "to have it here: " + command + "=true"};
  if (value.starts_with("paused") || value.find("_paused-for") != std::string::npos)
    return {Deploy::State::kPaused, "paused on this node by its label " + key + "=" + value,
            "who wrote the label takes it back when done; by hand: " + command + "=true --overwrite"};
  return {Deploy::State::kOff, "switched off on this node by its label " + key + "=" + value,
          "to have it here: " + command + "=true --overwrite", value == "pre-installed"};
}

// All that a stage is judged by.
struct View {
  const Json& node;
  const Objects& pods;
  const ChainFacts& facts;
  const Json* validator = nullptr;
  std::optional<Time> since;  // what ended before says nothing of now

  bool off(const Operand& operand) const { return facts.off.contains(std::string(operand.stage)); }
  std::optional<Fault> fault(const Json& pod) const { return fault_of(pod, since); }
};

// Since when the node is up, as its condition says; nullopt: it does not.
std::optional<Time> up_since(const Json& node) {
  const Json* ready = kube::condition(node, "Ready");
  if (!ready || get_string(*ready, {"status"}) != "True") return std::nullopt;
  const auto since = parse_time(get_string(*ready, {"lastTransitionTime"}));
  return since ? std::optional(*since) : std::nullopt;
}

void switch_off(Stage& stage, const std::string& why, bool here) {
  stage.state = StageState::kOff;
  stage.detail = why;
  stage.here = here;
}

// There is no pod of an operand, and `old` of an earlier one is ending. True: it is known why.
bool missing(Stage& stage, Missing why, const Json* old) {
  if (why.certain) old = nullptr;
  stage.ending = old != nullptr;
  stage.kept_off = why.kept_off;
  stage.detail = old ? "the old pod " + std::string(kube::name_of(*old)) +
                           " is ending, and another comes when it is gone"
                     : std::move(why.detail);
  stage.cure = old ? "" : std::move(why.cure);
  if (why.refused) {
    stage.state = StageState::kFailed;
    stage.by_itself = true;
  }
  return why.certain || stage.ending;
}

bool missing(Stage& stage, const View& view, std::string_view app) {
  const std::string_view ns = view.pods.empty() ? "" : kube::namespace_of(*view.pods.front());
  const Json* old = ending_pod(view.pods, [app](const Json& pod) {
    return kube::label(pod, "app") == app ||
           (app == kDriver.app && kube::label(pod, "app.kubernetes.io/component") == "nvidia-driver");
  });
  return missing(stage, why_missing(view.node, view.facts, app, ns), old);
}

void failed(Stage& stage, const Json& pod, const Fault& fault) {
  stage.state = StageState::kFailed;
  stage.pod = kube::name_of(pod);
  stage.detail = "pod " + stage.pod + ": " + fault.text;
  stage.log = fault.log;
  stage.stuck = fault.stuck;
  stage.by_itself = fault.by_itself;
  stage.cure = fault.cure;
}

void not_ready(Stage& stage, const Json& pod) {
  stage.pod = kube::name_of(pod);
  stage.detail = "pod " + stage.pod + " is not ready yet";
}

Stage new_stage(std::string_view name) {
  Stage stage;
  stage.name = name;
  stage.state = StageState::kWorking;
  return stage;
}

Stage discovered(const Json& node) {
  Stage stage = new_stage("discovered");
  const bool present = kube::label(node, "nvidia.com/gpu.present") == "true";
  const bool labelled = !deploy_label(node, "operator-validator").empty() ||
                        !deploy_label(node, "device-plugin").empty() ||
                        !deploy_label(node, "sandbox-validator").empty() ||
                        kube::label(node, "nvidia.com/gpu.deploy.operands") == "false";
  if (present && labelled)
    stage.state = StageState::kDone;
  else
    stage.detail = present ? "the operator has not assigned operands yet"
                           : "waiting for the operator's label nvidia.com/gpu.present";
  if (stage.state != StageState::kDone)
    stage.cure = "check that a ClusterPolicy exists and that the operator runs and leads";
  return stage;
}

// What to look at when a step does not pass.
std::string cure_of_step(const Operand& operand, const Json* worker, const View& view) {
  const std::string node(kube::name_of(view.node));
  const std::string log = worker ? kubectl(*worker, "logs") : std::string();
  if (operand.stage == "driver")
    return worker ? "read what the driver says: " + log
                  : "run nvidia-smi on node " + node + " and mend the driver that is installed there" +
                        (view.off(operand) ? ", or let the policy bring one (driver.enabled)" : "");
  if (log.empty()) return "run nvidia-smi on node " + node;
  return "run nvidia-smi on node " + node + ", and read " + log;
}

// The validator's container says what it waits for, or what failed.
void noted(Stage& stage, const View& view, const Operand& operand, const hardware::ValidationNote& note,
           const Json* worker) {
  if (note.message.empty()) return;
  stage.pod = kube::name_of(*view.validator);
  stage.detail = "pod " + stage.pod + (note.failing ? ": " : " waits: ") + note.message;
  stage.cure = cure_of_step(operand, worker, view);
  if (note.failing) stage.state = StageState::kFailed;
  if (worker || operand.label.empty()) return;
  // Nothing brings what it waits for.
  const Deploy deploy = deploy_of(view.node, operand.label);
  if (!view.off(operand) && !deploy.off()) return;
  stage.state = StageState::kFailed;
  if (deploy.off() && !deploy.preinstalled && !view.off(operand)) {
    stage.detail += "; the " + std::string(operand.stage) + " is " + deploy.why;
    stage.cure = deploy.cure;
  }
}

// For so long behind a node's start its validator may find that what it checks is not there yet: runtimes
// keep their configuration over a boot, and start it before the toolkit has done its work.
constexpr Duration kSettling = 30s;

bool settling(const View& view, const Json& status) {
  if (!view.since) return false;
  for (std::string_view state : {"state", "lastState"}) {
    const auto finished = parse_time(get_string(status, {state, "terminated", "finishedAt"}));
    if (finished && *finished < *view.since + kSettling) return true;
  }
  return false;
}

// Its pod is there, and no container of it has begun.
bool not_started(const Json* status) {
  return status == nullptr || get_string(*status, {"state", "waiting", "reason"}) == "ContainerCreating";
}

// Policy and node want an operand that has pods of its own.
bool wanted(const View& view, const Operand& operand) {
  return !operand.label.empty() && !view.off(operand) && deploy_of(view.node, operand.label).wanted();
}

// The operand's own pod explains more than the validator that waits for it.
void explain_by_worker(Stage& stage, const View& view, const Operand& operand, const Json* worker) {
  if (worker) {
    if (auto fault = view.fault(*worker)) {
      failed(stage, *worker, *fault);
    } else if (!pod_ready(*worker) && stage.detail.empty()) {
      not_ready(stage, *worker);
    }
    return;
  }
  if (!wanted(view, operand)) return;
  Stage why = new_stage(operand.stage);
  if (missing(why, view, operand.app) && (why.ending || stage.state != StageState::kFailed))
    stage = std::move(why);
}

void explain_start(Stage& stage, const View& view) {
  stage.pod = kube::name_of(*view.validator);
  stage.detail = "pod " + stage.pod + " is not started yet";
  const Deploy toolkit = deploy_of(view.node, kToolkit.label);
  if (toolkit.wanted() || view.off(kToolkit)) return;
  stage.detail += "; the container toolkit, whose runtime it needs, is " + toolkit.why;
  stage.cure = toolkit.cure;
}

// A pod that waits for what a validator proves, on a node whose validator is switched off.
void explain_gate(Stage& stage, const View& view, const Json& pod) {
  if (stage.state != StageState::kWorking || view.validator) return;
  const Deploy validator = deploy_of(view.node, "operator-validator");
  const bool waits =
      std::ranges::any_of(get_array(pod, {"status", "initContainerStatuses"}), [](const Json& status) {
        return get_string(status, {"name"}).ends_with("-validation") && !completed(&status);
      });
  if (!validator.off() || !waits) return;
  stage.detail = "pod " + stage.pod + " waits for " + std::string(kValidator) + ", which is " + validator.why;
  stage.cure = validator.cure;
}

// A stage on a node whose validator is switched off: only the operand's own pod tells of it.
Stage unvalidated(const View& view, const Operand& operand, const Json* worker, const Deploy& validator) {
  Stage stage = new_stage(operand.stage);
  if (worker && pod_ready(*worker)) {
    stage.state = StageState::kDone;
  } else if (worker) {
    not_ready(stage, *worker);
    if (auto fault = view.fault(*worker)) failed(stage, *worker, *fault);
    explain_gate(stage, view, *worker);
  } else if (wanted(view, operand)) {
    missing(stage, view, operand.app);
  } else {
    switch_off(stage, "not validated: " + std::string(kValidator) + " is " + validator.why, true);
  }
  return stage;
}

// What was proven once need not hold any more.
void still_holds(Stage& stage, const View& view, const Operand& operand, const Json* worker) {
  stage.state = StageState::kDone;
  if (operand.label.empty() || (worker && pod_ready(*worker))) return;
  if (worker) {
    stage.state = StageState::kWorking;
    not_ready(stage, *worker);
    if (auto fault = view.fault(*worker)) failed(stage, *worker, *fault);
  } else if (Stage why = new_stage(operand.stage); wanted(view, operand)) {
    missing(why, view, operand.app);
    if (why.ending || why.kept_off || why.state == StageState::kFailed) stage = std::move(why);
  }
}

// A stage that the validator's pod proves. `worker`: the pod of the operand that does the work; `seen`:
// something else shows that it has.
Stage validated(const View& view, const Operand& operand, const Json* worker, bool seen) {
  Stage stage = new_stage(operand.stage);
  if (!view.validator) {
    const Deploy deploy = deploy_of(view.node, "operator-validator");
    if (deploy.off()) return unvalidated(view, operand, worker, deploy);
    if (deploy.wanted()) {
      missing(stage, view, kValidator);
    } else {
      stage.detail = std::string(kValidator) + " is " + deploy.why;
      stage.cure = deploy.cure;
    }
    explain_by_worker(stage, view, operand, worker);
    return stage;
  }
  const Proof proof = proof_of(*view.validator, operand.stage, seen);
  if (proof.passed || pod_ready(*view.validator)) {
    still_holds(stage, view, operand, worker);
    return stage;
  }
  if (proof.status && has(*proof.status, {"state", "running"})) stage.detail = "being validated";
  if (proof.status) {
    if (auto fault = container_fault(*view.validator, *proof.status, view.since)) {
      failed(stage, *view.validator, *fault);
      if (settling(view, *proof.status)) {
        stage.state = StageState::kWorking;
        stage.stuck = false;
        stage.pod.clear();  // its words are there
      }
    }
  }
  if (proof.note) noted(stage, view, operand, *proof.note, worker);
  if (!proof.status) {
    // The node has no room for it.
    if (auto fault = view.fault(*view.validator)) failed(stage, *view.validator, *fault);
  }
  explain_by_worker(stage, view, operand, worker);
  if (stage.detail.empty() && not_started(proof.status)) explain_start(stage, view);
  if (stage.detail.empty()) not_ready(stage, *view.validator);
  return stage;
}

// The policy switches an operand off; its pod goes a moment later than its DaemonSet.
Stage without(const Operand& operand, const Json* pod) {
  Stage stage = new_stage(operand.stage);
  if (!pod) {
    switch_off(stage, "switched off by the policy", false);
  } else {
    stage.detail =
        "switched off by the policy, and pod " + std::string(kube::name_of(*pod)) + " has yet to go";
  }
  return stage;
}

// An operand whose own pod is all that tells of it.
Stage operand_stage(const View& view, const Operand& operand, const Json* pod) {
  Stage stage = new_stage(operand.stage);
  if (view.off(operand)) return without(operand, pod);
  const Deploy deploy = deploy_of(view.node, operand.label);
  if (deploy.off()) {
    switch_off(stage, deploy.why, true);
  } else if (!pod && deploy.wanted()) {
    missing(stage, view, operand.app);
  } else if (!pod) {
    stage.detail = deploy.why;
    stage.cure = deploy.cure;
  } else if (pod_ready(*pod)) {
    stage.state = StageState::kDone;
  } else if (auto fault = view.fault(*pod)) {
    failed(stage, *pod, *fault);
  } else {
    not_ready(stage, *pod);
    // That validator waits for no other.
    if (operand.app != kSandbox.app) explain_gate(stage, view, *pod);
  }
  return stage;
}

bool is_gpu_resource(std::string_view name) {
  return name.starts_with("nvidia.com/gpu") || name.starts_with("nvidia.com/mig-");
}

bool any_allocatable(const std::map<std::string, std::int64_t>& allocatable) {
  return std::ranges::any_of(allocatable, [](const auto& resource) { return resource.second > 0; });
}

std::string allocatable_of(std::string_view resource, std::int64_t have, std::int64_t all) {
  return std::string(resource) + ": " + std::to_string(have) + " of " + std::to_string(all) + " allocatable";
}

// Why none of the vendor's resources is allocatable (MIG profiles, shared GPUs and names that a plugin's
// configuration gave count too); "" when one is.
std::string no_resource(const Json& node) {
  const auto ours = [](std::string_view name) { return name.starts_with("nvidia.com/"); };
  const auto count = [](const Json& quantity) { return kube::parse_quantity(quantity).value_or(0); };
  for (const auto& [name, quantity] : get_object(node, {"status", "allocatable"})) {
    if (ours(name) && count(quantity) > 0) return {};
  }
  std::vector<std::string> none;
  for (const auto& [name, quantity] : get_object(node, {"status", "capacity"})) {
    if (ours(name)) none.push_back(allocatable_of(name, 0, count(quantity)));
  }
  std::ranges::sort(none);
  return none.empty() ? "no GPU is advertised" : join(none, ", ");
}

// The device plugin is switched off on this node, and a validator that is not ours may still ask for GPUs.
Stage not_advertised(const View& view, const Deploy& deploy) {
  Stage stage = new_stage(kPlugin.stage);
  switch_off(stage, deploy.why, true);
  if (!view.validator || pod_ready(*view.validator)) return stage;
  const Proof proof = proof_of(*view.validator, kPlugin.stage, false);
  const auto fault = proof.status && !get_array(*view.validator, {"status", "initContainerStatuses"}).empty()
                         ? container_fault(*view.validator, *proof.status, view.since)
                         : std::nullopt;
  if (!fault) return stage;
  failed(stage, *view.validator, *fault);
  stage.here = false;
  stage.detail += "; the device plugin is " + deploy.why;
  stage.cure = "switch the validator off on this node too (" + deploy_key("operator-validator") +
               "=false), or " + deploy.cure;
  return stage;
}

Stage advertised(const View& view, const std::map<std::string, std::int64_t>& allocatable,
                 const Json* plugin) {
  const Deploy deploy = deploy_of(view.node, kPlugin.label);
  if (view.off(kPlugin)) return without(kPlugin, plugin);
  if (deploy.off()) return not_advertised(view, deploy);
  Stage stage = validated(view, kPlugin, plugin, false);
  if (!deploy.wanted() && !plugin) {
    stage = new_stage(kPlugin.stage);
    stage.detail = deploy.why;
    stage.cure = deploy.cure;
  }
  if (stage.state != StageState::kDone) return stage;
  if (any_allocatable(allocatable)) {
    std::vector<std::string> parts;
    parts.reserve(allocatable.size());
    for (const auto& [name, count] : allocatable) parts.push_back(name + "=" + std::to_string(count));
    stage.detail = join(parts, ", ");
    return stage;
  }
  stage.detail = no_resource(view.node);
  if (stage.detail.empty()) return stage;  // resources that a plugin's configuration renamed
  stage.state = StageState::kWorking;
  if (plugin) {
    stage.cure =
        "run nvidia-smi on the node, and read what the device plugin says: " + kubectl(*plugin, "logs");
  } else if (Stage why = new_stage(kPlugin.stage); missing(why, view, kPlugin.app)) {
    why.detail.insert(0, stage.detail + "; ");
    stage = std::move(why);
  }
  return stage;
}

void describe_driver(Stage& stage, const Json& node, const Json* driver_pod) {
  if (stage.state != StageState::kDone) return;
  stage.detail = driver_pod && pod_ready(*driver_pod) ? "driver container" : "preinstalled";
  const auto major = kube::label(node, "nvidia.com/cuda.driver-version.full");
  if (!major.empty()) stage.detail = std::string(major) + ", " + stage.detail;
}

// Without feature discovery's worker a node's labels are old, or it has none and its GPUs are unknown.
std::vector<std::string> discovery_faults(const View& view) {
  std::vector<std::string> out;
  for (const auto& pod : view.pods) {
    if (!is_discovery(*pod) || kube::label(*pod, "role") != "worker") continue;
    if (auto fault = view.fault(*pod))
      out.push_back("feature discovery: pod " + std::string(kube::name_of(*pod)) + ": " + fault->text + "; " +
                    fault->cure);
  }
  return out;
}

// The DaemonSet of an operand of ours.
bool of_an_operand(const Json& set) {
  const Json* above = kube::controller_of(set);
  return above && get_string(*above, {"apiVersion"}).starts_with("nvidia.com/");
}
// Where DaemonSets are not known, every one may be.
bool of_an_operand(const View& view, std::string_view name) {
  if (view.facts.daemonsets.empty()) return true;
  return std::ranges::any_of(view.facts.daemonsets, [name](const auto& set) {
    return kube::name_of(*set) == name && of_an_operand(*set);
  });
}

// Whether an operand has a stage of its own. `pod`: a pod or a template of one.
bool has_stage(const Json& pod) {
  static const std::set<std::string_view> kShown = {kValidator,  kDriver.app,    kToolkit.app, kPlugin.app,
                                                    kLabels.app, kTelemetry.app, kSandbox.app};
  return kShown.contains(kube::label(pod, "app")) ||
         kube::label(pod, "app.kubernetes.io/component") == "nvidia-driver";
}

// The name of the DaemonSet that a pod is of; "" when it is of none.
std::string_view daemonset_of(const Json& pod) {
  const Json* owner = kube::controller_of(pod);
  return owner && get_string(*owner, {"kind"}) == "DaemonSet" ? get_string(*owner, {"name"}) : "";
}

// An operand that is wanted on the node and has no pod there.
Stage without_pod(const View& view, const Json& set) {
  Stage stage = new_stage(kube::name_of(set));
  missing(stage, why_no_pod(view.node, view.facts, set),
          ending_pod(view.pods, [&set](const Json& pod) { return daemonset_of(pod) == kube::name_of(set); }));
  return stage;
}

// Operands without a stage of their own are shown where they are not ready, or not there: their policy is not
// ready either.
std::vector<Stage> others(const View& view) {
  std::map<std::string_view, const Json*> newest;
  for (const auto& pod : view.pods) {
    const auto set = daemonset_of(*pod);
    if (set.empty() || has_stage(*pod) || is_discovery(*pod) ||
        has(*pod, {"metadata", "deletionTimestamp"}) || !of_an_operand(view, set))
      continue;
    const Json*& known = newest[set];
    if (!known || newer(*pod, *known)) known = pod.get();
  }
  std::vector<Stage> out;
  for (const auto& [name, pod] : newest) {
    if (pod_ready(*pod)) continue;
    Stage stage = new_stage(name);
    not_ready(stage, *pod);
    if (auto fault = view.fault(*pod)) failed(stage, *pod, *fault);
    out.push_back(std::move(stage));
  }
  for (const auto& set : view.facts.daemonsets) {
    const Json* pod = find(*set, {"spec", "template"});
    if (pod && !newest.contains(kube::name_of(*set)) && of_an_operand(*set) && !has_stage(*pod) &&
        wanted_on(view.node, *set))
      out.push_back(without_pod(view, *set));
  }
  std::ranges::sort(out, {}, &Stage::name);
  return out;
}

bool has_gpu(const Json& node) {
  if (kube::label(node, "nvidia.com/gpu.present") == "true") return true;
  const auto& labels = get_object(node, {"metadata", "labels"});
  return std::ranges::any_of(labels, [](const auto& label) {
    const std::string_view name = label.key();
    return name.starts_with("feature.node.kubernetes.io/pci-") &&
           name.find("10de") != std::string_view::npos && name.ends_with(".present") &&
           as_text(label.value()) == "true";
  });
}

// Fills in the GPU resources and answers those of which not all are allocatable:
// "nvidia.com/gpu: 7 of 8 allocatable".
std::vector<std::string> count_gpus(const Json& node, std::map<std::string, std::int64_t>& allocatable) {
  for (const auto& [name, quantity] : get_object(node, {"status", "allocatable"})) {
    if (is_gpu_resource(name)) allocatable[std::string(name)] = kube::parse_quantity(quantity).value_or(0);
  }
  std::vector<std::string> short_of;
  for (const auto& [name, quantity] : get_object(node, {"status", "capacity"})) {
    const auto all = kube::parse_quantity(quantity).value_or(0);
    const auto found = allocatable.find(std::string(name));
    if (!is_gpu_resource(name) || found == allocatable.end() || found->second >= all) continue;
    short_of.push_back(allocatable_of(found->first, found->second, all));
  }
  std::ranges::sort(short_of);
  return short_of;
}

// What other pods show of the steps that the validator's pod has behind it: each waits for one of them.
struct Seen {
  bool driver = false, toolkit = false, cuda = false;
};

// Pods that are older than the validator's tell of an earlier validation.
Seen seen_of(const View& view, const Json* toolkit, const Json* plugin, const Json* cuda) {
  Seen seen;
  if (!view.validator) return seen;
  const auto counts = [&](const Json* pod) { return pod && !newer(*view.validator, *pod); };
  seen.cuda = counts(cuda) && get_string(*cuda, {"status", "phase"}) == "Succeeded";
  seen.toolkit = seen.cuda || (counts(plugin) && completed(status_of(*plugin, "toolkit-validation")));
  seen.driver = seen.toolkit || (counts(toolkit) && pod_ready(*toolkit));
  return seen;
}

// The stages of a node whose GPUs containers use.
void container_stages(NodeChain& chain, const View& view) {
  const Json* driver = driver_pod(view.pods);
  const Json* toolkit = pod_of(view.pods, kToolkit.app);
  const Json* plugin = pod_of(view.pods, kPlugin.app);
  const Json* cuda = pod_of(view.pods, kCuda.app);
  const Seen seen = seen_of(view, toolkit, plugin, cuda);
  chain.stages.push_back(validated(view, kDriver, driver, seen.driver));
  describe_driver(chain.stages.back(), view.node, driver);
  chain.stages.push_back(validated(view, kToolkit, toolkit, seen.toolkit));
  // The workload of this validation, while it tells something.
  if (cuda && (!view.validator || newer(*view.validator, *cuda) ||
               get_string(*cuda, {"status", "phase"}) == "Succeeded"))
    cuda = nullptr;
  chain.stages.push_back(validated(view, kCuda, cuda, seen.cuda));
  chain.stages.push_back(advertised(view, chain.allocatable, plugin));
  if (plugin && pod_ready(*plugin)) chain.plugin_pod = kube::name_of(*plugin);
  chain.stages.push_back(operand_stage(view, kLabels, pod_of(view.pods, kLabels.app)));
  if (Stage& labels = chain.stages.back();
      labels.state == StageState::kDone && kube::label(view.node, "nvidia.com/gpu.product").empty()) {
    labels.state = StageState::kWorking;
    labels.detail = "the node has no label nvidia.com/gpu.product yet";
    labels.cure = "read what feature discovery says: " + kubectl(*pod_of(view.pods, kLabels.app), "logs");
  }
  chain.stages.push_back(operand_stage(view, kTelemetry, pod_of(view.pods, kTelemetry.app)));
}

// Who does what a check of the sandbox validator waits for: a DaemonSet, whose pods need not have a label of
// that name.
std::string_view worker_of(std::string_view check) {
  static constexpr std::pair<std::string_view, std::string_view> kWorkers[] = {
      {"vfio-pci-validation", "nvidia-vfio-manager"},
      {"vgpu-manager-validation", "nvidia-vgpu-manager-daemonset"},
      {"vgpu-devices-validation", "nvidia-vgpu-device-manager"},
      {"cc-manager-validation", "nvidia-cc-manager"}};
  const auto* const found =
      std::ranges::find(kWorkers, check, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kWorkers) ? std::string_view() : found->second;
}

// A pod of the sandbox validator waits within its checks, each an init container: what it waits for is
// another's work.
void explain_check(Stage& stage, const View& view, const Json& pod) {
  const auto& checks = get_array(pod, {"status", "initContainerStatuses"});
  const auto* const check =
      std::ranges::find_if(checks, [](const Json& status) { return !completed(&status); });
  if (check == checks.end()) return;
  const std::string name(get_string(*check, {"name"}));
  const std::string_view set = worker_of(name);
  if (set.empty()) return;
  const auto worker =
      std::ranges::find_if(view.pods, [set](const auto& other) { return daemonset_of(*other) == set; });
  if (worker != view.pods.end()) {
    if (auto fault = view.fault(**worker)) return failed(stage, **worker, *fault);
    if (stage.state == StageState::kWorking && !pod_ready(**worker)) return not_ready(stage, **worker);
  }
  if (!has(*check, {"state", "running"}) || stage.state != StageState::kWorking) return;
  stage.detail = "pod " + stage.pod + " waits in " + name;
  if (worker == view.pods.end()) stage.detail += ", and no pod of " + std::string(set) + " is on this node";
  stage.cure = "read what it waits for: " + kubectl(pod, "logs") + " -c " + name;
  if (worker != view.pods.end())
    stage.cure += ", and what that pod of " + std::string(set) + " does: " + kubectl(**worker, "logs");
}

// Of a node whose GPUs no containers use: virtual machines do, or nobody.
void other_stages(NodeChain& chain, const View& view) {
  const std::string all = deploy_label(view.node, "operands");
  const bool machines = !deploy_label(view.node, kSandbox.label).empty();
  for (const Operand& operand : {kDriver, kToolkit, kCuda, kPlugin, kLabels, kTelemetry}) {
    chain.stages.push_back(new_stage(operand.stage));
    if (all == "false")
      switch_off(chain.stages.back(),
                 "switched off on this node by its label " + deploy_key("operands") + "=false", true);
    else
      switch_off(chain.stages.back(),
                 machines ? "its GPUs go to virtual machines" : "not wanted on this node", !machines);
  }
  if (!machines) return;
  const Json* pod = pod_of(view.pods, kSandbox.app);
  chain.stages.push_back(operand_stage(view, kSandbox, pod));
  if (Stage& stage = chain.stages.back(); pod && stage.pod == kube::name_of(*pod))
    explain_check(stage, view, *pod);
}

void add_stages(NodeChain& chain, const View& view) {
  chain.stages.push_back(discovered(view.node));
  if (chain.stages.back().state != StageState::kDone) {
    for (const Operand& operand : {kDriver, kToolkit, kCuda, kPlugin, kLabels, kTelemetry})
      chain.stages.push_back(new_stage(operand.stage));
    return;
  }
  const bool containers =
      view.validator ||
      std::ranges::any_of(
          std::initializer_list<std::string_view>{kDriver.label, kToolkit.label, kPlugin.label,
                                                  "operator-validator"},
          [&view](std::string_view operand) { return !deploy_label(view.node, operand).empty(); });
  if (containers)
    container_stages(chain, view);
  else
    other_stages(chain, view);
  chain.unserved = std::ranges::all_of(chain.stages.begin() + 1, chain.stages.end(), [](const Stage& stage) {
    return stage.state == StageState::kOff && stage.here;
  });
  for (Stage& stage : others(view)) chain.stages.push_back(std::move(stage));
}

}  // namespace

// A node that does not say whether it is ready is none of a kubelet's, or brand new.
std::string node_fault(const Json& node) {
  const Json* ready = kube::condition(node, "Ready");
  if (!ready || get_string(*ready, {"status"}) == "True") return {};
  const std::string message(get_string(*ready, {"message"}));
  return "the node is not ready" + (message.empty() ? "" : ": " + message);
}

std::string not_allocatable(const Json& node) {
  if (deploy_label(node, "device-plugin") != "true" || has(node, {"metadata", "deletionTimestamp"}))
    return {};
  return no_resource(node);
}

std::set<std::string> switched_off(const Objects& policies) {
  std::set<std::string> out;
  for (const auto& policy : policies) {
    if (get_string(*policy, {"status", "state"}) == "ignored") continue;
    const auto off = [&policy](std::string_view operand) {
      return !get_bool(*policy, {"spec", operand, "enabled"}, true);
    };
    if (off("driver") && !get_bool(*policy, {"spec", "driver", "useNvidiaDriverCRD"})) out.emplace("driver");
    if (off("toolkit")) out.emplace("toolkit");
    if (off("devicePlugin")) out.emplace("plugin");
    if (off("gfd")) out.emplace("labels");
    if (off("dcgmExporter")) out.emplace("telemetry");
  }
  return out;
}

NodeChain chain_of(const Json& node, const Objects& pods, const ChainFacts& facts) {
  NodeChain chain;
  chain.name = kube::name_of(node);
  chain.gpu = has_gpu(node);
  const View view{node, pods, facts, pod_of(pods, kValidator), up_since(node)};
  chain.warnings = discovery_faults(view);
  if (!chain.gpu) {
    if (std::string why = undiscovered(node, facts.daemonsets); !why.empty())
      chain.warnings.push_back(std::move(why));
    return chain;
  }
  chain.node_fault = node_fault(node);
  const auto product = kube::label(node, "nvidia.com/gpu.product");
  if (!product.empty()) {
    chain.product = std::string(kube::label(node, "nvidia.com/gpu.count")) + " × " + std::string(product);
  }
  const std::vector<std::string> short_of = count_gpus(node, chain.allocatable);
  add_stages(chain, view);
  if (any_allocatable(chain.allocatable))
    chain.warnings.insert(chain.warnings.end(), short_of.begin(), short_of.end());

  // What stands behind an unfinished stage waits for it, unless it says otherwise itself; what fails since an
  // operand's old pod is going comes right by itself.
  bool open = true;
  bool ending = false;
  for (auto& stage : chain.stages) {
    const bool passes = ending && stage.state == StageState::kFailed && !stage.by_itself;
    if (passes || (!open && stage.state == StageState::kWorking)) {
      Stage waiting = new_stage(stage.name);
      waiting.state = StageState::kWaiting;
      stage = std::move(waiting);
    }
    ending = ending || stage.ending;
    if (stage.state != StageState::kDone && stage.state != StageState::kOff) open = false;
  }
  chain.ready = open && chain.node_fault.empty();
  return chain;
}

}  // namespace gpuop::fleet
