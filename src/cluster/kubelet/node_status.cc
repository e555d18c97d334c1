#include "cluster/kubelet/node_status.h"

#include "kube/object.h"

namespace gpuop::cluster {

namespace {

constexpr std::int64_t kEvictionReserve = 100ll << 20;  // memory that the kubelet keeps from pods

std::string kibi(std::int64_t bytes) {
  return std::to_string(bytes / 1024) + "Ki";
}

std::map<std::string, std::string> own_labels(const KubeletOptions& options) {
  std::map<std::string, std::string> out = options.labels;
  const std::string arch =
      options.facts.architecture.empty() ? machine_architecture() : options.facts.architecture;
  out.try_emplace("kubernetes.io/hostname", options.node_name);
  out.try_emplace("kubernetes.io/os", "linux");
  out.try_emplace("kubernetes.io/arch", arch);
  out.try_emplace("beta.kubernetes.io/os", "linux");
  out.try_emplace("beta.kubernetes.io/arch", arch);
  return out;
}

JsonObject condition(std::string_view type, bool met, std::string_view reason, std::string_view message,
                     const std::string& now) {
  return {{"type", type},
          {"status", met ? "True" : "False"},
          {"lastHeartbeatTime", now},
          {"lastTransitionTime", now},
          {"reason", reason},
          {"message", message}};
}

JsonObject resources(const NodeStatusFacts& facts, bool allocatable) {
  const NodeFacts& node = facts.options.facts;
  JsonObject out;
  out["cpu"] = std::to_string(node.cpus);
  out["memory"] =
      kibi(allocatable ? std::max<std::int64_t>(node.memory_bytes - kEvictionReserve, 0) : node.memory_bytes);
  out["ephemeral-storage"] =
      allocatable ? std::to_string(node.ephemeral_bytes / 10 * 9) : kibi(node.ephemeral_bytes);
  out["hugepages-1Gi"] = "0";
  out["hugepages-2Mi"] = "0";
  out["pods"] = std::to_string(node.pods);
  for (const auto& [name, counts] : facts.devices) {
    out[name] = std::to_string(allocatable ? counts.allocatable : counts.capacity);
  }
  return out;
}

}  // namespace

Json build_node_status(const NodeStatusFacts& facts) {
  const NodeFacts& node = facts.options.facts;
  const std::string now = format_time(facts.now);
  JsonObject out;
  out["addresses"] = JsonArray{JsonObject{{"type", "InternalIP"}, {"address", facts.options.node_ip}},
                               JsonObject{{"type", "Hostname"}, {"address", facts.options.node_name}}};
  out["capacity"] = resources(facts, false);
  out["allocatable"] = resources(facts, true);
  out["conditions"] = JsonArray{
      condition("MemoryPressure", false, "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available", now),
      condition("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now),
      condition("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available", now),
      facts.ready ? condition("Ready", true, "KubeletReady", "kubelet is posting ready status", now)
                  : condition("Ready", false, "KubeletNotReady", facts.not_ready_message, now)};
  if (facts.port != 0) {
    out["daemonEndpoints"] = JsonObject{{"kubeletEndpoint", JsonObject{{"Port", facts.port}}}};
  }
  out["nodeInfo"] =
      JsonObject{{"machineID", node.machine_id},
                 {"systemUUID", node.system_uuid},
                 {"bootID", node.boot_id},
                 {"kernelVersion", node.kernel_version},
                 {"osImage", node.os_image},
                 {"containerRuntimeVersion", facts.runtime_version},
                 {"kubeletVersion", node.kubelet_version},
                 {"kubeProxyVersion", ""},
                 {"operatingSystem", "linux"},
                 {"architecture", node.architecture.empty() ? machine_architecture() : node.architecture}};
  return out;
}

Json build_node(const NodeStatusFacts& facts) {
  const KubeletOptions& options = facts.options;
  JsonObject labels, annotations{{"volumes.kubernetes.io/controller-managed-attach-detach", "true"}};
  for (const auto& [key, value] : own_labels(options)) labels[key] = value;
  for (const auto& [key, value] : options.annotations) annotations[key] = value;
  JsonObject spec;
  if (!options.provider_id.empty()) spec["providerID"] = options.provider_id;
  if (!options.taints.empty()) spec["taints"] = options.taints;
  return JsonObject{{"apiVersion", "v1"},
                    {"kind", "Node"},
                    {"metadata", JsonObject{{"name", options.node_name},
                                            {"labels", std::move(labels)},
                                            {"annotations", std::move(annotations)}}},
                    {"spec", std::move(spec)},
                    {"status", build_node_status(facts)}};
}

Json node_label_patch(const KubeletOptions& options, const Json& node) {
  JsonObject labels;
  for (const auto& [key, value] : own_labels(options)) {
    if (kube::label(node, key) != value || !has(node, {"metadata", "labels", key})) labels[key] = value;
  }
  if (labels.empty()) return JsonObject{};
  return JsonObject{{"metadata", JsonObject{{"labels", std::move(labels)}}}};
}

Json node_status_patch(const Json& observed, const Json& desired, bool heartbeat) {
  JsonObject patch;
  for (const char* map : {"capacity", "allocatable", "nodeInfo"}) {
    JsonObject changed;
    for (const auto& item : get_object(desired, {map})) {
      const Json* old = find(observed, {map, item.key()});
      if (old == nullptr || *old != item.value()) changed[item.key()] = item.value();
    }
    if (!changed.empty()) patch[map] = std::move(changed);
  }
  for (const char* field : {"addresses", "daemonEndpoints"}) {
    const Json* value = find(desired, {field});
    const Json* old = find(observed, {field});
    if (value != nullptr && (old == nullptr || *old != *value)) patch[field] = *value;
  }
  JsonArray conditions;
  bool differs = false;
  for (Json condition : get_array(desired, {"conditions"})) {
    for (const Json& old : get_array(observed, {"conditions"})) {
      if (get_string(old, {"type"}) != get_string(condition, {"type"})) continue;
      const bool same = get_string(old, {"status"}) == get_string(condition, {"status"});
      if (same) condition.get_object()["lastTransitionTime"] = get_string(old, {"lastTransitionTime"});
      const bool equal = same && get_string(old, {"reason"}) == get_string(condition, {"reason"}) &&
                         get_string(old, {"message"}) == get_string(condition, {"message"});
      if (equal && !heartbeat) condition = nullptr;
      break;
    }
    if (condition.is_null()) continue;
    differs = true;
    conditions.push_back(std::move(condition));
  }
  if (differs) patch["conditions"] = std::move(conditions);
  return patch;
}

std::vector<std::string> extended_resources(const Json& status) {
  std::vector<std::string> out;
  for (const auto& item : get_object(status, {"capacity"})) {
    const std::string_view name = item.key();
    const std::string_view domain = name.substr(0, name.find('/'));
    if (domain == name || domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")) continue;
    out.emplace_back(name);
  }
  return out;
}

Json build_lease(const std::string& node_name, const std::string& node_uid, Time now) {
  JsonObject metadata{{"name", node_name}, {"namespace", "kube-node-lease"}};
  if (!node_uid.empty()) {
    metadata["ownerReferences"] =
        JsonArray{JsonObject{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node_name}, {"uid", node_uid}}};
  }
  return JsonObject{{"apiVersion", "coordination.k8s.io/v1"},
                    {"kind", "Lease"},
                    {"metadata", std::move(metadata)},
                    {"spec", JsonObject{{"holderIdentity", node_name},
                                        {"leaseDurationSeconds", 40},
                                        {"renewTime", format_micro_time(now)}}}};
}

}  // namespace gpuop::cluster
