// What the real server fills in when a built-in object leaves it out, so that objects read back as they would
// there and a second apply changes nothing.
#include <algorithm>
#include <functional>
#include <map>

#include "base/text.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

void fill(Json& root, std::string_view key, Json value) {
  JsonObject* object = root.if_object();
  if (object != nullptr && !object->contains(key)) object->emplace(key, std::move(value));
}

void fill_at(Json& root, Keys keys, Json value) {
  if (!has(root, keys)) set(root, keys, std::move(value));
}

template <class Work>
void each(Json& root, std::string_view key, const Work& work) {
  Json* list = find_mutable(root, {key});
  if (list == nullptr || !list->is_array()) return;
  for (Json& item : list->get_array())
    if (item.is_object()) work(item);
}

std::string pull_policy(std::string_view image) {
  if (image.find('@') != std::string_view::npos) return "IfNotPresent";
  std::size_t slash = image.rfind('/');
  std::size_t colon = image.rfind(':');
  bool tagged = colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash);
  return !tagged || image.substr(colon + 1) == "latest" ? "Always" : "IfNotPresent";
}

void default_http_get(Json& action) {
  fill(action, "path", "/");
  fill(action, "scheme", "HTTP");
}

void default_probe(Json& container, std::string_view key) {
  Json* probe = find_mutable(container, {key});
  if (probe == nullptr) return;
  fill(*probe, "timeoutSeconds", 1);
  fill(*probe, "periodSeconds", 10);
  fill(*probe, "successThreshold", 1);
  fill(*probe, "failureThreshold", 3);
  if (Json* get = find_mutable(*probe, {"httpGet"})) default_http_get(*get);
  if (Json* grpc = find_mutable(*probe, {"grpc"})) fill(*grpc, "service", "");
}

void default_field_ref(Json& holder) {
  if (Json* ref = find_mutable(holder, {"fieldRef"})) fill(*ref, "apiVersion", "v1");
  if (Json* ref = find_mutable(holder, {"resourceFieldRef"})) fill(*ref, "divisor", "0");
}

void default_container(Json& container, bool is_pod) {
  fill(container, "imagePullPolicy", Json(pull_policy(get_string(container, {"image"}))));
  fill(container, "terminationMessagePath", "/dev/termination-log");
  fill(container, "terminationMessagePolicy", "File");
  fill(container, "resources", JsonObject());
  each(container, "ports", [](Json& port) { fill(port, "protocol", "TCP"); });
  each(container, "env", [](Json& entry) {
    if (Json* from = find_mutable(entry, {"valueFrom"})) default_field_ref(*from);
  });
  for (std::string_view probe : {"livenessProbe", "readinessProbe", "startupProbe"})
    default_probe(container, probe);
  for (std::string_view hook : {"postStart", "preStop"})
    if (Json* get = find_mutable(container, {"lifecycle", hook, "httpGet"})) default_http_get(*get);
  if (!is_pod) return;
  // A pod's request that is not given is its limit.
  for (const auto& [name, limit] : JsonObject(get_object(container, {"resources", "limits"})))
    fill_at(container, {"resources", "requests", name}, limit);
}

void default_volume(Json& volume) {
  JsonObject& object = volume.get_object();
  if (object.size() <= 1) object["emptyDir"] = JsonObject();
  for (std::string_view kind : {"secret", "configMap", "downwardAPI", "projected"})
    if (Json* source = find_mutable(volume, {kind})) fill(*source, "defaultMode", 420);
  if (Json* path = find_mutable(volume, {"hostPath"})) fill(*path, "type", "");
  if (Json* downward = find_mutable(volume, {"downwardAPI"})) each(*downward, "items", default_field_ref);
  if (Json* projected = find_mutable(volume, {"projected"}))
    each(*projected, "sources", [](Json& source) {
      if (Json* token = find_mutable(source, {"serviceAccountToken"}))
        fill(*token, "expirationSeconds", 3600);
      if (Json* downward = find_mutable(source, {"downwardAPI"})) each(*downward, "items", default_field_ref);
    });
}

void default_template(Json& object) {
  if (Json* spec = find_mutable(object, {"spec", "template", "spec"})) default_pod_spec(*spec, false);
  if (has(object, {"spec", "template"})) fill_at(object, {"spec", "template", "metadata"}, JsonObject());
}

void default_rolling(Json& object, std::string_view key, Json unavailable, Json surge) {
  fill_at(object, {"spec", key, "type"}, "RollingUpdate");
  if (get_string(object, {"spec", key, "type"}) != "RollingUpdate") return;
  fill_at(object, {"spec", key, "rollingUpdate", "maxUnavailable"}, std::move(unavailable));
  fill_at(object, {"spec", key, "rollingUpdate", "maxSurge"}, std::move(surge));
}

void default_daemonset(Json& object) {
  default_template(object);
  fill_at(object, {"spec", "revisionHistoryLimit"}, 10);
  default_rolling(object, "updateStrategy", 1, 0);
  for (std::string_view count :
       {"currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"})
    fill_at(object, {"status", count}, 0);
}

void default_deployment(Json& object) {
  default_template(object);
  fill_at(object, {"spec", "replicas"}, 1);
  fill_at(object, {"spec", "revisionHistoryLimit"}, 10);
  fill_at(object, {"spec", "progressDeadlineSeconds"}, 600);
  default_rolling(object, "strategy", "25%", "25%");
  fill_at(object, {"status"}, JsonObject());
}

void default_replicaset(Json& object) {
  default_template(object);
  fill_at(object, {"spec", "replicas"}, 1);
  fill_at(object, {"status", "replicas"}, 0);
}

void default_statefulset(Json& object) {
  default_template(object);
  fill_at(object, {"spec", "replicas"}, 1);
  fill_at(object, {"spec", "podManagementPolicy"}, "OrderedReady");
  fill_at(object, {"spec", "revisionHistoryLimit"}, 10);
  fill_at(object, {"spec", "updateStrategy", "type"}, "RollingUpdate");
  if (get_string(object, {"spec", "updateStrategy", "type"}) == "RollingUpdate")
    fill_at(object, {"spec", "updateStrategy", "rollingUpdate", "partition"}, 0);
  fill_at(object, {"spec", "persistentVolumeClaimRetentionPolicy"},
          JsonObject{{"whenDeleted", "Retain"}, {"whenScaled", "Retain"}});
}

void default_job_spec(Json& spec) {
  if (!has(spec, {"completions"}) && !has(spec, {"parallelism"})) fill(spec, "completions", 1);
  fill(spec, "parallelism", 1);
  fill(spec, "backoffLimit", 6);
  fill(spec, "completionMode", "NonIndexed");
  fill(spec, "suspend", false);
  fill(spec, "podReplacementPolicy", has(spec, {"podFailurePolicy"}) ? "Failed" : "TerminatingOrFailed");
  if (Json* pod = find_mutable(spec, {"template", "spec"})) default_pod_spec(*pod, false);
  if (has(spec, {"template"})) fill_at(spec, {"template", "metadata"}, JsonObject());
}

void default_job(Json& object) {
  fill_at(object, {"status"}, JsonObject());
  Json& spec = ensure(object, {"spec"});
  default_job_spec(spec);
  if (get_bool(spec, {"manualSelector"})) return;
  std::string uid = str(kube::uid_of(object));
  std::string name = str(kube::name_of(object));
  if (has(spec, {"selector"}) || !has(spec, {"template"})) return;
  set(spec, {"selector", "matchLabels", "batch.kubernetes.io/controller-uid"}, Json(uid));
  for (std::string_view key : {"batch.kubernetes.io/controller-uid", "controller-uid"})
    set(spec, {"template", "metadata", "labels", key}, Json(uid));
  for (std::string_view key : {"batch.kubernetes.io/job-name", "job-name"})
    set(spec, {"template", "metadata", "labels", key}, Json(name));
  fill_at(object, {"spec", "manualSelector"}, false);
  // A job without labels takes its pods'.
  fill_at(object, {"metadata", "labels"}, *find(object, {"spec", "template", "metadata", "labels"}));
}

void default_cronjob(Json& object) {
  fill_at(object, {"spec", "concurrencyPolicy"}, "Allow");
  fill_at(object, {"spec", "suspend"}, false);
  fill_at(object, {"spec", "successfulJobsHistoryLimit"}, 3);
  fill_at(object, {"spec", "failedJobsHistoryLimit"}, 1);
  if (Json* pod = find_mutable(object, {"spec", "jobTemplate", "spec", "template", "spec"}))
    default_pod_spec(*pod, false);
}

void default_service(Json& object) {
  Json& spec = ensure(object, {"spec"});
  fill(spec, "type", "ClusterIP");
  fill(spec, "sessionAffinity", "None");
  if (get_string(spec, {"sessionAffinity"}) == "ClientIP")
    fill_at(spec, {"sessionAffinityConfig", "clientIP", "timeoutSeconds"}, 10800);
  each(spec, "ports", [](Json& port) {
    fill(port, "protocol", "TCP");
    if (const Json* number = find(port, {"port"})) fill(port, "targetPort", *number);
  });
  const std::string type(get_string(spec, {"type"}));  // its object grows below
  if (type == "ExternalName") return;
  fill(spec, "internalTrafficPolicy", "Cluster");
  if (type == "NodePort" || type == "LoadBalancer") fill(spec, "externalTrafficPolicy", "Cluster");
  if (type == "LoadBalancer") fill(spec, "allocateLoadBalancerNodePorts", true);
}

void default_secret(Json& object) {
  fill(object, "type", "Opaque");
  for (const auto& [key, value] : JsonObject(get_object(object, {"stringData"})))
    set(object, {"data", key}, Json(base64_encode(as_text(value))));
  object.get_object().erase("stringData");
}

void default_namespace(Json& object) {
  set(object, {"metadata", "labels", "kubernetes.io/metadata.name"}, Json(kube::name_of(object)));
  if (!has(object, {"metadata", "deletionTimestamp"})) {
    fill_at(object, {"spec", "finalizers"}, JsonArray{"kubernetes"});
    fill_at(object, {"status", "phase"}, "Active");
  } else {
    fill_at(object, {"spec"}, JsonObject());
  }
}

void default_binding(Json& object) {
  fill_at(object, {"roleRef", "apiGroup"}, "rbac.authorization.k8s.io");
  each(object, "subjects", [](Json& subject) {
    if (get_string(subject, {"kind"}) != "ServiceAccount")
      fill(subject, "apiGroup", "rbac.authorization.k8s.io");
  });
}

void default_role(Json& object) {
  fill(object, "rules", nullptr);
}

void default_pod(Json& object) {
  Json& spec = ensure(object, {"spec"});
  default_pod_spec(spec, true);
  fill(spec, "enableServiceLinks", true);
}

void default_webhooks(Json& object) {
  each(object, "webhooks", [](Json& hook) {
    fill(hook, "failurePolicy", "Fail");
    fill(hook, "matchPolicy", "Equivalent");
    fill(hook, "namespaceSelector", JsonObject());
    fill(hook, "objectSelector", JsonObject());
    fill(hook, "timeoutSeconds", 10);
    each(hook, "rules", [](Json& rule) { fill(rule, "scope", "*"); });
    if (Json* service = find_mutable(hook, {"clientConfig", "service"})) fill(*service, "port", 443);
  });
}

void default_network_policy(Json& object) {
  JsonArray types{"Ingress"};
  if (!get_array(object, {"spec", "egress"}).empty()) types.push_back("Egress");
  fill_at(object, {"spec", "policyTypes"}, std::move(types));
}

void default_storage_class(Json& object) {
  fill(object, "reclaimPolicy", "Delete");
  fill(object, "volumeBindingMode", "Immediate");
}

void default_claim(Json& object) {
  fill_at(object, {"spec", "volumeMode"}, "Filesystem");
  fill_at(object, {"status", "phase"}, "Pending");
}

void default_volume_object(Json& object) {
  fill_at(object, {"spec", "volumeMode"}, "Filesystem");
  fill_at(object, {"spec", "persistentVolumeReclaimPolicy"}, "Retain");
  fill_at(object, {"status", "phase"}, "Available");
}

void default_slice(Json& object) {
  fill(object, "endpoints", nullptr);
  fill(object, "ports", nullptr);
  each(object, "ports", [](Json& port) {
    fill(port, "name", "");
    fill(port, "protocol", "TCP");
  });
}

void default_endpoints(Json& object) {
  each(object, "subsets",
       [](Json& subset) { each(subset, "ports", [](Json& port) { fill(port, "protocol", "TCP"); }); });
}

const std::map<std::string_view, void (*)(Json&)>& by_store() {
  static const std::map<std::string_view, void (*)(Json&)> all = {
      {"/pods", default_pod},
      {"/services", default_service},
      {"/secrets", default_secret},
      {"/namespaces", default_namespace},
      {"/endpoints", default_endpoints},
      {"/persistentvolumeclaims", default_claim},
      {"/persistentvolumes", default_volume_object},
      {"/replicationcontrollers", default_replicaset},
      {"apps/daemonsets", default_daemonset},
      {"apps/deployments", default_deployment},
      {"apps/replicasets", default_replicaset},
      {"apps/statefulsets", default_statefulset},
      {"batch/jobs", default_job},
      {"batch/cronjobs", default_cronjob},
      {"rbac.authorization.k8s.io/roles", default_role},
      {"rbac.authorization.k8s.io/clusterroles", default_role},
      {"rbac.authorization.k8s.io/rolebindings", default_binding},
      {"rbac.authorization.k8s.io/clusterrolebindings", default_binding},
      {"scheduling.k8s.io/priorityclasses",
       [](Json& o) {
         fill(o, "preemptionPolicy", "PreemptLowerPriority");
         fill(o, "value", 0);
       }},
      {"storage.k8s.io/storageclasses", default_storage_class},
      {"networking.k8s.io/networkpolicies", default_network_policy},
      {"discovery.k8s.io/endpointslices", default_slice},
      {"coordination.k8s.io/leases",
       [](Json& o) {  // of a feature that is off
         for (const char* key : {"strategy", "preferredHolder"}) gpuop::remove(o, {"spec", key});
       }},
      {"admissionregistration.k8s.io/mutatingwebhookconfigurations", default_webhooks},
      {"admissionregistration.k8s.io/validatingwebhookconfigurations", default_webhooks}};
  return all;
}

}  // namespace

void default_pod_spec(Json& spec, bool is_pod) {
  fill(spec, "restartPolicy", "Always");
  fill(spec, "terminationGracePeriodSeconds", 30);
  fill(spec, "dnsPolicy", "ClusterFirst");
  fill(spec, "securityContext", JsonObject());
  fill(spec, "schedulerName", "default-scheduler");
  std::string account(get_string(spec, {"serviceAccountName"}, get_string(spec, {"serviceAccount"})));
  if (!account.empty()) {
    set(spec, {"serviceAccountName"}, Json(account));
    set(spec, {"serviceAccount"}, Json(account));
  }
  for (std::string_view list : {"containers", "initContainers"})
    each(spec, list, [&](Json& container) { default_container(container, is_pod); });
  if (is_pod && get_bool(spec, {"hostNetwork"}))
    for (std::string_view list : {"containers", "initContainers"})
      each(spec, list, [](Json& container) {
        each(container, "ports", [](Json& port) {
          if (const Json* number = find(port, {"containerPort"})) fill(port, "hostPort", *number);
        });
      });
  each(spec, "volumes", default_volume);
}

void default_object(const ResourceType& type, Json& object) {
  auto found = by_store().find(type.store);
  if (found != by_store().end()) found->second(object);
  if (type.store != "/events") return;
  // Events say of these that they are empty.
  JsonObject& event = object.get_object();
  for (std::string_view key : {"eventTime", "firstTimestamp", "lastTimestamp"}) event.emplace(key, nullptr);
  for (std::string_view key : {"reportingComponent", "reportingInstance"}) event.emplace(key, "");
  event.emplace("source", JsonObject());
}

}  // namespace gpuop::cluster::api
