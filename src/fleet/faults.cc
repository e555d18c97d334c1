#include "fleet/faults.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "fleet/kubectl.h"
#include "fleet/xid.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::int64_t kManyRestarts = 2;
// A holder that is this late beyond its lease's own duration is gone: clocks differ by less.
constexpr Duration kLeaseMargin = 15s;

// Reasons to wait that no time heals.
bool hopeless(std::string_view reason) {
  static const std::set<std::string_view> kReasons = {"ErrImagePull",         "ImagePullBackOff",
                                                      "InvalidImageName",     "ErrImageNeverPull",
                                                      "CreateContainerError", "RunContainerError"};
  return kReasons.contains(reason);
}

std::string cure_of_waiting(const Json& pod, std::string_view reason, const std::string& container) {
  if (reason.find("Image") != std::string_view::npos)
    return "check the image's repository, name, version and pull secrets in the policy";
  if (reason == "CrashLoopBackOff")
    return "read its last log: " + kubectl(pod, "logs") + " -c " + container + " --previous";
  if (reason == "CreateContainerConfigError")
    return "create the ConfigMap or Secret that the message names, or correct its name in the policy";
  return "the node's runtime refuses it: " + kubectl(pod, "describe pod");
}

std::string cure_of_unscheduled(const Json& pod, std::string_view message) {
  if (message.find("taint") != std::string_view::npos)
    return "take the taint off the node, or tolerate it in daemonsets.tolerations of the policy (a list for "
           "every operand: a driver's pods that run are replaced then only when they are deleted, once the "
           "pods that use their GPUs have ended)";
  if (message.find("Insufficient") != std::string_view::npos)
    return "free that resource on the node, or lower the operand's resources in the policy";
  return kubectl(pod, "describe pod");
}

// Name and value of every key=value behind a message.
std::string value_in(std::string_view line, std::string_view key) {
  const std::string start = " " + std::string(key) + "=";
  const auto at = line.find(start);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + start.size());
  if (!line.starts_with('"')) return std::string(line.substr(0, line.find(' ')));
  std::string out;
  for (std::size_t i = 1; i < line.size() && line[i] != '"'; ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) ++i;
    out += line[i];
  }
  return out;
}

struct Line {
  std::string level;  // "error" for all that is worse too; "" when it is not known
  std::string text;
};

bool is_error(std::string_view level) {
  static const std::set<std::string_view> kLevels = {"error", "dpanic", "panic", "fatal", "critical"};
  return kLevels.contains(level);
}

// "E1130 10:00:00.000000       1 main.go:12] message"; no level where it is none of these.
Line klog_line(std::string_view raw) {
  static const std::map<char, std::string_view> kLevels = {
      {'I', "info"}, {'W', "warn"}, {'E', "error"}, {'F', "error"}};
  const auto end = raw.find("] ");
  const auto digits = [raw](std::size_t from, std::size_t to) {
    return std::all_of(raw.begin() + static_cast<std::ptrdiff_t>(from),
                       raw.begin() + static_cast<std::ptrdiff_t>(to),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (raw.size() < 9 || end == std::string_view::npos || raw[5] != ' ' || raw[8] != ':' || !digits(1, 5) ||
      !digits(6, 8) || !kLevels.contains(raw[0]))
    return {};
  return {std::string(kLevels.at(raw[0])), std::string(trim(raw.substr(end + 2)))};
}

// "TIME LEVEL PROGRAM: message key=value", JSON, klog, logrus, or anything else.
Line read_line(std::string_view raw) {
  raw = trim(raw);
  if (raw.starts_with('{')) {
    if (auto json = parse_json(raw); json && json->is_object()) {
      std::string text(get_string(*json, {"message"}, get_string(*json, {"msg"})));
      const auto level = get_string(*json, {"level"});
      if (!text.empty()) return {is_error(level) ? "error" : std::string(level), text};
    }
    return {"", std::string(raw)};
  }
  if (Line line = klog_line(raw); !line.level.empty()) return line;
  if (raw.starts_with("time=")) {
    const std::string level = value_in(raw, "level");
    if (std::string text = value_in(raw, "msg"); !level.empty() && !text.empty())
      return {is_error(level) ? "error" : level, std::move(text)};
  }
  const auto time = raw.substr(0, raw.find(' '));
  if (time.size() < 20 || !time.ends_with('Z') || time[4] != '-') return {"", std::string(raw)};
  auto rest = trim(raw.substr(time.size()));
  for (std::string_view level : {"error", "warn", "info", "debug"}) {
    if (!rest.starts_with(std::string(level) + " ")) continue;
    rest = trim(rest.substr(level.size()));
    const auto colon = rest.find(": ");
    const auto space = rest.find(' ');
    if (colon != std::string_view::npos && colon < space) rest.remove_prefix(colon + 2);
    return {std::string(level), std::string(rest)};
  }
  return {"", std::string(raw)};
}

std::string xid_text(const std::string& number, const std::string& index, const std::string& gpu) {
  const Xid known = xid(parse_int(number).value_or(0), index.empty() ? gpu : index);
  return "XID " + number + (known.meaning.empty() ? "" : ", " + std::string(known.meaning)) + "; " +
         known.cure;
}

std::string unit_name(const std::string& unit, const std::string& index) {
  return index.empty() ? unit : "GPU " + index + " (" + unit + ")";
}

class PluginLog {
 public:
  void line(const std::string& text) {
    if (text.starts_with("restarting: ")) {
      missing_.clear();
      refused_.clear();
      if (text.ends_with("asked to reload")) units_.clear();
    } else if (text.starts_with("GPU event ")) {
      mark(text, xid_text(value_in(text, "xid"), value_in(text, "index"), value_in(text, "gpu")));
    } else if (text.starts_with("GPU is unhealthy: ")) {
      mark(text, text.substr(18, text.find(" gpu=") - 18) +
                     "; run nvidia-smi on the node, and reboot it if the GPU is not there");
    } else if (text.starts_with("device is healthy again")) {
      units_.erase(value_in(text, "device"));
    } else if (text.starts_with("not offered: ")) {
      missing_.push_back(text.substr(13));
    } else if (text.starts_with("start failed: ")) {
      refused_ = text.substr(14, text.rfind(" retry=") - 14);
    } else if (text.starts_with("registered with the kubelet")) {
      refused_.clear();
    } else {
      foreign(text);
    }
  }

  std::vector<std::string> faults() const {
    std::vector<std::string> out;
    if (!refused_.empty()) out.push_back("the device plugin did not start: " + refused_);
    for (const auto& [unit, fault] : units_) out.push_back(unit_name(unit, fault.index) + ": " + fault.why);
    for (const std::string& why : missing_) out.push_back("not offered: " + why);
    return out;
  }

 private:
  struct Unit {
    std::string index;  // of its GPU, "" where the log does not tell
    std::string why;
  };

  void mark(const std::string& line, const std::string& why) {
    for (const std::string& unit : split(value_in(line, "marked_unhealthy"), ','))
      if (!unit.empty()) units_[unit] = {value_in(line, "index"), why};
  }

  // "XidCriticalError: Xid=48 on Device=GPU-…; marking device as unhealthy."
  void foreign(const std::string& text) {
    const auto number = text.find("Xid=");
    const auto device = text.find("Device=");
    if (number == std::string::npos || device == std::string::npos ||
        text.find("unhealthy") == std::string::npos)
      return;
    const auto word = [&text](std::size_t at) { return text.substr(at, text.find_first_of(" ;,", at) - at); };
    const std::string unit = word(device + 7);
    units_[unit] = {"", xid_text(word(number + 4), "", unit)};
  }

  std::map<std::string, Unit> units_;
  std::vector<std::string> missing_;
  std::string refused_;
};

const Json* operator_deployment(const JsonArray& deployments) {
  for (const Json& deployment : deployments) {
    if (kube::name_of(deployment) == "gpu-operator" ||
        kube::label(deployment, "app.kubernetes.io/component") == "gpu-operator") {
      return &deployment;
    }
  }
  return nullptr;
}

// What is wrong with the operator's own pods; "" when nothing is to be seen.
std::string operator_pod_fault(const Json& deployment, const Objects& pods) {
  const auto& wanted = get_object(deployment, {"spec", "selector", "matchLabels"});
  for (const auto& pod : pods) {
    const bool ours = !wanted.empty() && std::ranges::all_of(wanted, [&pod](const auto& label) {
      return kube::label(*pod, str(label.key())) == as_text(label.value());
    });
    if (!ours) continue;
    if (auto fault = fault_of(*pod)) return "pod " + std::string(kube::name_of(*pod)) + ": " + fault->text;
  }
  return {};
}

bool elects_a_leader(const Json& deployment) {
  for (const auto& container : get_array(deployment, {"spec", "template", "spec", "containers"})) {
    for (std::string_view list : {"args", "command"}) {
      for (const auto& word : get_array(container, {list})) {
        if (as_text(word).starts_with("--leader-elect") && as_text(word) != "--leader-elect=false")
          return true;
      }
    }
  }
  return false;
}

std::string lease_fault(const Json& lease, Time now) {
  const std::string doing = "no operator leads: the Lease " + std::string(kOperatorLease) + " ";
  if (!lease.is_object()) return doing + "does not exist";
  const std::string holder(get_string(lease, {"spec", "holderIdentity"}));
  if (holder.empty()) return doing + "has no holder";
  const auto renewed = parse_time(get_string(lease, {"spec", "renewTime"}));
  if (!renewed) return doing + "was never renewed";
  const auto age = now - *renewed;
  if (age <= std::chrono::seconds(get_int(lease, {"spec", "leaseDurationSeconds"}, 15)) + kLeaseMargin)
    return {};
  return doing + "was last renewed " +
         format_go_duration(std::chrono::duration_cast<std::chrono::seconds>(age)) + " ago by " + holder;
}

bool went_with_its_node(std::string_view reason) {
  static const std::set<std::string_view> kReasons = {"Terminated", "NodeShutdown", "Shutdown"};
  return kReasons.contains(reason);
}

// The pod has no sandbox, though it is to run: its node has booted, or it is made anew for another reason.
// What it had before says nothing of it.
bool starts_anew(const Json& pod) {
  const auto phase = get_string(pod, {"status", "phase"});
  const Json* sandbox = kube::condition(pod, "PodReadyToStartContainers");
  return sandbox && get_string(*sandbox, {"status"}) == "False" && phase != "Failed" && phase != "Succeeded";
}

// Whether a container's end, of its `state` or `lastState`, is a fault that counts.
bool tells_of_now(const Json& pod, const Json& status, std::string_view state, const Json& ended,
                  std::optional<Time> since) {
  if (get_int(ended, {"exitCode"}, 0) == 0) return false;
  // Runtime and kubelet write so where they find a container gone, as behind a boot.
  const auto reason = get_string(ended, {"reason"});
  if (reason == "Unknown" || reason == "ContainerStatusUnknown" || starts_anew(pod)) return false;
  if (state == "state") return true;
  if (get_bool(status, {"ready"})) return false;
  const auto finished = parse_time(get_string(ended, {"finishedAt"}));
  return !since || !finished || *finished >= *since;
}

// "ended with code 137 (killed by signal 9)"
std::string end_of(const Json& ended) {
  constexpr std::int64_t kSignals = 128, kLast = 64;
  const auto code = get_int(ended, {"exitCode"});
  const auto reason = get_string(ended, {"reason"});
  std::string out = "ended with code " + std::to_string(code);
  if (!reason.empty() && reason != "Error")
    out += " (" + std::string(reason) + ")";
  else if (code > kSignals && code <= kSignals + kLast)
    out += " (killed by signal " + std::to_string(code - kSignals) + ")";
  return out;
}

// Its termination message, which the kubelet may have taken from the end of its log.
std::string words_of(const Json& ended) {
  return last_words(get_string(ended, {"message"}));
}

// "container c ended with code 137 (OOMKilled): words"
Fault fault_of_end(const Json& ended, const std::string& container) {
  Fault fault;
  fault.text = "container " + container + " " + end_of(ended);
  if (get_string(ended, {"reason"}) == "OOMKilled")
    fault.cure = "raise the memory limit in the operand's resources of the policy";
  if (const auto words = words_of(ended); !words.empty()) fault.text += ": " + words;
  return fault;
}

}  // namespace

std::optional<Fault> container_fault(const Json& pod, const Json& status, std::optional<Time> since) {
  const std::string name(get_string(status, {"name"}));
  const LogRef now{std::string(kube::name_of(pod)), name, false};
  LogRef before = now;
  before.previous = true;
  const auto waiting = get_string(status, {"state", "waiting", "reason"});
  if (!waiting.empty() && waiting != "PodInitializing" && waiting != "ContainerCreating") {
    Fault fault{"container " + name + ": " + std::string(waiting), std::nullopt, hopeless(waiting),
                cure_of_waiting(pod, waiting, name)};
    fault.by_itself =
        waiting.find("Image") != std::string_view::npos || waiting == "CreateContainerConfigError";
    if (waiting == "CrashLoopBackOff") fault.stuck = get_int(status, {"restartCount"}) >= kManyRestarts;
    // A crash's own last words say more than the back-off.
    const Json* ended = find(status, {"lastState", "terminated"});
    const std::string words = ended ? words_of(*ended) : std::string();
    const std::string message(get_string(status, {"state", "waiting", "message"}));
    if (!words.empty()) {
      fault.text += ": " + words;
    } else {
      const bool killed = ended && end_of(*ended).find('(') != std::string::npos;
      if (killed) fault.text += ": " + end_of(*ended);
      if (!message.empty()) fault.text += ": " + message;
      // The container that waits is the one that ended.
      if (ended) fault.log = now;
    }
    return fault;
  }
  for (std::string_view state : {"state", "lastState"}) {
    const Json* ended = find(status, {state, "terminated"});
    if (!ended || !tells_of_now(pod, status, state, *ended, since)) continue;
    Fault fault = fault_of_end(*ended, name);
    fault.cure = fault.cure.empty() ? "read its log: " + kubectl(pod, "logs") + " -c " + name +
                                          (state == "lastState" ? " --previous" : "")
                                    : fault.cure;
    if (words_of(*ended).empty()) fault.log = state == "lastState" ? before : now;
    return fault;
  }
  return std::nullopt;
}

std::optional<Fault> fault_of(const Json& pod, std::optional<Time> since) {
  const bool over = get_string(pod, {"status", "phase"}) == "Failed";
  // Its node was shut down; its DaemonSet makes another.
  if (over && went_with_its_node(get_string(pod, {"status", "reason"}))) return std::nullopt;
  for (std::string_view list : {"initContainerStatuses", "containerStatuses"}) {
    for (const auto& status : get_array(pod, {"status", list})) {
      if (auto fault = container_fault(pod, status, since)) return fault;
    }
  }
  if (const auto reason = get_string(pod, {"status", "reason"}); over && !reason.empty()) {
    const auto message = get_string(pod, {"status", "message"});
    return Fault{std::string(reason) + (message.empty() ? "" : ": " + std::string(message)), std::nullopt,
                 false, "free on the node what the message names; the DaemonSet makes another pod by itself"};
  }
  const Json* scheduled = kube::condition(pod, "PodScheduled");
  if (scheduled && get_string(*scheduled, {"status"}) == "False")
    return Fault{std::string(get_string(*scheduled, {"message"})), std::nullopt, false,
                 cure_of_unscheduled(pod, get_string(*scheduled, {"message"})), true};
  return std::nullopt;
}

bool pod_ready(const Json& pod) {
  const Json* ready = kube::condition(pod, "Ready");
  return ready && get_string(*ready, {"status"}) == "True";
}

std::string last_words(std::string_view log) {
  Line last;
  std::string error;
  for (const std::string& raw : split(log, '\n')) {
    if (trim(raw).empty()) continue;
    last = read_line(raw);
    if (last.level == "error") error = last.text;
  }
  if (!error.empty()) return error;
  return last.level.empty() ? last.text : std::string();
}

std::vector<std::string> plugin_faults(std::string_view log) {
  PluginLog plugin;
  for (const std::string& raw : split(log, '\n')) plugin.line(read_line(raw).text);
  return plugin.faults();
}

std::string xid_fault(const std::string& unit, const std::string& index, std::int64_t number) {
  return unit_name(unit, index) + ": " + xid_text(std::to_string(number), index, unit);
}

std::string definition_fault(std::string_view fault) {
  // As a server answers that knows the group's other kinds, or none of the group.
  const bool absent =
      fault.contains("could not find the requested resource") || fault.contains("404 page not found");
  return absent ? "the definition clusterpolicies.nvidia.com is not installed; install the operator: helm "
                  "install with its chart, or kubectl apply -k deploy"
                : "";
}

std::vector<std::string> operator_deployment_fields() {
  return {"spec.replicas", "spec.selector", "spec.template.spec.containers", "status.availableReplicas"};
}

std::string operator_fault(const JsonArray& deployments, const Json& lease, const Objects& pods,
                           std::string_view ns, Time now) {
  const Json* deployment = operator_deployment(deployments);
  if (!deployment) {
    return "namespace '" + std::string(ns) +
           "' has no Deployment gpu-operator: nothing acts on the policy (--namespace names another)";
  }
  const std::string name = "Deployment " + std::string(kube::name_of(*deployment));
  const auto wanted = get_int(*deployment, {"spec", "replicas"}, 1);
  if (wanted == 0) return name + " is scaled to 0: nothing acts on the policy";
  const auto available = get_int(*deployment, {"status", "availableReplicas"});
  if (available == 0) {
    const std::string why = operator_pod_fault(*deployment, pods);
    return name + ": 0 of " + std::to_string(wanted) + " replicas available" +
           (why.empty() ? "" : "; " + why);
  }
  return elects_a_leader(*deployment) ? lease_fault(lease, now) : std::string();
}

}  // namespace gpuop::fleet
