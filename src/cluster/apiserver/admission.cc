// What a real server's admission plugins and allocators do to objects (kubernetes-api.md §6, §14).
#include <algorithm>
#include <set>

#include "base/text.h"
#include "cluster/apiserver/crd.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr Duration kEventLife = 1h;
constexpr std::string_view kTokenMount = "/var/run/secrets/kubernetes.io/serviceaccount";

Json service_account_volume(const std::string& name) {
  JsonObject token{{"serviceAccountToken", JsonObject{{"expirationSeconds", 3607}, {"path", "token"}}}};
  JsonObject ca{
      {"configMap", JsonObject{{"name", "kube-root-ca.crt"},
                               {"items", JsonArray{JsonObject{{"key", "ca.crt"}, {"path", "ca.crt"}}}}}}};
  JsonObject field{{"apiVersion", "v1"}, {"fieldPath", "metadata.namespace"}};
  JsonObject ns{
      {"downwardAPI",
       JsonObject{{"items", JsonArray{JsonObject{{"path", "namespace"}, {"fieldRef", std::move(field)}}}}}}};
  JsonArray sources;
  sources.push_back(std::move(token));
  sources.push_back(std::move(ca));
  sources.push_back(std::move(ns));
  return JsonObject{{"name", name},
                    {"projected", JsonObject{{"defaultMode", 420}, {"sources", std::move(sources)}}}};
}

bool mounts_token(const Json& container) {
  for (const Json& mount : get_array(container, {"volumeMounts"}))
    if (get_string(mount, {"mountPath"}) == kTokenMount) return true;
  return false;
}

// The service account's token, CA and namespace, as a projected volume in every container that has none
// there.
void mount_token(Server& server, Json& spec) {
  std::string volume = "kube-api-access-" + server.random.suffix(5);
  bool used = false;
  for (std::string_view list : {"initContainers", "containers"}) {
    Json* containers = find_mutable(spec, {list});
    if (containers == nullptr || !containers->is_array()) continue;
    for (Json& container : containers->get_array()) {
      if (!container.is_object() || mounts_token(container)) continue;
      Json& mounts = ensure(container, {"volumeMounts"});
      if (!mounts.is_array()) mounts.emplace_array();
      mounts.get_array().push_back(
          JsonObject{{"name", volume}, {"mountPath", kTokenMount}, {"readOnly", true}});
      used = true;
    }
  }
  if (!used) return;
  Json& volumes = ensure(spec, {"volumes"});
  if (!volumes.is_array()) volumes.emplace_array();
  volumes.get_array().push_back(service_account_volume(volume));
}

Answer<> admit_service_account(Server& server, Call& call, Json& pod) {
  Json& spec = ensure(pod, {"spec"});
  // A mirror pod lives by itself.
  if (!kube::annotation(pod, "kubernetes.io/config.mirror").empty()) return {};
  std::string account = str(get_string(spec, {"serviceAccountName"}, "default"));
  set(spec, {"serviceAccountName"}, Json(account));
  set(spec, {"serviceAccount"}, Json(account));
  ObjectPtr found = server.store.collection("/serviceaccounts").get(make_key(call.ns, account));
  if (!found)
    return forbidden(*call.type, kube::name_of(pod),
                     "error looking up service account " + call.ns + "/" + account + ": serviceaccount \"" +
                         account + "\" not found");
  std::optional<bool> wanted = find_bool(spec, {"automountServiceAccountToken"});
  if (!wanted) wanted = find_bool(found->value(), {"automountServiceAccountToken"});
  if (wanted.value_or(true)) mount_token(server, spec);
  if (!has(spec, {"imagePullSecrets"})) {
    const JsonArray& secrets = get_array(found->value(), {"imagePullSecrets"});
    if (!secrets.empty()) set(spec, {"imagePullSecrets"}, secrets);
  }
  return {};
}

Answer<> admit_priority(Server& server, Call& call, Json& pod) {
  Json& spec = ensure(pod, {"spec"});
  std::string name = str(get_string(spec, {"priorityClassName"}));
  const Collection& classes = server.store.collection("scheduling.k8s.io/priorityclasses");
  ObjectPtr chosen;
  if (!name.empty()) {
    chosen = classes.get(name);
    if (!chosen)
      return forbidden(*call.type, kube::name_of(pod), "no PriorityClass with name " + name + " was found");
  } else {
    for (const auto& [key, object] : classes.objects())
      if (get_bool(object->value(), {"globalDefault"})) chosen = object;
    if (chosen) set(spec, {"priorityClassName"}, Json(kube::name_of(chosen->value())));
  }
  std::int64_t priority = chosen ? get_int(chosen->value(), {"value"}) : 0;
  if (has(spec, {"priority"}) && get_int(spec, {"priority"}) != priority)
    return forbidden(*call.type, kube::name_of(pod),
                     "the integer value of priority (" + std::to_string(get_int(spec, {"priority"})) +
                         ") must not be provided in pod spec; priority admission controller computed " +
                         std::to_string(priority) + " from the given PriorityClass name");
  set(spec, {"priority"}, priority);
  if (!has(spec, {"preemptionPolicy"}))
    set(spec, {"preemptionPolicy"},
        Json(chosen ? get_string(chosen->value(), {"preemptionPolicy"}, "PreemptLowerPriority")
                    : "PreemptLowerPriority"));
  return {};
}

void add_toleration(Json& spec, Json toleration) {
  Json& list = ensure(spec, {"tolerations"});
  if (!list.is_array()) list.emplace_array();
  list.get_array().push_back(std::move(toleration));
}

void admit_tolerations(Json& spec) {
  for (std::string_view key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const JsonArray& list = get_array(spec, {"tolerations"});
    bool covered = std::any_of(list.begin(), list.end(), [&](const Json& toleration) {
      std::string_view its = get_string(toleration, {"key"});
      std::string_view effect = get_string(toleration, {"effect"});
      return (its == key || its.empty()) && (effect.empty() || effect == "NoExecute");
    });
    if (!covered)
      add_toleration(
          spec,
          JsonObject{
              {"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 300}});
  }
}

Answer<> admit_runtime_class(Server& server, Call& call, Json& pod) {
  Json& spec = ensure(pod, {"spec"});
  std::string name = str(get_string(spec, {"runtimeClassName"}));
  if (name.empty()) return {};
  ObjectPtr found = server.store.collection("node.k8s.io/runtimeclasses").get(name);
  if (!found)
    return forbidden(*call.type, kube::name_of(pod), "pod rejected: RuntimeClass \"" + name + "\" not found");
  const JsonObject& overhead = get_object(found->value(), {"overhead", "podFixed"});
  if (!overhead.empty()) set(spec, {"overhead"}, overhead);
  for (const auto& [key, value] : get_object(found->value(), {"scheduling", "nodeSelector"}))
    set(spec, {"nodeSelector", key}, value);
  for (const Json& toleration : get_array(found->value(), {"scheduling", "tolerations"})) {
    const JsonArray& list = get_array(spec, {"tolerations"});
    if (std::find(list.begin(), list.end(), toleration) == list.end()) add_toleration(spec, toleration);
  }
  return {};
}

Answer<> admit_pod(Server& server, Call& call, Json& pod) {
  TRY(admit_service_account(server, call, pod));
  TRY(admit_priority(server, call, pod));
  admit_tolerations(ensure(pod, {"spec"}));
  TRY(admit_runtime_class(server, call, pod));
  Json& spec = ensure(pod, {"spec"});
  set(pod, {"status"}, JsonObject{{"phase", "Pending"}, {"qosClass", qos_class(spec)}});
  return {};
}

// "10.96.0.0/12": 2^20 addresses, handed out at random so that a re-used one is unlikely.
std::string address_of(std::uint32_t offset) {
  std::uint32_t address = (10u << 24) + (96u << 16) + offset;
  return std::to_string(address >> 24) + "." + std::to_string(address >> 16 & 255) + "." +
         std::to_string(address >> 8 & 255) + "." + std::to_string(address & 255);
}

struct ServiceUse {
  std::set<std::string> addresses;
  std::set<std::int64_t> ports;
};

ServiceUse used_by_services(Server& server, const Json& except) {
  ServiceUse use;
  for (const auto& [key, object] : server.store.collection("/services").objects()) {
    if (kube::uid_of(object->value()) == kube::uid_of(except)) continue;
    use.addresses.insert(str(get_string(object->value(), {"spec", "clusterIP"})));
    for (const Json& port : get_array(object->value(), {"spec", "ports"}))
      if (std::int64_t number = get_int(port, {"nodePort"})) use.ports.insert(number);
  }
  return use;
}

void template_generation(const Json* old, Json& object) {
  std::int64_t generation = 1;
  if (old != nullptr) {
    generation = parse_int(kube::annotation(*old, "deprecated.daemonset.template.generation")).value_or(1);
    const Json* before = find(*old, {"spec", "template"});
    const Json* after = find(object, {"spec", "template"});
    if (before != nullptr && after != nullptr && *before != *after) ++generation;
  }
  set(object, {"metadata", "annotations", "deprecated.daemonset.template.generation"},
      Json(std::to_string(generation)));
}

}  // namespace

std::string qos_class(const Json& spec) {
  bool any = false;
  bool guaranteed = true;
  for (std::string_view list : {"containers", "initContainers"}) {
    for (const Json& container : get_array(spec, {list})) {
      for (std::string_view resource : {"cpu", "memory"}) {
        const Json* limit = find(container, {"resources", "limits", resource});
        const Json* request = find(container, {"resources", "requests", resource});
        any = any || limit != nullptr || request != nullptr;
        if (limit == nullptr || (request != nullptr && *request != *limit)) guaranteed = false;
      }
    }
  }
  return !any ? "BestEffort" : guaranteed ? "Guaranteed" : "Burstable";
}

void Server::allocate_service(Json& service, FieldErrors& errors) {
  Json& spec = ensure(service, {"spec"});
  std::string type = str(get_string(spec, {"type"}, "ClusterIP"));
  if (type == "ExternalName") return;
  ServiceUse use = used_by_services(*this, service);
  std::string address = str(get_string(spec, {"clusterIP"}));
  if (address.empty()) {
    do {
      address = address_of(static_cast<std::uint32_t>(random.next() % 0xffff0) + 10);
    } while (use.addresses.contains(address));
  } else if (address != "None" && use.addresses.contains(address)) {
    errors.push_back(invalid("spec.clusterIPs", JsonArray{Json(address)},
                             "failed to allocate IP " + address + ": provided IP is already allocated"));
  }
  set(spec, {"clusterIP"}, Json(address));
  set(spec, {"clusterIPs"}, JsonArray{Json(address)});
  if (!has(spec, {"ipFamilies"})) set(spec, {"ipFamilies"}, JsonArray{"IPv4"});
  if (!has(spec, {"ipFamilyPolicy"})) set(spec, {"ipFamilyPolicy"}, "SingleStack");
  if (type != "NodePort" && type != "LoadBalancer") return;
  Json* ports = find_mutable(spec, {"ports"});
  if (ports == nullptr || !ports->is_array()) return;
  for (Json& port : ports->get_array()) {
    std::int64_t number = get_int(port, {"nodePort"});
    while (number == 0 || use.ports.contains(number))
      number = 30000 + static_cast<std::int64_t>(random.next() % 2768);
    use.ports.insert(number);
    set(port, {"nodePort"}, number);
  }
}

Answer<> Server::admit_create(Call& call, Json& object) {
  const ResourceType& type = *call.type;
  if (type.store == "/pods") return admit_pod(*this, call, object);
  if (type.store == "apps/daemonsets") template_generation(nullptr, object);
  if (type.store == "/services") {
    FieldErrors errors;
    allocate_service(object, errors);
    set(object, {"status"}, JsonObject{{"loadBalancer", JsonObject()}});
    if (!errors.empty()) return invalid_object(type, kube::name_of(object), std::move(errors));
  }
  if (type.store == "apiextensions.k8s.io/customresourcedefinitions") return crd_written(call, object);
  static const std::set<std::string_view> idle = {"apps/statefulsets", "batch/cronjobs",
                                                  "/replicationcontrollers"};
  if (idle.contains(type.store))
    call.warnings.push_back(type.plural + " are stored by this server, and no controller acts on them");
  if (type.group == "admissionregistration.k8s.io")
    call.warnings.push_back("admission webhooks are not called by this server");
  return {};
}

Answer<> Server::admit_update(Call& call, const Json& old, Json& object) {
  const ResourceType& type = *call.type;
  if (call.sub == "status") return {};
  if (type.store == "apps/daemonsets") template_generation(&old, object);
  if (type.store == "/pods" && object.get_object().contains("spec")) admit_tolerations(object.at("spec"));
  if (type.store == "/services") {
    // A writer that leaves the addresses out means the ones that are there.
    if (get_string(object, {"spec", "type"}) != "ExternalName")
      for (std::string_view key : {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"})
        if (const Json* value = find(old, {"spec", key}); value != nullptr && !has(object, {"spec", key}))
          set(object, {"spec", key}, *value);
    if (Json* ports = find_mutable(object, {"spec", "ports"}); ports != nullptr && ports->is_array())
      for (Json& port : ports->get_array())
        for (const Json& before : get_array(old, {"spec", "ports"}))
          if (get_int(before, {"port"}) == get_int(port, {"port"}) && has(before, {"nodePort"}) &&
              !has(port, {"nodePort"}) && get_string(object, {"spec", "type"}) != "ClusterIP")
            set(port, {"nodePort"}, *find(before, {"nodePort"}));
    FieldErrors errors;
    allocate_service(object, errors);
    if (!errors.empty()) return invalid_object(type, call.name, std::move(errors));
  }
  if (type.store == "apiextensions.k8s.io/customresourcedefinitions") return crd_written(call, object);
  return {};
}

void Server::expire_events() {
  Collection& events = store.collection("/events");
  while (!event_ages.empty() && event_ages.front().first + kEventLife <= now()) {
    auto [since, key] = std::move(event_ages.front());
    event_ages.pop_front();
    ObjectPtr event = events.get(key);
    if (!event) continue;
    std::string_view last =
        get_string(event->value(), {"lastTimestamp"}, get_string(event->value(), {"eventTime"}));
    Result<Time> seen = parse_time(last);
    if (seen && *seen + kEventLife > now() && *seen <= now()) {
      event_ages.emplace_back(now(), key);  // written to meanwhile: another round
      continue;
    }
    store.erase("/events", key, now());
  }
}

void Server::created(const ResourceType& type, const Json& object) {
  if (type.store == "/events") {
    event_ages.emplace_back(now(), make_key(kube::namespace_of(object), kube::name_of(object)));
    return expire_events();
  }
  if (type.store == "apiextensions.k8s.io/customresourcedefinitions") return load_crd(object);
  if (type.store != "/namespaces") return;
  // What the service account and root CA controllers of a real cluster add a moment later.
  std::string ns = str(kube::name_of(object));
  auto add = [&](std::string_view plural, Json extra) {
    TypePtr of = find_type("", "v1", plural);
    Call call = internal_call(of, ns, "");
    call.user.name = "system:kube-controller-manager";
    call.manager = "kube-controller-manager";
    (void)create(call, std::move(extra));
  };
  add("serviceaccounts",
      JsonObject{
          {"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", JsonObject{{"name", "default"}}}});
  JsonObject annotations{
      {"kubernetes.io/description",
       "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
       "endpoints such as the internal service IP or kubernetes.default.svc. "
       "No other usage is guaranteed across distributions of Kubernetes clusters."}};
  add("configmaps", JsonObject{{"apiVersion", "v1"},
                               {"kind", "ConfigMap"},
                               {"metadata", JsonObject{{"name", "kube-root-ca.crt"},
                                                       {"annotations", std::move(annotations)}}},
                               {"data", JsonObject{{"ca.crt", options.ca_pem}}}});
}

void Server::erased(const ResourceType& type, const Json& object) {
  if (type.store == "apiextensions.k8s.io/customresourcedefinitions") return unload_crd(object);
  if (!type.custom) return;
  std::string crd = type.plural + "." + type.group;
  if (ObjectPtr definition = store.collection("apiextensions.k8s.io/customresourcedefinitions").get(crd))
    if (has(definition->value(), {"metadata", "deletionTimestamp"}))
      loop.post([weak = weak_from_this(), crd] {
        if (auto self = weak.lock()) self->finish_crd(crd);
      });
}

}  // namespace gpuop::cluster::api
