#include "cluster/hollow/normalise.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

// Identity, times and counts of one run.
const std::set<std::string, std::less<>>& volatile_keys() {
  static const std::set<std::string, std::less<>> kKeys{
      "uid", "resourceVersion", "generation", "observedGeneration", "creationTimestamp", "lastTransitionTime",
      "lastHeartbeatTime", "lastUpdateTime", "lastProbeTime", "startTime", "startedAt", "finishedAt",
      "containerID", "restartCount", "lastState", "managedFields", "bootID", "clusterIP", "clusterIPs",
      "collisionCount", "nfd.node.kubernetes.io/worker.pod.uid", "nvidia.com/gfd.timestamp",
      // It is taken over the owner's uid too.
      "nvidia.com/last-applied-hash", "deprecated.daemonset.template.generation", "pod-template-generation"};
  return kKeys;
}

using Names = std::map<std::string, std::string, std::less<>>;

std::string plain(std::string_view text, const Names& names) {
  if (const auto found = names.find(text); found != names.end()) return found->second;
  // Volumes of service account tokens have a random end.
  constexpr std::string_view kAccess = "kube-api-access-";
  if (text.starts_with(kAccess)) return std::string(kAccess) + "*";
  return std::string(text);
}

Json clean(const Json& value, const Names& names) {
  if (value.is_string()) return Json(plain(as_text(value), names));
  if (value.is_array()) {
    JsonArray out;
    for (const Json& item : value.get_array()) out.push_back(clean(item, names));
    return out;
  }
  if (!value.is_object()) return value;
  JsonObject out;
  for (const auto& [key, item] : value.get_object()) {
    if (volatile_keys().contains(std::string_view(key))) continue;
    Json cleaned = clean(item, names);
    // What was put there and taken back leaves an empty map.
    if (key == "annotations" && cleaned.is_object() && cleaned.get_object().empty()) continue;
    out[key] = std::move(cleaned);
  }
  return out;
}

}  // namespace

std::string normalise(std::vector<Json> objects) {
  Names names;
  for (const Json& object : objects) {
    const auto prefix = get_string(object, {"metadata", "generateName"});
    if (!prefix.empty()) names[str(kube::name_of(object))] = str(prefix) + "*";
  }
  std::vector<std::string> lines;
  for (const Json& object : objects) lines.push_back(to_canonical_text(clean(object, names)));
  std::ranges::sort(lines);
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

}  // namespace gpuop::cluster
