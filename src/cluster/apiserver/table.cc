// Table output: the columns and cells that kubectl get shows (kubernetes-api.md §7.3).
#include <algorithm>
#include <map>

#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

std::string age_of(std::string_view time, Time now) {
  if (time.empty()) return "<unknown>";
  Result<Time> at = parse_time(time);
  if (!at) return "<unknown>";
  return human_age(now - *at < Duration::zero() ? Duration::zero() : now - *at);
}

std::string age(const Json& object, Time now) {
  return age_of(get_string(object, {"metadata", "creationTimestamp"}), now);
}

std::string or_none(std::string_view text) {
  return text.empty() ? "<none>" : std::string(text);
}

std::string joined(const JsonArray& list, std::string_view key) {
  std::string out;
  for (const Json& item : list) out += (out.empty() ? "" : ",") + str(get_string(item, {key}));
  return out;
}

std::string containers_of(const Json& object) {
  return joined(get_array(object, {"spec", "template", "spec", "containers"}), "name");
}
std::string images_of(const Json& object) {
  return joined(get_array(object, {"spec", "template", "spec", "containers"}), "image");
}

std::string map_text(const JsonObject& map) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : map) parts.push_back(std::string(key) + "=" + str(as_text(value)));
  std::sort(parts.begin(), parts.end());
  return join(parts, ",");
}

std::string selector_text(const Json& object, Keys keys) {
  const Json* selector = find(object, keys);
  if (selector == nullptr) return "<none>";
  std::string text = map_text(get_object(*selector, {"matchLabels"}));
  for (const Json& term : get_array(*selector, {"matchExpressions"})) {
    if (!text.empty()) text += ",";
    std::string values;
    for (const Json& value : get_array(term, {"values"}))
      values += (values.empty() ? "" : ",") + str(as_text(value));
    std::string key = str(get_string(term, {"key"}));
    std::string_view op = get_string(term, {"operator"});
    text += op == "Exists"         ? key
            : op == "DoesNotExist" ? "!" + key
                                   : key + (op == "In" ? " in (" : " notin (") + values + ")";
  }
  return text;
}

// --- pods
// --------------------------------------------------------------------------------------------------------

std::string terminated_text(const Json& state) {
  std::string reason = str(get_string(state, {"terminated", "reason"}));
  if (!reason.empty()) return reason;
  if (std::int64_t signal = get_int(state, {"terminated", "signal"}))
    return "Signal:" + std::to_string(signal);
  return "ExitCode:" + std::to_string(get_int(state, {"terminated", "exitCode"}));
}

const Json* status_of(const Json& pod, std::string_view list, std::string_view name) {
  for (const Json& status : get_array(pod, {"status", list}))
    if (get_string(status, {"name"}) == name) return &status;
  return nullptr;
}

bool is_sidecar(const Json& container) {
  return get_string(container, {"restartPolicy"}) == "Always";
}

struct PodSummary {
  std::string reason;
  std::int64_t ready = 0, total = 0, restarts = 0;
  std::string last_restart;
};

void note_restart(const Json& status, PodSummary& out) {
  out.restarts += get_int(status, {"restartCount"});
  std::string finished = str(get_string(status, {"lastState", "terminated", "finishedAt"}));
  if (finished > out.last_restart) out.last_restart = finished;  // RFC 3339 in UTC sorts as text
}

// The init container that holds the pod up, as text; "" when none does.
std::string init_reason(const Json& pod, PodSummary& out) {
  const JsonArray& inits = get_array(pod, {"spec", "initContainers"});
  for (std::size_t i = 0; i < inits.size(); ++i) {
    const Json* status = status_of(pod, "initContainerStatuses", get_string(inits[i], {"name"}));
    if (status == nullptr) return "Init:" + std::to_string(i) + "/" + std::to_string(inits.size());
    note_restart(*status, out);
    const Json state = *(has(*status, {"state"}) ? find(*status, {"state"}) : status);
    if (has(state, {"terminated"}) && get_int(state, {"terminated", "exitCode"}) == 0) continue;
    if (is_sidecar(inits[i]) && get_bool(*status, {"started"})) {
      if (get_bool(*status, {"ready"})) ++out.ready;
      continue;
    }
    if (has(state, {"terminated"})) {
      std::string reason = str(get_string(state, {"terminated", "reason"}));
      if (reason.empty()) reason = terminated_text(state);
      return "Init:" + reason;
    }
    std::string_view waiting = get_string(state, {"waiting", "reason"});
    if (!waiting.empty() && waiting != "PodInitializing") return "Init:" + str(waiting);
    return "Init:" + std::to_string(i) + "/" + std::to_string(inits.size());
  }
  return {};
}

void container_reasons(const Json& pod, PodSummary& out) {
  bool running = false;
  const JsonArray& statuses = get_array(pod, {"status", "containerStatuses"});
  for (auto status = statuses.rbegin(); status != statuses.rend(); ++status) {
    note_restart(*status, out);
    const Json& value = *status;
    std::string_view waiting = get_string(value, {"state", "waiting", "reason"});
    if (!waiting.empty()) {
      out.reason = str(waiting);
    } else if (has(value, {"state", "terminated"})) {
      out.reason = terminated_text(*find(value, {"state"}));
    } else if (get_bool(value, {"ready"}) && has(value, {"state", "running"})) {
      running = true;
      ++out.ready;
    }
  }
  if (out.reason == "Completed" && running) {
    const Json* ready = kube::condition(pod, "Ready");
    out.reason = ready != nullptr && get_string(*ready, {"status"}) == "True" ? "Running" : "NotReady";
  }
}

PodSummary summarize(const Json& pod) {
  PodSummary out;
  out.reason = str(get_string(pod, {"status", "phase"}));
  if (std::string_view reason = get_string(pod, {"status", "reason"}); !reason.empty())
    out.reason = str(reason);
  if (const Json* scheduled = kube::condition(pod, "PodScheduled");
      scheduled != nullptr && get_string(*scheduled, {"reason"}) == "SchedulingGated")
    out.reason = "SchedulingGated";
  out.total = static_cast<std::int64_t>(get_array(pod, {"spec", "containers"}).size());
  for (const Json& init : get_array(pod, {"spec", "initContainers"}))
    if (is_sidecar(init)) ++out.total;
  bool began = !get_array(pod, {"status", "initContainerStatuses"}).empty();
  std::string init = began ? init_reason(pod, out) : "";
  if (!init.empty()) {
    out.reason = init;
  } else {
    container_reasons(pod, out);
  }
  if (has(pod, {"metadata", "deletionTimestamp"}))
    out.reason = get_string(pod, {"status", "reason"}) == "NodeLost" ? "Unknown" : "Terminating";
  return out;
}

JsonArray pod_cells(const Json& pod, Time now) {
  PodSummary sum = summarize(pod);
  std::string restarts = std::to_string(sum.restarts);
  if (sum.restarts > 0 && !sum.last_restart.empty())
    restarts += " (" + age_of(sum.last_restart, now) + " ago)";
  std::string gates = "<none>";
  if (const JsonArray& list = get_array(pod, {"spec", "readinessGates"}); !list.empty()) {
    std::int64_t met = 0;
    for (const Json& gate : list) {
      const Json* condition = kube::condition(pod, get_string(gate, {"conditionType"}));
      if (condition != nullptr && get_string(*condition, {"status"}) == "True") ++met;
    }
    gates = std::to_string(met) + "/" + std::to_string(list.size());
  }
  return JsonArray{kube::name_of(pod),
                   std::to_string(sum.ready) + "/" + std::to_string(sum.total),
                   sum.reason,
                   restarts,
                   age(pod, now),
                   or_none(get_string(pod, {"status", "podIP"})),
                   or_none(get_string(pod, {"spec", "nodeName"})),
                   or_none(get_string(pod, {"status", "nominatedNodeName"})),
                   gates};
}

// --- nodes and workloads
// -----------------------------------------------------------------------------------------

std::string node_address(const Json& node, std::string_view type) {
  for (const Json& address : get_array(node, {"status", "addresses"}))
    if (get_string(address, {"type"}) == type) return str(get_string(address, {"address"}));
  return "<none>";
}

JsonArray node_cells(const Json& node, Time now) {
  const Json* ready = kube::condition(node, "Ready");
  std::string status = "Unknown";
  if (ready != nullptr) {
    std::string_view word = get_string(*ready, {"status"});
    status = word == "True" ? "Ready" : "NotReady";
  }
  if (get_bool(node, {"spec", "unschedulable"})) status += ",SchedulingDisabled";
  std::vector<std::string> roles;
  for (const auto& [key, value] : get_object(node, {"metadata", "labels"})) {
    std::string_view name(key.data(), key.size());
    if (name.starts_with("node-role.kubernetes.io/") && name.size() > 24) roles.emplace_back(name.substr(24));
    if (name == "kubernetes.io/role" && !as_text(value).empty()) roles.push_back(str(as_text(value)));
  }
  std::sort(roles.begin(), roles.end());
  roles.erase(std::unique(roles.begin(), roles.end()), roles.end());
  auto info = [&](std::string_view key) {
    std::string_view text = get_string(node, {"status", "nodeInfo", key});
    return text.empty() ? std::string("<unknown>") : std::string(text);
  };
  return JsonArray{kube::name_of(node),
                   status,
                   or_none(join(roles, ",")),
                   age(node, now),
                   get_string(node, {"status", "nodeInfo", "kubeletVersion"}),
                   node_address(node, "InternalIP"),
                   node_address(node, "ExternalIP"),
                   info("osImage"),
                   info("kernelVersion"),
                   info("containerRuntimeVersion")};
}

JsonArray daemonset_cells(const Json& o, Time now) {
  auto n = [&](std::string_view key) { return get_int(o, {"status", key}); };
  return JsonArray{kube::name_of(o),
                   n("desiredNumberScheduled"),
                   n("currentNumberScheduled"),
                   n("numberReady"),
                   n("updatedNumberScheduled"),
                   n("numberAvailable"),
                   or_none(map_text(get_object(o, {"spec", "template", "spec", "nodeSelector"}))),
                   age(o, now),
                   containers_of(o),
                   images_of(o),
                   selector_text(o, {"spec", "selector"})};
}

JsonArray deployment_cells(const Json& o, Time now) {
  return JsonArray{kube::name_of(o),
                   std::to_string(get_int(o, {"status", "readyReplicas"})) + "/" +
                       std::to_string(get_int(o, {"spec", "replicas"})),
                   get_int(o, {"status", "updatedReplicas"}),
                   get_int(o, {"status", "availableReplicas"}),
                   age(o, now),
                   containers_of(o),
                   images_of(o),
                   selector_text(o, {"spec", "selector"})};
}

JsonArray replicaset_cells(const Json& o, Time now) {
  return JsonArray{kube::name_of(o),
                   get_int(o, {"spec", "replicas"}),
                   get_int(o, {"status", "replicas"}),
                   get_int(o, {"status", "readyReplicas"}),
                   age(o, now),
                   containers_of(o),
                   images_of(o),
                   selector_text(o, {"spec", "selector"})};
}

JsonArray statefulset_cells(const Json& o, Time now) {
  return JsonArray{kube::name_of(o),
                   std::to_string(get_int(o, {"status", "readyReplicas"})) + "/" +
                       std::to_string(get_int(o, {"spec", "replicas"})),
                   age(o, now), containers_of(o), images_of(o)};
}

JsonArray job_cells(const Json& o, Time now) {
  std::string status = "Running";
  auto is_true = [&](std::string_view type) {
    const Json* condition = kube::condition(o, type);
    return condition != nullptr && get_string(*condition, {"status"}) == "True";
  };
  if (is_true("Complete")) status = "Complete";
  if (is_true("Failed")) status = "Failed";
  if (is_true("Suspended")) status = "Suspended";
  if (has(o, {"metadata", "deletionTimestamp"})) status = "Terminating";
  std::string duration;
  std::string_view started = get_string(o, {"status", "startTime"});
  if (Result<Time> begin = parse_time(started); begin && !started.empty()) {
    Result<Time> end = parse_time(get_string(o, {"status", "completionTime"}));
    duration = human_age((end ? *end : now) - *begin);
  }
  std::string completions = has(o, {"spec", "completions"})
                                ? std::to_string(get_int(o, {"status", "succeeded"})) + "/" +
                                      std::to_string(get_int(o, {"spec", "completions"}))
                                : std::to_string(get_int(o, {"status", "succeeded"})) + "/1";
  return JsonArray{kube::name_of(o), status,           completions,  duration,
                   age(o, now),      containers_of(o), images_of(o), selector_text(o, {"spec", "selector"})};
}

JsonArray cronjob_cells(const Json& o, Time now) {
  std::string_view last = get_string(o, {"status", "lastScheduleTime"});
  const JsonArray& containers =
      get_array(o, {"spec", "jobTemplate", "spec", "template", "spec", "containers"});
  return JsonArray{kube::name_of(o),
                   get_string(o, {"spec", "schedule"}),
                   or_none(get_string(o, {"spec", "timeZone"})),
                   get_bool(o, {"spec", "suspend"}) ? "True" : "False",
                   static_cast<std::int64_t>(get_array(o, {"status", "active"}).size()),
                   last.empty() ? std::string("<none>") : age_of(last, now),
                   age(o, now),
                   joined(containers, "name"),
                   joined(containers, "image"),
                   selector_text(o, {"spec", "jobTemplate", "spec", "selector"})};
}

JsonArray service_cells(const Json& o, Time now) {
  std::string ports;
  for (const Json& port : get_array(o, {"spec", "ports"})) {
    if (!ports.empty()) ports += ",";
    ports += std::to_string(get_int(port, {"port"}));
    if (std::int64_t node = get_int(port, {"nodePort"})) ports += ":" + std::to_string(node);
    ports += "/" + str(get_string(port, {"protocol"}));
  }
  std::string_view type = get_string(o, {"spec", "type"});
  std::string external = "<none>";
  if (type == "LoadBalancer") external = "<pending>";
  if (type == "ExternalName") external = str(get_string(o, {"spec", "externalName"}));
  return JsonArray{
      kube::name_of(o), type,        or_none(get_string(o, {"spec", "clusterIP"})),         external,
      or_none(ports),   age(o, now), or_none(map_text(get_object(o, {"spec", "selector"})))};
}

// --- the rest
// ----------------------------------------------------------------------------------------------------

JsonArray event_cells(const Json& o, Time now) {
  std::string_view last = get_string(o, {"lastTimestamp"}, get_string(o, {"series", "lastObservedTime"}));
  if (last.empty()) last = get_string(o, {"eventTime"});
  std::string_view first = get_string(o, {"firstTimestamp"}, get_string(o, {"eventTime"}));
  std::string source = str(get_string(o, {"source", "component"}, get_string(o, {"reportingComponent"})));
  if (std::string_view host = get_string(o, {"source", "host"}, get_string(o, {"reportingInstance"}));
      !host.empty())
    source += ", " + str(host);
  std::int64_t count = get_int(o, {"count"}, get_int(o, {"series", "count"}, 1));
  return JsonArray{age_of(last, now),
                   get_string(o, {"type"}),
                   get_string(o, {"reason"}),
                   to_lower(get_string(o, {"involvedObject", "kind"})) + "/" +
                       str(get_string(o, {"involvedObject", "name"})),
                   get_string(o, {"involvedObject", "fieldPath"}),
                   source,
                   trim(get_string(o, {"message"})),
                   age_of(first, now),
                   count,
                   kube::name_of(o)};
}

std::string subjects(const Json& o, std::string_view kind) {
  std::string out;
  for (const Json& subject : get_array(o, {"subjects"})) {
    if (get_string(subject, {"kind"}) != kind) continue;
    if (!out.empty()) out += ", ";
    if (kind == "ServiceAccount") out += str(get_string(subject, {"namespace"})) + "/";
    out += str(get_string(subject, {"name"}));
  }
  return out;
}

JsonArray binding_cells(const Json& o, Time now) {
  return JsonArray{kube::name_of(o),
                   str(get_string(o, {"roleRef", "kind"})) + "/" + str(get_string(o, {"roleRef", "name"})),
                   age(o, now),
                   subjects(o, "User"),
                   subjects(o, "Group"),
                   subjects(o, "ServiceAccount")};
}

std::string amount(const Json& o, Keys keys) {
  const Json* value = find(o, keys);
  if (value == nullptr) return "N/A";
  return plain_text(*value);
}

std::string controller_text(const Json& o) {
  const Json* owner = kube::controller_of(o);
  if (owner == nullptr) return "<none>";
  std::string api = str(get_string(*owner, {"apiVersion"}));
  std::size_t slash = api.find('/');
  std::string group = slash == std::string::npos ? "" : "." + api.substr(0, slash);
  return to_lower(get_string(*owner, {"kind"})) + group + "/" + str(get_string(*owner, {"name"}));
}

// The first three, and how many more there are.
std::string first_three(const std::vector<std::string>& all) {
  std::string out;
  for (std::size_t i = 0; i < all.size() && i < 3; ++i) out += (i == 0 ? "" : ",") + all[i];
  if (all.size() > 3) out += " + " + std::to_string(all.size() - 3) + " more...";
  return out;
}

JsonArray endpoints_cells(const Json& o, Time now) {
  std::vector<std::string> all;
  for (const Json& subset : get_array(o, {"subsets"})) {
    const JsonArray& ports = get_array(subset, {"ports"});
    for (std::size_t i = 0; i < std::max<std::size_t>(ports.size(), 1); ++i)
      for (const Json& address : get_array(subset, {"addresses"}))
        all.push_back(str(get_string(address, {"ip"})) +
                      (ports.empty() ? "" : ":" + std::to_string(get_int(ports[i], {"port"}))));
  }
  const bool none = get_array(o, {"subsets"}).empty();
  return JsonArray{kube::name_of(o), none ? "<none>" : first_three(all), age(o, now)};
}

JsonArray slice_cells(const Json& o, Time now) {
  std::vector<std::string> ports;
  std::vector<std::string> addresses;
  for (const Json& port : get_array(o, {"ports"}))
    ports.push_back(has(port, {"port"}) ? std::to_string(get_int(port, {"port"})) : "*");
  for (const Json& endpoint : get_array(o, {"endpoints"}))
    for (const Json& address : get_array(endpoint, {"addresses"})) addresses.push_back(str(as_text(address)));
  return JsonArray{kube::name_of(o), get_string(o, {"addressType"}),
                   ports.empty() ? "<unset>" : first_three(ports),
                   addresses.empty() ? "<unset>" : first_three(addresses), age(o, now)};
}

struct BuiltinTable {
  std::string_view columns;  // "Name|Ready|*IP": a star marks wide output; "#" numbers
  JsonArray (*cells)(const Json&, Time);
};

const std::map<std::string_view, BuiltinTable>& tables() {
  static const std::map<std::string_view, BuiltinTable> all = {
      {"/pods", {"Name|Ready|Status|Restarts|Age|*IP|*Node|*Nominated Node|*Readiness Gates", pod_cells}},
      {"/nodes",
       {"Name|Status|Roles|Age|Version|*Internal-IP|*External-IP|*OS-Image|*Kernel-Version|*Container-"
        "Runtime",
        node_cells}},
      {"apps/daemonsets",
       {"Name|#Desired|#Current|#Ready|#Up-to-date|#Available|Node "
        "Selector|Age|*Containers|*Images|*Selector",
        daemonset_cells}},
      {"apps/deployments",
       {"Name|Ready|#Up-to-date|#Available|Age|*Containers|*Images|*Selector", deployment_cells}},
      {"apps/replicasets",
       {"Name|#Desired|#Current|#Ready|Age|*Containers|*Images|*Selector", replicaset_cells}},
      {"/replicationcontrollers",
       {"Name|#Desired|#Current|#Ready|Age|*Containers|*Images|*Selector", replicaset_cells}},
      {"apps/statefulsets", {"Name|Ready|Age|*Containers|*Images", statefulset_cells}},
      {"batch/jobs", {"Name|Status|Completions|Duration|Age|*Containers|*Images|*Selector", job_cells}},
      {"batch/cronjobs",
       {"Name|Schedule|Timezone|Suspend|#Active|Last Schedule|Age|*Containers|*Images|*Selector",
        cronjob_cells}},
      {"/services", {"Name|Type|Cluster-IP|External-IP|Port(s)|Age|*Selector", service_cells}},
      {"/endpoints", {"Name|Endpoints|Age", endpoints_cells}},
      {"discovery.k8s.io/endpointslices", {"Name|AddressType|Ports|Endpoints|Age", slice_cells}},
      {"/configmaps",
       {"Name|Data|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o),
                           static_cast<std::int64_t>(get_object(o, {"data"}).size() +
                                                     get_object(o, {"binaryData"}).size()),
                           age(o, now)};
        }}},
      {"/secrets",
       {"Name|Type|Data|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), get_string(o, {"type"}),
                           static_cast<std::int64_t>(get_object(o, {"data"}).size()), age(o, now)};
        }}},
      {"/namespaces",
       {"Name|Status|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), get_string(o, {"status", "phase"}), age(o, now)};
        }}},
      {"/serviceaccounts",
       {"Name|#Secrets|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), static_cast<std::int64_t>(get_array(o, {"secrets"}).size()),
                           age(o, now)};
        }}},
      {"/events",
       {"Last Seen|Type|Reason|Object|*Subobject|*Source|Message|*First Seen|*#Count|*Name", event_cells}},
      {"coordination.k8s.io/leases",
       {"Name|Holder|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), get_string(o, {"spec", "holderIdentity"}), age(o, now)};
        }}},
      {"apps/controllerrevisions",
       {"Name|Controller|#Revision|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), controller_text(o), get_int(o, {"revision"}), age(o, now)};
        }}},
      {"policy/poddisruptionbudgets",
       {"Name|Min Available|Max Unavailable|#Allowed Disruptions|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), amount(o, {"spec", "minAvailable"}),
                           amount(o, {"spec", "maxUnavailable"}),
                           get_int(o, {"status", "disruptionsAllowed"}), age(o, now)};
        }}},
      {"rbac.authorization.k8s.io/roles",
       {"Name|Created At",
        [](const Json& o, Time) {
          return JsonArray{kube::name_of(o), get_string(o, {"metadata", "creationTimestamp"})};
        }}},
      {"rbac.authorization.k8s.io/clusterroles",
       {"Name|Created At",
        [](const Json& o, Time) {
          return JsonArray{kube::name_of(o), get_string(o, {"metadata", "creationTimestamp"})};
        }}},
      {"apiextensions.k8s.io/customresourcedefinitions",
       {"Name|Created At",
        [](const Json& o, Time) {
          return JsonArray{kube::name_of(o), get_string(o, {"metadata", "creationTimestamp"})};
        }}},
      {"rbac.authorization.k8s.io/rolebindings",
       {"Name|Role|Age|*Users|*Groups|*ServiceAccounts", binding_cells}},
      {"rbac.authorization.k8s.io/clusterrolebindings",
       {"Name|Role|Age|*Users|*Groups|*ServiceAccounts", binding_cells}},
      {"node.k8s.io/runtimeclasses",
       {"Name|Handler|Age",
        [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), get_string(o, {"handler"}), age(o, now)};
        }}},
      {"scheduling.k8s.io/priorityclasses",
       {"Name|#Value|Global-Default|Age|PreemptionPolicy", [](const Json& o, Time now) {
          return JsonArray{kube::name_of(o), get_int(o, {"value"}),
                           get_bool(o, {"globalDefault"}) ? "true" : "false", age(o, now),
                           get_string(o, {"preemptionPolicy"})};
        }}}};
  return all;
}

JsonObject column(std::string_view name, std::string_view type, std::string_view format,
                  std::string_view description, int priority) {
  return JsonObject{{"name", name},
                    {"type", type},
                    {"format", format},
                    {"description", description},
                    {"priority", priority}};
}

Json custom_cell(const PrinterColumn& column, const Json& object, Time now) {
  const Json* value = by_json_path(object, column.json_path);
  if (value == nullptr || value->is_null()) return nullptr;
  if (column.type == "date") {
    if (!value->is_string() || !parse_time(as_text(*value))) return "<invalid>";
    return Json(age_of(as_text(*value), now));
  }
  if (column.type == "integer")
    return value->is_int64()    ? *value
           : value->is_double() ? Json(static_cast<std::int64_t>(value->get_double()))
                                : Json(nullptr);
  if (column.type == "number") return value->is_number() ? *value : Json(nullptr);
  if (column.type == "boolean") return value->is_bool() ? *value : Json(nullptr);
  return value->is_string() ? *value : Json(to_text(*value));
}

}  // namespace

Json table_columns(const ResourceType& type) {
  JsonArray columns;
  if (type.custom) {
    columns.push_back(column("Name", "string", "name", "Name must be unique within a namespace.", 0));
    for (const PrinterColumn& c : type.custom->columns())
      columns.push_back(column(c.name, c.type, c.format, c.description, c.priority));
    if (type.custom->columns().empty())
      columns.push_back(column("Age", "date", "", "Time since creation.", 0));
    return columns;
  }
  auto found = tables().find(type.store);
  std::string_view spec = found == tables().end() ? "Name|Age" : found->second.columns;
  for (const std::string& part : split(spec, '|')) {
    std::string_view name = part;
    bool wide = name.starts_with("*");
    if (wide) name.remove_prefix(1);
    bool number = name.starts_with("#");
    if (number) name.remove_prefix(1);
    columns.push_back(
        column(name, number ? "integer" : "string", name == "Name" ? "name" : "", "", wide ? 1 : 0));
  }
  return columns;
}

JsonArray table_cells(const ResourceType& type, const Json& object, Time now) {
  if (type.custom) {
    JsonArray cells{kube::name_of(object)};
    for (const PrinterColumn& c : type.custom->columns()) cells.push_back(custom_cell(c, object, now));
    if (type.custom->columns().empty()) cells.push_back(Json(age(object, now)));
    return cells;
  }
  auto found = tables().find(type.store);
  if (found == tables().end()) return JsonArray{kube::name_of(object), age(object, now)};
  if (type.group == "events.k8s.io") return found->second.cells(event_to_stored(object), now);
  return found->second.cells(object, now);
}

Json partial_metadata(const Json& object) {
  JsonObject out{{"kind", "PartialObjectMetadata"}, {"apiVersion", "meta.k8s.io/v1"}};
  if (const Json* metadata = find(object, {"metadata"})) out["metadata"] = *metadata;
  return out;
}

Json table_row(const ResourceType& type, const Json& object, View::Include include, Time now) {
  JsonObject row{{"cells", table_cells(type, object, now)}};
  std::string_view phase =
      type.store == "/pods" ? get_string(object, {"status", "phase"}) : std::string_view();
  if (phase == "Succeeded" || phase == "Failed")
    row["conditions"] = JsonArray{JsonObject{
        {"type", "Completed"},
        {"status", "True"},
        {"reason", phase},
        {"message", phase == "Succeeded" ? "The pod has completed successfully." : "The pod failed."}}};
  row["object"] = nullptr;
  if (include == View::Include::kObject) row["object"] = object;
  if (include == View::Include::kMetadata) row["object"] = partial_metadata(object);
  return row;
}

}  // namespace gpuop::cluster::api
