// Policies and facts for the rendering tests.
#pragma once

#include <stdexcept>
#include <string>

#include "base/files.h"
#include "base/yaml.h"
#include "operator/render.h"

namespace gpuop::op {

inline policy::ClusterPolicy parsed(Json object) {
  set(object, {"metadata", "uid"}, "11111111-2222-3333-4444-555555555555");
  Result<policy::ClusterPolicy> policy = policy::parse_cluster_policy(object);
  if (!policy) throw std::runtime_error(policy.error().text());
  return *policy;
}

inline Json case_object(const std::string& name) {
  fs::path path = fs::path(TEST_DATA) / "../policy/data" / (name + ".yaml");
  return parse_yaml_one(read_file(path).value(), path.string()).value().value;
}

inline policy::ClusterPolicy policy_of_case(const std::string& name) {
  return parsed(case_object(name));
}

// The chart's default policy with `changes` (YAML) merged into its spec; null removes a key.
inline policy::ClusterPolicy policy_with(const std::string& changes) {
  Json object = case_object("01-defaults");
  Json patch = JsonObject{{"spec", parse_yaml_one(changes, "changes").value().value}};
  auto merge = [](auto&& self, Json& target, const Json& from) -> void {
    if (!from.is_object()) {
      target = from;
      return;
    }
    if (!target.is_object()) target = JsonObject{};
    for (const auto& [key, value] : from.get_object()) {
      if (value.is_null())
        target.get_object().erase(key);
      else
        self(self, target.get_object()[key], value);
    }
  };
  merge(merge, object, patch);
  return parsed(object);
}

// The cluster in which upstream's captures were made.
inline ClusterFacts facts_of_cases() {
  ClusterFacts facts;
  facts.operator_namespace = "gpu-operator";
  facts.env = {{"VALIDATOR_IMAGE", "nvcr.io/nvidia/gpu-operator:v26.7.0"},
               {"DRIVER_MANAGER_IMAGE", "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"}};
  facts.kubernetes_version = "v1.34.0";
  facts.gpu_nodes = {{"plain-a", "ubuntu", "22.04", "5.15.0-91-generic", ""},
                     {"plain-b", "ubuntu", "22.04", "5.15.0-113-generic", ""}};
  facts.config_maps = {{"kmod-params", {"nvidia.conf"}}, {"repo-config", {"custom.list"}}};
  for (const auto& [name, keys] : facts.config_maps) facts.config_map_hashes[name] = "1";
  return facts;
}

}  // namespace gpuop::op
