#include "fleet/demo_pods.h"

#include <algorithm>

#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kSharing = "nvidia.com/gpu.sharing-strategy";

bool is_gpu(std::string_view name) {
  return name == "nvidia.com/gpu" || name == "nvidia.com/gpu.shared";
}

Json pod(const std::string& name, const std::string& image, const std::string& resource, std::int64_t count,
         Json affinity) {
  const JsonObject gpus{{resource, std::to_string(count)}};
  JsonObject spec{
      {"restartPolicy", "Never"},
      {"tolerations",
       JsonArray{JsonObject{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}}},
      {"containers", JsonArray{JsonObject{{"name", "cuda"},
                                          {"image", image},
                                          {"command", JsonArray{"vectorAdd"}},
                                          {"resources", JsonObject{{"limits", gpus}}}}}}};
  if (!affinity.is_null()) spec["affinity"] = std::move(affinity);
  return JsonObject{{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata", JsonObject{{"name", name}, {"namespace", "default"}}},
                    {"spec", std::move(spec)}};
}

Json sharing_is(std::string_view op, JsonArray values) {
  return JsonObject{
      {"nodeAffinity",
       JsonObject{
           {"requiredDuringSchedulingIgnoredDuringExecution",
            JsonObject{{"nodeSelectorTerms",
                        JsonArray{JsonObject{{"matchExpressions",
                                              JsonArray{JsonObject{{"key", kSharing},
                                                                   {"operator", op},
                                                                   {"values", std::move(values)}}}}}}}}}}}};
}

}  // namespace

std::vector<DemoPod> demo_pods(const Objects& nodes, const std::string& image) {
  std::string whole;  // resource name that a node offers unshared
  std::string shared;
  std::int64_t most = 0;
  std::string most_resource = "nvidia.com/gpu";
  for (const auto& node : nodes) {
    const auto strategy = kube::label(*node, kSharing);
    const bool is_shared = strategy == "time-slicing" || strategy == "mps";
    for (const auto& [name, quantity] : get_object(*node, {"status", "allocatable"})) {
      const auto count = kube::parse_quantity(quantity).value_or(0);
      if (!is_gpu(name) || count < 1) continue;
      (is_shared ? shared : whole) = std::string(name);
      if (count > most) {
        most = count;
        most_resource = name;
      }
    }
  }
  std::vector<DemoPod> out;
  if (!whole.empty()) {
    out.push_back({"one-gpu", "one whole GPU",
                   pod("one-gpu", image, whole, 1, sharing_is("NotIn", {"time-slicing", "mps"})), false});
  }
  if (!shared.empty()) {
    out.push_back({"shared-gpu", "a share of a GPU",
                   pod("shared-gpu", image, shared, 1, sharing_is("In", {"time-slicing", "mps"})), false});
  }
  if (most > 0) {
    out.push_back({"too-many-gpus", std::to_string(most + 1) + " GPUs on one node",
                   pod("too-many-gpus", image, most_resource, most + 1, nullptr), true});
  }
  return out;
}

}  // namespace gpuop::fleet
