#include "cluster/kubelet/pod_env.h"

#include <algorithm>

#include "base/quote.h"
#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

std::string format_map(const JsonObject& map) {
  std::map<std::string, std::string> sorted;
  for (const auto& item : map) sorted[str(item.key())] = str(as_text(item.value()));
  std::string out;
  for (const auto& [key, value] : sorted) {
    if (!out.empty()) out += '\n';
    out += key + "=" + in_quotes(value, "\\x");
  }
  return out;
}

// "labels['app']" → "app" when `path` starts with `head`.
std::optional<std::string> subscript(std::string_view path, std::string_view head) {
  if (!path.starts_with(head)) return std::nullopt;
  path.remove_prefix(head.size());
  if (path.size() < 4 || !path.starts_with("['") || !path.ends_with("']")) return std::nullopt;
  return std::string(path.substr(2, path.size() - 4));
}

std::string map_value(const Json& pod, std::string_view map, const std::string& key) {
  return str(get_string(pod, {"metadata", map, key}));
}

using Env = std::vector<std::pair<std::string, std::string>>;

void put(Env& env, const std::string& name, std::string value) {
  const auto found = std::ranges::find(env, name, &std::pair<std::string, std::string>::first);
  if (found != env.end()) {
    found->second = std::move(value);
  } else {
    env.emplace_back(name, std::move(value));
  }
}

std::string_view kind_word(ObjectKind kind) {
  return kind == ObjectKind::kSecret ? "secret" : "configmap";
}
std::string_view kind_name(ObjectKind kind) {
  return kind == ObjectKind::kSecret ? "Secret" : "ConfigMap";
}

std::string object_value(ObjectKind kind, std::string_view stored) {
  if (kind == ObjectKind::kConfigMap) return std::string(stored);
  return base64_decode(stored).value_or("");
}

// The value of one key; nullopt: it may be missing and is.
Result<std::optional<std::string>> key_value(const EnvFacts& facts, ObjectKind kind, const Json& ref) {
  const std::string name = str(get_string(ref, {"name"}));
  const std::string key = str(get_string(ref, {"key"}));
  const bool optional = get_bool(ref, {"optional"});
  const ObjectView view = facts.object(kind, name);
  if (!view.object) {
    if (optional) return std::optional<std::string>();
    return fail(Code::kNotFound, std::string(kind_word(kind)) + " \"" + name + "\" not found");
  }
  const Json* value = find(*view.object, {"data", key});
  if (value == nullptr || !value->is_string()) {
    if (optional) return std::optional<std::string>();
    return fail(Code::kNotFound, "couldn't find key " + key + " in " + std::string(kind_name(kind)) + " " +
                                     str(kube::namespace_of(facts.pod)) + "/" + name);
  }
  return std::optional<std::string>(object_value(kind, as_text(*value)));
}

Result<> add_from(const EnvFacts& facts, const Json& source, Env& env) {
  const std::string prefix = str(get_string(source, {"prefix"}));
  for (const auto& [field, kind] :
       {std::pair{"configMapRef", ObjectKind::kConfigMap}, std::pair{"secretRef", ObjectKind::kSecret}}) {
    const Json* ref = find(source, {field});
    if (ref == nullptr) continue;
    const std::string name = str(get_string(*ref, {"name"}));
    const ObjectView view = facts.object(kind, name);
    if (!view.object) {
      if (get_bool(*ref, {"optional"})) continue;
      return fail(Code::kNotFound, std::string(kind_word(kind)) + " \"" + name + "\" not found");
    }
    std::map<std::string, std::string> sorted;
    for (const auto& item : get_object(*view.object, {"data"})) {
      sorted[str(item.key())] = object_value(kind, as_text(item.value()));
    }
    for (auto& [key, value] : sorted) put(env, prefix + key, std::move(value));
  }
  return {};
}

Result<std::optional<std::string>> value_from(const EnvFacts& facts, const Json& from) {
  if (const Json* ref = find(from, {"fieldRef"})) {
    return std::optional(TRY(pod_field(facts.pod, facts.node, get_string(*ref, {"fieldPath"}))));
  }
  if (const Json* ref = find(from, {"resourceFieldRef"})) {
    const std::string_view other = get_string(*ref, {"containerName"});
    const Json* container = other.empty() ? &facts.container : find_container(facts.pod, other);
    if (container == nullptr) return fail(Code::kNotFound, "container " + str(other) + " not found");
    return std::optional(
        TRY(resource_field(*container, facts.node, get_string(*ref, {"resource"}), find(*ref, {"divisor"}))));
  }
  if (const Json* ref = find(from, {"configMapKeyRef"}))
    return key_value(facts, ObjectKind::kConfigMap, *ref);
  if (const Json* ref = find(from, {"secretKeyRef"})) return key_value(facts, ObjectKind::kSecret, *ref);
  return std::optional<std::string>();
}

__int128 node_milli(const NodeView& node, std::string_view resource) {
  if (resource == "cpu") return static_cast<__int128>(node.cpus) * 1000;
  if (resource == "memory") return static_cast<__int128>(node.memory_bytes) * 1000;
  if (resource == "ephemeral-storage") return static_cast<__int128>(node.ephemeral_bytes) * 1000;
  return 0;
}

}  // namespace

const Json* find_container(const Json& pod, std::string_view name) {
  for (std::string_view list : {"initContainers", "containers"}) {
    for (const Json& container : get_array(pod, {"spec", list})) {
      if (get_string(container, {"name"}) == name) return &container;
    }
  }
  return nullptr;
}

Result<std::string> pod_field(const Json& pod, const NodeView& node, std::string_view path) {
  if (path == "metadata.name") return str(kube::name_of(pod));
  if (path == "metadata.namespace") return str(kube::namespace_of(pod));
  if (path == "metadata.uid") return str(kube::uid_of(pod));
  if (path == "metadata.labels") return format_map(get_object(pod, {"metadata", "labels"}));
  if (path == "metadata.annotations") return format_map(get_object(pod, {"metadata", "annotations"}));
  if (auto key = subscript(path, "metadata.labels")) return map_value(pod, "labels", *key);
  if (auto key = subscript(path, "metadata.annotations")) return map_value(pod, "annotations", *key);
  if (path == "spec.nodeName") return str(get_string(pod, {"spec", "nodeName"}));
  if (path == "spec.serviceAccountName") return str(get_string(pod, {"spec", "serviceAccountName"}));
  if (path == "status.hostIP" || path == "status.hostIPs" || path == "status.podIP" ||
      path == "status.podIPs") {
    return node.node_ip;
  }
  return fail(Code::kInvalid, "unsupported fieldPath: " + std::string(path));
}

Result<std::string> resource_field(const Json& container, const NodeView& node, std::string_view resource,
                                   const Json* divisor) {
  const std::size_t dot = resource.find('.');
  const std::string_view list = resource.substr(0, dot);
  if (dot == std::string_view::npos || (list != "limits" && list != "requests")) {
    return fail(Code::kInvalid, "unsupported container resource : " + std::string(resource));
  }
  const std::string_view name = resource.substr(dot + 1);
  __int128 milli = list == "limits" ? node_milli(node, name) : 0;
  if (const Json* value = find(container, {"resources", list, name})) {
    milli = TRY(kube::parse_quantity_milli(*value));
  }
  __int128 unit = divisor != nullptr ? TRY(kube::parse_quantity_milli(*divisor)) : 1000;
  if (unit <= 0) unit = 1000;  // an unset divisor is stored as "0"
  return std::to_string(static_cast<std::int64_t>((milli + unit - 1) / unit));
}

std::string expand(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '$' || at + 1 == text.size()) {
      out += text[at];
      continue;
    }
    if (text[at + 1] == '$') {
      out += '$';
      ++at;
      continue;
    }
    const std::size_t close = text[at + 1] == '(' ? text.find(')', at + 2) : std::string_view::npos;
    if (close == std::string_view::npos) {
      out += '$';
      continue;
    }
    const auto known = values.find(std::string(text.substr(at + 2, close - at - 2)));
    out += known != values.end() ? std::string_view(known->second) : text.substr(at, close - at + 1);
    at = close;
  }
  return out;
}

std::vector<ObjectRef> env_objects(const Json& container) {
  std::vector<ObjectRef> out;
  auto add = [&](ObjectKind kind, const Json* ref) {
    if (ref == nullptr) return;
    ObjectRef item{kind, str(get_string(*ref, {"name"})), get_bool(*ref, {"optional"})};
    if (std::ranges::find(out, item) == out.end()) out.push_back(std::move(item));
  };
  for (const Json& source : get_array(container, {"envFrom"})) {
    add(ObjectKind::kConfigMap, find(source, {"configMapRef"}));
    add(ObjectKind::kSecret, find(source, {"secretRef"}));
  }
  for (const Json& item : get_array(container, {"env"})) {
    add(ObjectKind::kConfigMap, find(item, {"valueFrom", "configMapKeyRef"}));
    add(ObjectKind::kSecret, find(item, {"valueFrom", "secretKeyRef"}));
  }
  return out;
}

Result<Env> build_env(const EnvFacts& facts) {
  Env env;
  if (!facts.node.service_host.empty()) {
    put(env, "KUBERNETES_SERVICE_HOST", facts.node.service_host);
    put(env, "KUBERNETES_SERVICE_PORT", facts.node.service_port);
    put(env, "KUBERNETES_SERVICE_PORT_HTTPS", facts.node.service_port);
  }
  for (const Json& source : get_array(facts.container, {"envFrom"})) TRY(add_from(facts, source, env));
  std::map<std::string, std::string> known(env.begin(), env.end());
  for (const Json& item : get_array(facts.container, {"env"})) {
    const std::string name = str(get_string(item, {"name"}));
    std::string value;
    if (const Json* from = find(item, {"valueFrom"}); from != nullptr && from->is_object()) {
      auto found = TRY(value_from(facts, *from));
      if (!found) continue;
      value = std::move(*found);
    } else {
      value = expand(get_string(item, {"value"}), known);
    }
    known[name] = value;
    put(env, name, std::move(value));
  }
  return env;
}

}  // namespace gpuop::cluster
