#include "cluster/kubelet/pod_status.h"

#include <algorithm>

#include "base/text.h"
#include "cluster/kubelet/log_files.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

bool running(const ContainerFacts& c) {
  return c.current && c.current->state == ContainerState::kRunning;
}
bool exited(const ContainerFacts& c) {
  return c.current && c.current->state == ContainerState::kExited;
}
// Exits that the pod's status shows as terminated: those that nothing waits to follow.
bool shown_terminated(const ContainerFacts& c) {
  return exited(c) && c.waiting_reason.empty() && !c.past;
}

Json terminated_state(const ContainerInfo& info, const std::string& message, const std::string& scheme) {
  JsonObject out{{"exitCode", info.exit_code}};
  if (info.signal != 0) out["signal"] = info.signal;
  out["reason"] = info.reason.empty() ? (info.exit_code == 0 ? "Completed" : "Error") : info.reason;
  if (const std::string& text = message.empty() ? info.message : message; !text.empty())
    out["message"] = valid_utf8(text);
  out["startedAt"] = format_time(info.started);
  out["finishedAt"] = format_time(info.finished);
  out["containerID"] = scheme + "://" + info.id;
  return JsonObject{{"terminated", std::move(out)}};
}

Json waiting_state(std::string_view reason, const std::string& message) {
  JsonObject out{{"reason", reason}};
  if (!message.empty()) out["message"] = valid_utf8(message);
  return JsonObject{{"waiting", std::move(out)}};
}

Json current_state(const ContainerFacts& c, bool initializing, const std::string& scheme) {
  if (running(c)) return JsonObject{{"running", JsonObject{{"startedAt", format_time(c.current->started)}}}};
  if (!c.waiting_reason.empty()) return waiting_state(c.waiting_reason, c.waiting_message);
  if (exited(c) && !c.past) return terminated_state(*c.current, c.termination_message, scheme);
  return waiting_state(initializing ? "PodInitializing" : "ContainerCreating", "");
}

Json container_status(const ContainerFacts& c, bool initializing, const std::string& scheme) {
  JsonObject out{{"name", c.name}};
  out["state"] = current_state(c, initializing, scheme);
  Json last = JsonObject{};
  if (exited(c) && !shown_terminated(c)) {
    last = terminated_state(*c.current, c.termination_message, scheme);
  } else if (c.last) {
    last = terminated_state(*c.last, c.last_termination_message, scheme);
  }
  out["lastState"] = std::move(last);
  const bool finished_init =
      c.kind == ContainerKind::kInit && shown_terminated(c) && c.current->exit_code == 0;
  out["ready"] = finished_init || (running(c) && c.ready);
  out["restartCount"] = c.current ? c.current->attempt : 0;
  out["image"] = c.image;
  out["imageID"] = c.image_id;
  if (c.current) out["containerID"] = scheme + "://" + c.current->id;
  out["started"] = running(c) && c.started;
  return out;
}

std::string name_list(const std::vector<std::string>& names) {
  return "[" + join(names, " ") + "]";
}

bool init_done(const ContainerFacts& c) {
  if (c.kind == ContainerKind::kInit) return shown_terminated(c) && c.current->exit_code == 0;
  return c.kind == ContainerKind::kApp || (running(c) && c.started);
}

// Once an app container has begun, initialization is over, whatever a sidecar does then.
bool apps_began(const PodFacts& facts) {
  return std::ranges::any_of(
      facts.containers, [](const auto& c) { return c.kind == ContainerKind::kApp && c.current && !c.past; });
}

bool all_initialized(const PodFacts& facts) {
  return apps_began(facts) || std::ranges::all_of(facts.containers, init_done);
}

const Json* observed_condition(const Json& status, std::string_view type) {
  for (const Json& condition : get_array(status, {"conditions"})) {
    if (get_string(condition, {"type"}) == type) return &condition;
  }
  return nullptr;
}

struct Condition {
  std::string type;
  bool met = false;
  std::string reason, message;
};

Condition initialized(const PodFacts& facts, const std::string& phase) {
  if (phase == "Succeeded") return {"Initialized", true, "PodCompleted", ""};
  std::vector<std::string> waiting;
  for (const ContainerFacts& c : facts.containers) {
    if (!init_done(c)) waiting.push_back(c.name);
  }
  if (waiting.empty() || apps_began(facts)) return {"Initialized", true, "", ""};
  return {"Initialized", false, "ContainersNotInitialized",
          "containers with incomplete status: " + name_list(waiting)};
}

Condition containers_ready(const PodFacts& facts, const std::string& phase) {
  if (phase == "Succeeded") return {"ContainersReady", false, "PodCompleted", ""};
  if (phase == "Failed") return {"ContainersReady", false, "PodFailed", ""};
  std::vector<std::string> unready;
  for (const ContainerFacts& c : facts.containers) {
    if (c.kind != ContainerKind::kInit && !(running(c) && c.ready)) unready.push_back(c.name);
  }
  if (unready.empty()) return {"ContainersReady", true, "", ""};
  return {"ContainersReady", false, "ContainersNotReady",
          "containers with unready status: " + name_list(unready)};
}

Condition pod_ready(const PodFacts& facts, Condition containers) {
  containers.type = "Ready";
  if (!containers.met) return containers;
  std::vector<std::string> open;
  for (const Json& gate : get_array(facts.pod, {"spec", "readinessGates"})) {
    const std::string_view type = get_string(gate, {"conditionType"});
    const Json* condition = observed_condition(facts.observed, type);
    if (condition == nullptr || get_string(*condition, {"status"}) != "True") {
      open.push_back("corresponding condition of pod readiness gate \"" + str(type) +
                     "\" does not exist or is not "
                     "\"True\"");
    }
  }
  if (open.empty()) return containers;
  return {"Ready", false, "ReadinessGatesNotReady", join(open, ", ")};
}

Json conditions_of(const PodFacts& facts, const std::string& phase) {
  const std::string now = format_time(facts.now);
  const Condition containers = containers_ready(facts, phase);
  const bool over = phase == "Succeeded" || phase == "Failed";
  const std::vector<Condition> wanted{
      {"PodReadyToStartContainers", facts.sandbox_ready && !over && !facts.ended, "", ""},
      initialized(facts, phase),
      pod_ready(facts, containers),
      containers,
      {"PodScheduled", true, "", ""}};
  JsonArray out;
  for (const Condition& c : wanted) {
    const Json* old = observed_condition(facts.observed, c.type);
    JsonObject made{{"type", c.type}, {"status", c.met ? "True" : "False"}};
    const bool same = old != nullptr && get_string(*old, {"status"}) == (c.met ? "True" : "False");
    made["lastTransitionTime"] = same ? str(get_string(*old, {"lastTransitionTime"}, now)) : now;
    if (!c.reason.empty()) made["reason"] = c.reason;
    if (!c.message.empty()) made["message"] = c.message;
    out.push_back(std::move(made));
  }
  return out;
}

struct Tally {
  int waiting = 0, running = 0, stopped = 0, succeeded = 0, failed = 0;
};

Tally count_apps(const PodFacts& facts) {
  Tally tally;
  for (const ContainerFacts& c : facts.containers) {
    if (c.kind != ContainerKind::kApp) continue;
    if (running(c)) {
      ++tally.running;
    } else if (shown_terminated(c)) {
      ++tally.stopped;
      ++(c.current->exit_code == 0 ? tally.succeeded : tally.failed);
    } else if (exited(c) || c.last) {
      ++tally.stopped;
    } else {
      ++tally.waiting;
    }
  }
  return tally;
}

bool has_init_containers(const Json& pod) {
  return !get_array(pod, {"spec", "initContainers"}).empty();
}

}  // namespace

std::string pod_phase(const PodFacts& facts) {
  if (!facts.failed_reason.empty()) return "Failed";
  const std::string_view policy = get_string(facts.pod, {"spec", "restartPolicy"}, "Always");
  const Tally apps = count_apps(facts);
  bool init_failed = false, init_pending = false;
  for (const ContainerFacts& c : facts.containers) {
    if (c.kind == ContainerKind::kInit && exited(c) && c.current->exit_code != 0) init_failed = true;
    if (!init_done(c)) init_pending = true;
  }
  if (facts.ended) {
    // Nothing will run any more: failed unless everything that ran ended well and something did.
    if (init_failed || apps.failed > 0) return "Failed";
    if (apps.succeeded > 0 && apps.waiting == 0) return "Succeeded";
    if (apps.stopped > apps.succeeded) return "Failed";
    return std::string(get_string(facts.observed, {"phase"}, "Pending"));
  }
  if (init_failed && policy == "Never") return "Failed";
  if (init_pending && !apps_began(facts)) return "Pending";
  if (apps.waiting > 0) return "Pending";
  if (apps.running > 0) return "Running";
  if (apps.stopped == 0) return "Pending";
  if (policy == "Always") return "Running";
  if (apps.stopped == apps.succeeded) return "Succeeded";
  if (policy == "Never" && apps.succeeded + apps.failed == apps.stopped) return "Failed";
  return "Running";
}

std::string qos_class(const Json& pod) {
  bool any = false, guaranteed = true;
  for (std::string_view list : {"initContainers", "containers"}) {
    for (const Json& container : get_array(pod, {"spec", list})) {
      for (std::string_view resource : {"cpu", "memory"}) {
        const Json* limit = find(container, {"resources", "limits", resource});
        const Json* request = find(container, {"resources", "requests", resource});
        any = any || limit != nullptr || request != nullptr;
        if (limit == nullptr) {
          guaranteed = false;
        } else if (request != nullptr) {
          const auto a = kube::parse_quantity_milli(*limit), b = kube::parse_quantity_milli(*request);
          if (!a || !b || *a != *b) guaranteed = false;
        }
      }
    }
  }
  return !any ? "BestEffort" : guaranteed ? "Guaranteed" : "Burstable";
}

Json build_status(const PodFacts& facts) {
  JsonObject out;
  const std::string phase = pod_phase(facts);
  out["phase"] = phase;
  out["conditions"] = conditions_of(facts, phase);
  if (!facts.failed_reason.empty()) out["reason"] = facts.failed_reason;
  if (!facts.failed_message.empty()) out["message"] = facts.failed_message;
  out["hostIP"] = facts.node_ip;
  out["hostIPs"] = JsonArray{JsonObject{{"ip", facts.node_ip}}};
  if (facts.sandbox_ready || has(facts.observed, {"podIP"})) {
    out["podIP"] = facts.node_ip;
    out["podIPs"] = JsonArray{JsonObject{{"ip", facts.node_ip}}};
  }
  out["startTime"] = format_time(facts.start_time);
  // The API server decides it at creation and refuses another.
  const std::string_view qos = get_string(facts.observed, {"qosClass"});
  out["qosClass"] = qos.empty() ? qos_class(facts.pod) : std::string(qos);
  const bool initializing = has_init_containers(facts.pod) && !all_initialized(facts);
  JsonArray init, apps;
  for (const ContainerFacts& c : facts.containers) {
    const bool before = has_init_containers(facts.pod) && (initializing || c.kind != ContainerKind::kApp);
    (c.kind == ContainerKind::kApp ? apps : init).push_back(container_status(c, before, facts.scheme));
  }
  if (!init.empty()) out["initContainerStatuses"] = std::move(init);
  out["containerStatuses"] = std::move(apps);
  return out;
}

Json status_patch(const Json& observed, const Json& desired) {
  JsonObject patch;
  for (const auto& item : desired.get_object()) {
    if (item.key() == "conditions") continue;
    const Json* old = find(observed, {item.key()});
    if (old == nullptr || *old != item.value()) patch[item.key()] = item.value();
  }
  for (const char* key : {"reason", "message", "initContainerStatuses"}) {
    if (has(observed, {key}) && !has(desired, {key})) patch[key] = nullptr;
  }
  JsonArray conditions;
  for (const Json& condition : get_array(desired, {"conditions"})) {
    const Json* old = observed_condition(observed, get_string(condition, {"type"}));
    Json wanted = condition;
    for (const char* key : {"reason", "message"}) {
      if (old != nullptr && has(*old, {key}) && !has(condition, {key})) wanted.get_object()[key] = nullptr;
    }
    Json merged = old != nullptr ? *old : Json(JsonObject());
    kube::merge_apply(merged, wanted);
    if (old == nullptr || merged != *old) conditions.push_back(std::move(wanted));
  }
  if (!conditions.empty()) patch["conditions"] = std::move(conditions);
  return patch;
}

}  // namespace gpuop::cluster
