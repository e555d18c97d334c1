// What the real server refuses in built-in objects, as far as a GPU stack's objects can meet it.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "cluster/apiserver/json_faults.h"
#include "cluster/apiserver/pod_fields.h"
#include "cluster/apiserver/server.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::size_t kDataLimit = 1048576;
constexpr std::string_view kLabelText =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

std::string at(const std::string& path, std::string_view key) {
  return path + "." + std::string(key);
}
std::string at(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

void one_of(const Json& root, Keys keys, const std::string& path, const std::vector<std::string>& words,
            FieldErrors& errors) {
  std::string_view word = get_string(root, keys);
  if (word.empty()) return;
  if (std::find(words.begin(), words.end(), word) == words.end())
    errors.push_back(unsupported(path, Json(word), words));
}

// --- pods
// --------------------------------------------------------------------------------------------------------

// Names with a domain that is not Kubernetes' own.
bool is_extended(std::string_view name) {
  std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  std::string_view domain = name.substr(0, slash);
  return domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io");
}

void check_resources(const Json& container, const std::string& path, FieldErrors& errors) {
  const JsonObject& limits = get_object(container, {"resources", "limits"});
  const JsonObject& requests = get_object(container, {"resources", "requests"});
  auto check = [&](std::string_view key, const Json& value, std::string_view which) {
    std::string name(key);
    std::string field = at(at(path, "resources"), which) + "[" + name + "]";
    check_resource_name(name, field, errors);
    Result<__int128> milli = kube::parse_quantity_milli(value);
    if (!milli) {
      errors.push_back(invalid(field, value, "quantities must match the regular expression"));
    } else if (*milli < 0) {
      errors.push_back(invalid(field, value, "must be greater than or equal to 0"));
    } else if (is_extended(name) && *milli % 1000 != 0) {
      errors.push_back(invalid(field, value, "must be an integer"));
    }
  };
  for (const auto& [key, value] : limits) check(key, value, "limits");
  for (const auto& [key, value] : requests) {
    std::string name(key);
    check(key, value, "requests");
    std::string field = at(at(path, "resources"), "requests");
    const Json* limit = limits.if_contains(key);
    Result<__int128> asked = kube::parse_quantity_milli(value);
    Result<__int128> most = limit == nullptr ? asked : kube::parse_quantity_milli(*limit);
    if (!asked || !most) continue;
    if (is_extended(name) && limit == nullptr) {
      errors.push_back(required(at(at(path, "resources"), "limits"),
                                "Limit must be set for non overcommitable resources"));
    } else if ((is_extended(name) && *asked != *most) || *asked > *most) {
      std::string_view relation = is_extended(name) ? "equal to " : "less than or equal to ";
      errors.push_back(
          invalid(field, value, "must be " + str(relation) + name + " limit of " + plain_text(*limit)));
    }
  }
}

void check_ports(const Json& container, const std::string& path, FieldErrors& errors) {
  const JsonArray& ports = get_array(container, {"ports"});
  for (std::size_t i = 0; i < ports.size(); ++i) {
    std::string here = at(at(path, "ports"), i);
    std::int64_t number = get_int(ports[i], {"containerPort"});
    if (number == 0) {
      errors.push_back(required(at(here, "containerPort")));
    } else if (number < 1 || number > 65535) {
      errors.push_back(invalid(at(here, "containerPort"), number, "must be between 1 and 65535, inclusive"));
    }
    one_of(ports[i], {"protocol"}, at(here, "protocol"), {"SCTP", "TCP", "UDP"}, errors);
  }
}

void check_mounts(const Json& container, const std::set<std::string>& volumes, const std::string& path,
                  FieldErrors& errors) {
  const JsonArray& mounts = get_array(container, {"volumeMounts"});
  std::set<std::string> seen;
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    std::string here = at(at(path, "volumeMounts"), i);
    std::string name = str(get_string(mounts[i], {"name"}));
    std::string target = str(get_string(mounts[i], {"mountPath"}));
    if (name.empty()) {
      errors.push_back(required(at(here, "name")));
    } else if (!volumes.contains(name)) {
      errors.push_back(not_found_field(at(here, "name"), Json(name)));
    }
    if (target.empty()) {
      errors.push_back(required(at(here, "mountPath")));
    } else if (!seen.insert(target).second) {
      errors.push_back(invalid(at(here, "mountPath"), Json(target), "must be unique"));
    }
    one_of(mounts[i], {"mountPropagation"}, at(here, "mountPropagation"),
           {"Bidirectional", "HostToContainer", "None"}, errors);
    if (get_string(mounts[i], {"mountPropagation"}) == "Bidirectional" &&
        !get_bool(container, {"securityContext", "privileged"}))
      errors.push_back(
          forbidden_field(at(here, "mountPropagation"),
                          "Bidirectional mount propagation is available only to privileged containers"));
  }
}

void check_probe(const Json& container, std::string_view key, const std::string& path, FieldErrors& errors) {
  const Json* probe = find(container, {key});
  if (probe == nullptr) return;
  int handlers = 0;
  for (std::string_view handler : {"exec", "httpGet", "tcpSocket", "grpc"})
    handlers += has(*probe, {handler}) ? 1 : 0;
  if (handlers == 0) errors.push_back(required(at(path, key), "must specify a handler type"));
  if (handlers > 1)
    errors.push_back(forbidden_field(at(path, key), "may not specify more than 1 handler type"));
  if (key != "readinessProbe" && get_int(*probe, {"successThreshold"}, 1) != 1)
    errors.push_back(
        invalid(at(at(path, key), "successThreshold"), get_int(*probe, {"successThreshold"}), "must be 1"));
}

void check_container(const Json& container, const std::set<std::string>& volumes, const std::string& path,
                     std::set<std::string>& names, FieldErrors& errors) {
  std::string name = str(get_string(container, {"name"}));
  if (name.empty()) {
    errors.push_back(required(at(path, "name")));
  } else if (!is_dns_label(name)) {
    errors.push_back(invalid(at(path, "name"), Json(name), kLabelText));
  }
  std::string_view image = get_string(container, {"image"});
  if (image.empty()) {
    errors.push_back(required(at(path, "image")));
  } else if (trim(image) != image) {
    errors.push_back(invalid(at(path, "image"), Json(image), "must not have leading or trailing whitespace"));
  }
  check_ports(container, path, errors);
  check_env_names(container, path, errors);
  const JsonArray& env = get_array(container, {"env"});
  for (std::size_t i = 0; i < env.size(); ++i) {
    std::string here = at(at(path, "env"), i);
    if (has(env[i], {"valueFrom"}) && !get_string(env[i], {"value"}).empty())
      errors.push_back(
          invalid(at(here, "valueFrom"), Json(""), "may not be specified when `value` is not empty"));
  }
  check_mounts(container, volumes, path, errors);
  one_of(container, {"imagePullPolicy"}, at(path, "imagePullPolicy"), {"Always", "IfNotPresent", "Never"},
         errors);
  one_of(container, {"terminationMessagePolicy"}, at(path, "terminationMessagePolicy"),
         {"FallbackToLogsOnError", "File"}, errors);
  check_resources(container, path, errors);
  check_security_context(container, path, errors);
  for (std::string_view probe : {"livenessProbe", "readinessProbe", "startupProbe"})
    check_probe(container, probe, path, errors);
  if (!name.empty() && !names.insert(name).second) errors.push_back(duplicate(at(path, "name"), Json(name)));
}

// A volume is of one type; the second one that is found is the fault.
void check_volume_types(const Json& volume, const std::string& path, FieldErrors& errors) {
  bool one = false;
  for (std::string_view type : {"emptyDir", "hostPath", "gitRepo", "secret", "nfs", "persistentVolumeClaim",
                                "downwardAPI", "configMap", "csi", "projected", "ephemeral", "image"}) {
    if (!has(volume, {type})) continue;
    if (one) errors.push_back(forbidden_field(at(path, type), "may not specify more than 1 volume type"));
    one = true;
  }
}

std::set<std::string> check_volumes(const Json& spec, const std::string& path, FieldErrors& errors) {
  std::set<std::string> names;
  const JsonArray& volumes = get_array(spec, {"volumes"});
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    std::string here = at(at(path, "volumes"), i);
    std::string name = str(get_string(volumes[i], {"name"}));
    if (name.empty()) {
      errors.push_back(required(at(here, "name")));
    } else if (!is_dns_label(name)) {
      errors.push_back(invalid(at(here, "name"), Json(name), kLabelText));
    } else if (!names.insert(name).second) {
      errors.push_back(duplicate(at(here, "name"), Json(name)));
    }
    one_of(
        volumes[i], {"hostPath", "type"}, at(here, "hostPath.type"),
        {"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"},
        errors);
    if (has(volumes[i], {"hostPath"}) && get_string(volumes[i], {"hostPath", "path"}).empty())
      errors.push_back(required(at(here, "hostPath.path")));
    check_host_path(volumes[i], here, errors);
    check_volume_types(volumes[i], here, errors);
  }
  return names;
}

void check_pod_spec(const Json& spec, const std::string& path, FieldErrors& errors) {
  std::set<std::string> volumes = check_volumes(spec, path, errors);
  std::set<std::string> names;
  const JsonArray& containers = get_array(spec, {"containers"});
  if (containers.empty()) errors.push_back(required(at(path, "containers")));
  for (std::size_t i = 0; i < containers.size(); ++i)
    check_container(containers[i], volumes, at(at(path, "containers"), i), names, errors);
  const JsonArray& inits = get_array(spec, {"initContainers"});
  for (std::size_t i = 0; i < inits.size(); ++i)
    check_container(inits[i], volumes, at(at(path, "initContainers"), i), names, errors);
  one_of(spec, {"restartPolicy"}, at(path, "restartPolicy"), {"Always", "OnFailure", "Never"}, errors);
  one_of(spec, {"dnsPolicy"}, at(path, "dnsPolicy"),
         {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"}, errors);
  check_node_selector(spec, path, errors);
  check_security_context(spec, path, errors);
  std::string_view account = get_string(spec, {"serviceAccountName"});
  if (!account.empty() && !is_dns_subdomain(account))
    errors.push_back(
        invalid(at(path, "serviceAccountName"), Json(account), "must be a valid service account name"));
  check_tolerations(spec, path, errors);
  check_priority_class_name(spec, path, errors);
}

// The parts of a pod's spec that may change once it is there are left out before comparing.
Json without_mutable_parts(const Json& pod) {
  Json spec = *find(pod, {"spec"});
  for (std::string_view list : {"containers", "initContainers"}) {
    Json* containers = find_mutable(spec, {list});
    if (containers == nullptr || !containers->is_array()) continue;
    for (Json& container : containers->get_array())
      if (container.is_object()) container.get_object().erase("image");
  }
  for (std::string_view key :
       {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"})
    spec.get_object().erase(key);
  return spec;
}

// Tolerations may be added, and their seconds changed; none may go.
void check_tolerations_kept(const Json& before, const Json& after, FieldErrors& errors) {
  auto bare = [](Json toleration) {
    gpuop::remove(toleration, {"tolerationSeconds"});
    return toleration;
  };
  const JsonArray& now = get_array(after, {"tolerations"});
  for (const Json& old : get_array(before, {"tolerations"}))
    if (std::none_of(now.begin(), now.end(), [&](const Json& one) { return bare(one) == bare(old); })) {
      errors.push_back(forbidden_field(
          "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"));
      return;
    }
}

void check_pod_update(const Json& old, const Json& pod, FieldErrors& errors) {
  const Json* before = find(old, {"spec"});
  const Json* after = find(pod, {"spec"});
  if (before == nullptr || after == nullptr || *before == *after) return;
  for (std::string_view list : {"containers", "initContainers"})
    if (get_array(*before, {list}).size() != get_array(*after, {list}).size()) {
      errors.push_back(
          forbidden_field("spec." + std::string(list), "pod updates may not add or remove containers"));
      return;
    }
  const Json* limit = find(*after, {"activeDeadlineSeconds"});
  const Json* old_limit = find(*before, {"activeDeadlineSeconds"});
  if (old_limit != nullptr && limit != nullptr &&
      get_int(*after, {"activeDeadlineSeconds"}) > get_int(*before, {"activeDeadlineSeconds"}))
    errors.push_back(
        invalid("spec.activeDeadlineSeconds", *limit, "must be less than or equal to previous value"));
  if (old_limit != nullptr && limit == nullptr)
    errors.push_back(invalid("spec.activeDeadlineSeconds", Json(nullptr),
                             "must not update from a positive integer to nil value"));
  check_tolerations_kept(*before, *after, errors);
  if (without_mutable_parts(old) != without_mutable_parts(pod))
    errors.push_back(forbidden_field(
        "spec",
        "pod updates may not change fields other than "
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec."
        "tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow "
        "it to be set to 1 if it was previously negative)"));
}

// --- workloads
// ---------------------------------------------------------------------------------------------------

void check_selector(const Json& object, FieldErrors& errors) {
  const Json* selector = find(object, {"spec", "selector"});
  const Json* labels = find(object, {"spec", "template", "metadata", "labels"});
  if (selector == nullptr && get_string(object, {"kind"}) == "DaemonSet") {
    errors.push_back(invalid("spec.template.metadata.labels", labels == nullptr ? Json(nullptr) : *labels,
                             "`selector` does not match template `labels`"));
    return;
  }
  if (selector == nullptr) {
    errors.push_back(required("spec.selector"));
    return;
  }
  Result<kube::LabelSelector> parsed = kube::LabelSelector::from_object(*selector);
  if (!parsed) {
    errors.push_back(invalid("spec.selector", *selector, parsed.error().text()));
  } else if (parsed->empty()) {
    errors.push_back(invalid("spec.selector", *selector,
                             "empty selector is invalid for " + to_lower(get_string(object, {"kind"}))));
  } else if (!parsed->matches(get_object(object, {"spec", "template", "metadata", "labels"}))) {
    errors.push_back(invalid("spec.template.metadata.labels",
                             Json(get_object(object, {"spec", "template", "metadata", "labels"})),
                             "`selector` does not match template `labels`"));
  }
}

void check_template(const Json& object, std::vector<std::string> policies, FieldErrors& errors) {
  const Json* spec = find(object, {"spec", "template", "spec"});
  if (spec == nullptr) {
    errors.push_back(required("spec.template.spec.containers"));
    return;
  }
  check_template_metadata(object, errors);
  check_pod_spec(*spec, "spec.template.spec", errors);
  std::string_view policy = get_string(*spec, {"restartPolicy"});
  if (std::find(policies.begin(), policies.end(), policy) == policies.end())
    errors.push_back(unsupported("spec.template.spec.restartPolicy", Json(policy), policies));
}

constexpr std::string_view kPercentText =
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
    "used for validation is '[0-9]+%')";

// A count or percentage; nullopt for nonsense.
std::optional<std::int64_t> share(const Json* value) {
  if (value == nullptr) return 0;
  if (value->is_int64()) return value->get_int64() < 0 ? std::nullopt : std::optional(value->get_int64());
  std::string_view text = as_text(*value);
  if (!text.ends_with("%")) return std::nullopt;
  std::optional<std::int64_t> percent = parse_int(text.substr(0, text.size() - 1));
  return percent && *percent >= 0 ? percent : std::nullopt;
}

void check_rolling(const Json& object, std::string_view key, bool daemon, FieldErrors& errors) {
  std::string path = "spec." + std::string(key);
  std::vector<std::string> words = daemon ? std::vector<std::string>{"OnDelete", "RollingUpdate"}
                                          : std::vector<std::string>{"Recreate", "RollingUpdate"};
  one_of(object, {"spec", key, "type"}, path + ".type", words, errors);
  if (get_string(object, {"spec", key, "type"}) != "RollingUpdate") {
    if (!daemon && has(object, {"spec", key, "rollingUpdate"}))
      errors.push_back(forbidden_field(path + ".rollingUpdate",
                                       "may not be specified when strategy `type` is 'Recreate'"));
    return;
  }
  const Json* down = find(object, {"spec", key, "rollingUpdate", "maxUnavailable"});
  const Json* up = find(object, {"spec", key, "rollingUpdate", "maxSurge"});
  std::optional<std::int64_t> less = share(down);
  std::optional<std::int64_t> more = share(up);
  if (!less) errors.push_back(invalid(path + ".rollingUpdate.maxUnavailable", *down, kPercentText));
  if (!more) errors.push_back(invalid(path + ".rollingUpdate.maxSurge", *up, kPercentText));
  if (!less || !more) return;
  if (*less == 0 && *more == 0) {
    errors.push_back(daemon
                         ? required(path + ".rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0")
                         : invalid(path + ".rollingUpdate.maxUnavailable", down == nullptr ? Json(0) : *down,
                                   "may not be 0 when `maxSurge` is 0"));
  } else if (daemon && *less != 0 && *more != 0) {
    errors.push_back(invalid(path + ".rollingUpdate.maxSurge", up == nullptr ? Json(0) : *up,
                             "may not be set when maxUnavailable is non-zero"));
  }
}

void immutable(const Json& old, const Json& object, Keys keys, const std::string& path, FieldErrors& errors) {
  const Json* before = find(old, keys);
  const Json* after = find(object, keys);
  if ((before == nullptr) != (after == nullptr) || (before != nullptr && *before != *after))
    errors.push_back(invalid(path, after == nullptr ? Json(nullptr) : *after, "field is immutable"));
}

void check_job(const Json& job, FieldErrors& errors) {
  FieldErrors faults;
  check_template(job, {"OnFailure", "Never"}, faults);
  for (FieldError& fault : faults) {
    // "Always" is the default of a pod's template, so that here it means that nothing was said.
    if (fault.field == "spec.template.spec.restartPolicy" &&
        fault.text.find("\"Always\"") != std::string::npos)
      fault = required(fault.field, "valid values: \"OnFailure\", \"Never\"");
    errors.push_back(std::move(fault));
  }
  for (std::string_view key :
       {"parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"})
    if (get_int(job, {"spec", key}) < 0)
      errors.push_back(invalid("spec." + std::string(key), get_int(job, {"spec", key}),
                               "must be greater than or equal to 0"));
}

// --- the rest
// ----------------------------------------------------------------------------------------------------

// The keys that a Secret's type asks for.
void check_secret_type(const Json& secret, FieldErrors& errors) {
  std::string_view type = get_string(secret, {"type"});
  auto need = [&](std::string_view key) {
    if (!has(secret, {"data", key})) errors.push_back(required("data[" + std::string(key) + "]"));
  };
  if (type == "kubernetes.io/tls") {
    need("tls.crt");
    need("tls.key");
  } else if (type == "kubernetes.io/ssh-auth") {
    need("ssh-privatekey");
  } else if (type == "kubernetes.io/basic-auth") {
    if (!has(secret, {"data", "username"}) && !has(secret, {"data", "password"})) {
      need("username");
      need("password");
    }
  } else if (type == "kubernetes.io/dockerconfigjson" || type == "kubernetes.io/dockercfg") {
    std::string key = type.ends_with("json") ? ".dockerconfigjson" : ".dockercfg";
    need(key);
    std::optional<std::string> text = base64_decode(get_string(secret, {"data", key}));
    std::string fault = text && has(secret, {"data", key}) ? json_fault(*text) : std::string();
    if (!fault.empty())
      errors.push_back(invalid("data[" + key + "]", Json("<secret contents redacted>"), fault));
  }
}

void check_data(const Json& object, FieldErrors& errors) {
  std::size_t total = 0;
  bool secret = get_string(object, {"kind"}) == "Secret";
  for (std::string_view map : {"data", "binaryData"}) {
    for (const auto& [key, value] : get_object(object, {map})) {
      std::size_t size = as_text(value).size();
      total += secret || map == "binaryData" ? size * 3 / 4 : size;
      std::string_view name(key.data(), key.size());
      bool good =
          !name.empty() && name.size() <= 253 && name != "." && name != ".." &&
          std::all_of(name.begin(), name.end(), [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
          });
      if (!good)
        errors.push_back(invalid(
            std::string(map) + "[" + std::string(name) + "]", Json(name),
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  "
            "or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"));
    }
  }
  if (total > kDataLimit) errors.push_back(too_long(secret ? "data" : "", kDataLimit));
  if (secret) check_secret_type(object, errors);
}

void check_data_update(const Json& old, const Json& object, FieldErrors& errors) {
  check_data(object, errors);
  if (get_string(old, {"kind"}) == "Secret") immutable(old, object, {"type"}, "type", errors);
  if (!get_bool(old, {"immutable"})) return;
  for (std::string_view key : {"data", "binaryData"}) {
    const Json* before = find(old, {key});
    const Json* after = find(object, {key});
    if ((before == nullptr) != (after == nullptr) || (before != nullptr && *before != *after))
      errors.push_back(forbidden_field(std::string(key), "field is immutable when `immutable` is set"));
  }
  if (!get_bool(object, {"immutable"}))
    errors.push_back(forbidden_field("immutable", "field is immutable when `immutable` is set"));
}

void check_service(const Json& service, FieldErrors& errors) {
  one_of(service, {"spec", "type"}, "spec.type", {"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"},
         errors);
  one_of(service, {"spec", "internalTrafficPolicy"}, "spec.internalTrafficPolicy", {"Cluster", "Local"},
         errors);
  const JsonArray& ports = get_array(service, {"spec", "ports"});
  bool headless = get_string(service, {"spec", "clusterIP"}) == "None";
  if (ports.empty() && !headless && get_string(service, {"spec", "type"}) != "ExternalName")
    errors.push_back(required("spec.ports"));
  for (std::size_t i = 0; i < ports.size(); ++i) {
    std::string here = at(std::string("spec.ports"), i);
    std::int64_t port = get_int(ports[i], {"port"});
    if (port < 1 || port > 65535)
      errors.push_back(invalid(at(here, "port"), port, "must be between 1 and 65535, inclusive"));
    if (ports.size() > 1 && get_string(ports[i], {"name"}).empty())
      errors.push_back(required(at(here, "name")));
  }
}

// Addresses stay as long as the type does.
void check_service_update(const Json& old, const Json& service, FieldErrors& errors) {
  if (get_string(old, {"spec", "type"}) == "ExternalName" ||
      get_string(service, {"spec", "type"}) == "ExternalName")
    return;
  std::string_view before = get_string(old, {"spec", "clusterIP"});
  std::string_view after = get_string(service, {"spec", "clusterIP"});
  if (!before.empty() && before != after)
    errors.push_back(invalid("spec.clusterIPs[0]", JsonArray{Json(after)}, "may not change once set"));
}

void check_binding(const Json& binding, FieldErrors& errors) {
  std::vector<std::string> kinds = get_string(binding, {"kind"}) == "RoleBinding"
                                       ? std::vector<std::string>{"Role", "ClusterRole"}
                                       : std::vector<std::string>{"ClusterRole"};
  std::string_view kind = get_string(binding, {"roleRef", "kind"});
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    errors.push_back(unsupported("roleRef.kind", Json(kind), kinds));
  if (get_string(binding, {"roleRef", "name"}).empty()) errors.push_back(required("roleRef.name"));
  const JsonArray& subjects = get_array(binding, {"subjects"});
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    std::string here = at(std::string("subjects"), i);
    if (get_string(subjects[i], {"name"}).empty()) errors.push_back(required(at(here, "name")));
    one_of(subjects[i], {"kind"}, at(here, "kind"), {"ServiceAccount", "User", "Group"}, errors);
    if (get_string(subjects[i], {"kind"}) == "ServiceAccount" &&
        get_string(subjects[i], {"namespace"}).empty() &&
        get_string(binding, {"kind"}) == "ClusterRoleBinding")
      errors.push_back(required(at(here, "namespace")));
  }
}

void check_role(const Json& role, FieldErrors& errors) {
  const JsonArray& rules = get_array(role, {"rules"});
  for (std::size_t i = 0; i < rules.size(); ++i) {
    std::string here = at(std::string("rules"), i);
    if (get_array(rules[i], {"verbs"}).empty())
      errors.push_back(required(at(here, "verbs"), "verbs must contain at least one value"));
    if (const JsonArray& urls = get_array(rules[i], {"nonResourceURLs"}); !urls.empty()) {
      if (get_string(role, {"kind"}) == "Role")
        errors.push_back(
            invalid(at(here, "nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs"));
      continue;
    }
    if (get_array(rules[i], {"apiGroups"}).empty())
      errors.push_back(required(at(here, "apiGroups"), "resource rules must supply at least one api group"));
    if (get_array(rules[i], {"resources"}).empty())
      errors.push_back(required(at(here, "resources"), "resource rules must supply at least one resource"));
  }
}

void check_lease(const Json& lease, FieldErrors& errors) {
  const Json* seconds = find(lease, {"spec", "leaseDurationSeconds"});
  if (seconds != nullptr && seconds->is_int64() && seconds->get_int64() <= 0)
    errors.push_back(invalid("spec.leaseDurationSeconds", *seconds, "must be greater than 0"));
  if (const std::int64_t turns = get_int(lease, {"spec", "leaseTransitions"}); turns < 0)
    errors.push_back(invalid("spec.leaseTransitions", turns, "must be greater than or equal to 0"));
}

void check_runtime_class(const Json& object, FieldErrors& errors) {
  std::string_view handler = get_string(object, {"handler"});
  if (!is_dns_label(handler)) {
    errors.push_back(invalid("handler", Json(handler), kLabelText));
  }
}

void check_event(const Json& event, FieldErrors& errors) {
  std::string_view about = get_string(event, {"involvedObject", "namespace"});
  std::string_view ns = kube::namespace_of(event);
  if (about.empty() ? ns != "default" && ns != "kube-system" : about != ns)
    errors.push_back(invalid("involvedObject.namespace", Json(about), "does not match event.namespace"));
}

// What is said of an event once stays; only its series goes on.
void check_event_update(const Json& old, const Json& event, FieldErrors& errors) {
  for (std::string_view key :
       {"involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type",
        "eventTime", "action", "related", "reportingComponent", "reportingInstance"}) {
    const Json* was = find(old, {key});
    const Json* now = find(event, {key});
    if (was == nullptr || now == nullptr ? was == now : *was == *now) continue;
    const std::string field = key == "reportingComponent" ? "reportingController" : str(key);
    errors.push_back(invalid(field, now == nullptr ? Json(nullptr) : *now, "field is immutable"));
  }
}

// What the newer face of events asks for; stored events have the older one's names.
void check_new_event(const Json& event, FieldErrors& errors) {
  std::string controller = str(get_string(event, {"reportingComponent"}));
  if (controller.empty()) errors.push_back(required("reportingController"));
  for (const std::string& fault : qualified_name_faults(controller))
    errors.push_back(invalid("reportingController", Json(controller), fault));
  for (std::string_view key : {"reportingInstance", "action", "reason"})
    if (get_string(event, {key}).empty()) errors.push_back(required(str(key)));
  std::string_view type = get_string(event, {"type"});
  if (type != "Normal" && type != "Warning")
    errors.push_back(invalid("type", Json(""), "has invalid value: " + str(type)));
  if (get_string(event, {"message"}).size() > 1024)
    errors.push_back(invalid("message", Json(""), "can have at most 1024 characters"));
}

void check_taints(const Json& node, FieldErrors& errors) {
  std::set<std::string> seen;
  const JsonArray& taints = get_array(node, {"spec", "taints"});
  for (std::size_t i = 0; i < taints.size(); ++i) {
    std::string here = at(std::string("metadata.taints"), i);
    std::string_view effect = get_string(taints[i], {"effect"});
    if (get_string(taints[i], {"key"}).empty() || !is_qualified_name(get_string(taints[i], {"key"})))
      errors.push_back(
          invalid(at(here, "key"), Json(get_string(taints[i], {"key"})), "name part must be non-empty"));
    if (effect.empty()) {
      errors.push_back(required(at(here, "effect")));
    } else {
      one_of(taints[i], {"effect"}, at(here, "effect"), {"NoSchedule", "PreferNoSchedule", "NoExecute"},
             errors);
    }
    if (!seen.insert(str(get_string(taints[i], {"key"})) + ":" + str(effect)).second) {
      JsonObject shown{{"Key", get_string(taints[i], {"key"})},
                       {"Value", get_string(taints[i], {"value"})},
                       {"Effect", effect},
                       {"TimeAdded", nullptr}};
      FieldError twice = duplicate(here, std::move(shown));
      twice.text += ": taints must be unique by key and effect pair";
      errors.push_back(std::move(twice));
    }
  }
}

void check_priority_class(const Json& object, FieldErrors& errors) {
  std::string name = str(kube::name_of(object));
  if (name.starts_with("system-") && name != "system-node-critical" && name != "system-cluster-critical")
    errors.push_back(
        forbidden_field("metadata.name",
                        "priority class names with 'system-' prefix are reserved for system use only. "
                        "error: " +
                            name + " is not a known system priority class"));
}

void check_share(const Json& object, std::string_view key, FieldErrors& errors) {
  const Json* value = find(object, {"spec", key});
  if (value == nullptr) return;
  std::string path = "spec." + std::string(key);
  if (value->is_int64() && value->get_int64() < 0)
    errors.push_back(invalid(path, *value, "must be greater than or equal to 0"));
  if (value->is_string() && !share(value)) errors.push_back(invalid(path, *value, kPercentText));
}

void check_pdb(const Json& pdb, FieldErrors& errors) {
  check_share(pdb, "minAvailable", errors);
  check_share(pdb, "maxUnavailable", errors);
  const JsonArray& expressions = get_array(pdb, {"spec", "selector", "matchExpressions"});
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    std::string_view op = get_string(expressions[i], {"operator"});
    if (op != "In" && op != "NotIn" && op != "Exists" && op != "DoesNotExist")
      errors.push_back(invalid(at("spec.selector.matchExpressions", i) + ".operator", Json(op),
                               "not a valid selector operator"));
  }
  if (has(pdb, {"spec", "minAvailable"}) && has(pdb, {"spec", "maxUnavailable"}))
    errors.push_back(
        invalid("spec", *find(pdb, {"spec"}), "minAvailable and maxUnavailable cannot be both set"));
}

void check_workload(const Json& object, FieldErrors& errors) {
  check_selector(object, errors);
  check_template(object, {"Always"}, errors);
  if (get_int(object, {"spec", "replicas"}) < 0)
    errors.push_back(invalid("spec.replicas", get_int(object, {"spec", "replicas"}),
                             "must be greater than or equal to 0"));
}

using Check = void (*)(const Json&, FieldErrors&);
const std::map<std::string_view, Check>& checks() {
  static const std::map<std::string_view, Check> all = {
      {"/pods",
       [](const Json& o, FieldErrors& e) {
         if (has(o, {"spec"})) check_pod_spec(*find(o, {"spec"}), "spec", e);
       }},
      {"/configmaps", check_data},
      {"/secrets", check_data},
      {"/services", check_service},
      {"/nodes", check_taints},
      {"/events", check_event},
      {"apps/daemonsets",
       [](const Json& o, FieldErrors& e) {
         check_workload(o, e);
         check_rolling(o, "updateStrategy", true, e);
       }},
      {"apps/deployments",
       [](const Json& o, FieldErrors& e) {
         check_workload(o, e);
         check_rolling(o, "strategy", false, e);
         std::int64_t deadline = get_int(o, {"spec", "progressDeadlineSeconds"});
         if (deadline != 0 && deadline <= get_int(o, {"spec", "minReadySeconds"}))
           e.push_back(
               invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"));
       }},
      {"apps/replicasets", check_workload},
      {"apps/statefulsets", check_workload},
      {"batch/jobs", check_job},
      {"coordination.k8s.io/leases", check_lease},
      {"node.k8s.io/runtimeclasses", check_runtime_class},
      {"policy/poddisruptionbudgets", check_pdb},
      {"scheduling.k8s.io/priorityclasses", check_priority_class},
      {"rbac.authorization.k8s.io/roles", check_role},
      {"rbac.authorization.k8s.io/clusterroles", check_role},
      {"rbac.authorization.k8s.io/rolebindings", check_binding},
      {"rbac.authorization.k8s.io/clusterrolebindings", check_binding}};
  return all;
}

}  // namespace

FieldErrors validate_object(const ResourceType& type, const Json& object) {
  FieldErrors errors;
  auto found = checks().find(type.store);
  if (found != checks().end()) found->second(object, errors);
  if (type.group == "events.k8s.io") check_new_event(object, errors);
  if (type.store == "apiextensions.k8s.io/customresourcedefinitions") errors.clear();  // checked at admission
  return errors;
}

FieldErrors validate_update(const ResourceType& type, const Json& old, const Json& object) {
  FieldErrors errors;
  const std::string& store = type.store;
  if (store == "/pods") {
    check_pod_update(old, object, errors);
    return errors;
  }
  if (store == "/configmaps" || store == "/secrets") {
    check_data_update(old, object, errors);
    return errors;
  }
  if (type.group == "events.k8s.io") {
    check_event_update(old, object, errors);
    return errors;
  }
  // What does not change needs no second look.
  const Json* before = find(old, {"spec"});
  const Json* after = find(object, {"spec"});
  bool same_spec = before != nullptr && after != nullptr && *before == *after;
  if (same_spec) return errors;
  bool workload = store == "apps/daemonsets" || store == "apps/deployments" || store == "apps/replicasets" ||
                  store == "apps/statefulsets";
  const bool first = store == "apps/daemonsets";
  if (first) immutable(old, object, {"spec", "selector"}, "spec.selector", errors);
  FieldErrors content = validate_object(type, object);
  errors.insert(errors.end(), content.begin(), content.end());
  if (workload && !first) immutable(old, object, {"spec", "selector"}, "spec.selector", errors);
  if (store == "/nodes") {  // by the type's rules for objects and by those for changes
    FieldErrors again = errors;
    errors.insert(errors.end(), again.begin(), again.end());
  }
  if (store == "/services") check_service_update(old, object, errors);
  if (store == "batch/jobs") {
    immutable(old, object, {"spec", "selector"}, "spec.selector", errors);
    immutable(old, object, {"spec", "template"}, "spec.template", errors);
    immutable(old, object, {"spec", "completions"}, "spec.completions", errors);
  }
  if (store.starts_with("rbac.authorization.k8s.io/") && has(object, {"roleRef"})) {
    const Json* now = find(object, {"roleRef"});
    const Json* was = find(old, {"roleRef"});
    JsonObject shown{{"APIGroup", get_string(*now, {"apiGroup"})},
                     {"Kind", get_string(*now, {"kind"})},
                     {"Name", get_string(*now, {"name"})}};
    if (was != nullptr && *was != *now)
      errors.push_back(invalid("roleRef", std::move(shown), "cannot change roleRef"));
  }
  if (store == "node.k8s.io/runtimeclasses") immutable(old, object, {"handler"}, "handler", errors);
  if (store == "scheduling.k8s.io/priorityclasses") {
    const Json* was = find(old, {"value"});
    const Json* now = find(object, {"value"});
    if (was != nullptr && now != nullptr && *was != *now)
      errors.push_back(forbidden_field("value", "may not be changed in an update."));
  }
  return errors;
}

}  // namespace gpuop::cluster::api
