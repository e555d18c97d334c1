// What upstream's operator made of ten policies on a real API server (data/), in a form in which ours can be
// compared with it, and the list of differences that are meant (known_differences.txt).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "../json_differences.h"
#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "operator/render.h"

namespace gpuop::op {

inline constexpr const char* kCases[] = {"01-defaults",  "02-preinstalled-driver", "03-time-slicing",
                                         "04-mig-mixed", "05-air-gapped",          "06-vm-workloads",
                                         "07-rdma-gds",  "08-driver-crd",          "09-nri-monitoring",
                                         "10-openshift"};

using Objects = std::map<std::string, Json>;

inline Json read_yaml(const fs::path& path) {
  return parse_yaml_one(read_file(path).value(), path.string()).value().value;
}

// Of a case: 01-defaults.yaml with the case's differences laid over it. `part` is "objects" (keyed
// "Kind/name") or "nodes" (by name: labels and annotations of nvidia.com). An NVIDIADriver's objects are
// under `driver_pool`, a name with a hash of the resource's uid in it.
inline Objects upstream_objects(const std::string& name, std::string_view part = "objects",
                                const std::string& driver_pool = "nvidia-gpu-driver-ubuntu22.04-5fbfb449f9") {
  const fs::path dir = fs::path(SOURCE_ROOT) / "tests/operator/data";
  Objects objects;
  const Json base = read_yaml(dir / "01-defaults.yaml");
  for (const auto& [key, object] : get_object(base, {part})) objects[str(key)] = object;
  if (name == "01-defaults") return objects;
  const Json overlay = read_yaml(dir / (name + ".yaml"));
  for (const Json& key : get_array(overlay, {"absent"})) objects.erase(str(as_text(key)));
  for (const auto& [key, object] : get_object(overlay, {part})) objects[str(key)] = object;
  if (name != "08-driver-crd") return objects;
  const fs::path file = dir / "08-nvidiadriver-objects.yaml";
  const std::string text =
      replace_all(read_file(file).value(), "nvidia-gpu-driver-ubuntu22.04-5fbfb449f9", driver_pool);
  const Json driver = parse_yaml_one(text, file.string()).value().value;
  for (const auto& [key, object] : get_object(driver, {part})) objects[str(key)] = object;
  return objects;
}

inline const Json kZero = 0;

inline bool equals(const Json* value, const Json& other) {
  return value && to_canonical_text(*value) == to_canonical_text(other);
}

inline void drop_if(Json& object, Keys keys, const Json& value) {
  if (equals(find(object, keys), value)) remove(object, keys);
}

inline void strip_container(Json& c) {
  for (std::string_view key : {"terminationMessagePath", "terminationMessagePolicy"}) remove(c, {key});
  drop_if(c, {"resources"}, JsonObject{});
  drop_if(c, {"imagePullPolicy"}, "IfNotPresent");
  drop_if(c, {"env"}, JsonArray{});
  if (has(c, {"env"}))
    for (Json& entry : ensure(c, {"env"}).get_array()) {
      drop_if(entry, {"value"}, "");
      drop_if(entry, {"valueFrom", "fieldRef", "apiVersion"}, "v1");
    }
  if (has(c, {"ports"}))
    for (Json& port : ensure(c, {"ports"}).get_array()) drop_if(port, {"protocol"}, "TCP");
  for (std::string_view probe : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    drop_if(c, {probe, "successThreshold"}, 1);
    drop_if(c, {probe, "failureThreshold"}, 3);
    drop_if(c, {probe, "timeoutSeconds"}, 1);
    drop_if(c, {probe, "periodSeconds"}, 10);
    drop_if(c, {probe, "httpGet", "scheme"}, "HTTP");
  }
}

inline void strip_pod(Json& pod) {
  drop_if(pod, {"dnsPolicy"}, "ClusterFirst");
  drop_if(pod, {"restartPolicy"}, "Always");
  drop_if(pod, {"schedulerName"}, "default-scheduler");
  drop_if(pod, {"securityContext"}, JsonObject{});
  drop_if(pod, {"terminationGracePeriodSeconds"}, 30);
  remove(pod, {"serviceAccount"});
  for (std::string_view list : {"containers", "initContainers"})
    if (has(pod, {list}))
      for (Json& c : ensure(pod, {list}).get_array()) strip_container(c);
  if (has(pod, {"volumes"}))
    for (Json& volume : ensure(pod, {"volumes"}).get_array()) {
      drop_if(volume, {"hostPath", "type"}, "");
      drop_if(volume, {"configMap", "defaultMode"}, 420);
      drop_if(volume, {"secret", "defaultMode"}, 420);
    }
}

// Removes what an API server fills in by itself; of the owners only the uids, which the captures lack.
inline Json stripped(Json object) {
  for (std::string_view key : {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"})
    remove(object, {"metadata", key});
  remove(object, {"status"});
  remove(object, {"metadata", "annotations", "deprecated.daemonset.template.generation"});
  if (Json* owners = find_mutable(object, {"metadata", "ownerReferences"}))
    for (Json& owner : owners->as_array()) remove(owner, {"uid"});
  remove(object, {"metadata", "annotations", kHashAnnotation});
  drop_if(object, {"metadata", "annotations"}, JsonObject{});
  std::string_view kind = get_string(object, {"kind"});
  if (kind == "Service") {
    for (std::string_view key :
         {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "sessionAffinity"})
      remove(object, {"spec", key});
    drop_if(object, {"spec", "type"}, "ClusterIP");
    drop_if(object, {"spec", "internalTrafficPolicy"}, "Cluster");
    for (Json& port : ensure(object, {"spec", "ports"}).get_array()) drop_if(port, {"protocol"}, "TCP");
  }
  if (kind == "DaemonSet") {
    remove(object, {"spec", "revisionHistoryLimit"});
    drop_if(object, {"spec", "updateStrategy", "rollingUpdate", "maxSurge"}, kZero);
    drop_if(object, {"spec", "updateStrategy"},
            JsonObject{{"type", "RollingUpdate"}, {"rollingUpdate", JsonObject{{"maxUnavailable", 1}}}});
    strip_pod(ensure(object, {"spec", "template", "spec"}));
  }
  return object;
}

inline void differences(const Json& want, const Json& have, const std::string& path,
                        std::vector<std::string>& out) {
  std::vector<JsonDifference> found;
  json_differences(want, have, path, found);
  for (const auto& one : found) {
    if (!one.left)
      out.push_back(one.path + ": ours only: " + to_text(*one.right));
    else if (!one.right)
      out.push_back(one.path + ": upstream only: " + to_text(*one.left));
    else
      out.push_back(one.path + ": upstream " + to_text(*one.left) + ", ours " + to_text(*one.right));
  }
}

// Lines "PATH-PREFIX  # reason"; "*" stands for any text within one name.
struct Known {
  std::string prefix;
  bool used = false;
};

inline std::vector<Known> known_differences() {
  std::vector<Known> known;
  for (const std::string& line :
       split(read_file(fs::path(SOURCE_ROOT) / "tests/operator/known_differences.txt").value(), '\n'))
    if (std::string prefix(trim(line.substr(0, line.find("  # ")))); !prefix.empty() && prefix[0] != '#')
      known.push_back({prefix});
  return known;
}

inline bool starts_like(std::string_view text, std::string_view pattern) {
  while (!pattern.empty()) {
    std::size_t star = pattern.find('*');
    std::string_view piece = pattern.substr(0, star);
    if (!text.starts_with(piece)) return false;
    text.remove_prefix(piece.size());
    if (star == std::string_view::npos) return true;
    pattern.remove_prefix(star + 1);
    std::size_t next = text.find(pattern.substr(0, pattern.find('*')));
    if (next == std::string_view::npos) return false;
    text.remove_prefix(next);
  }
  return true;
}

// Those of `found` that no line of the list speaks of; the lines that do are marked.
inline std::vector<std::string> unexpected(const std::vector<std::string>& found, std::vector<Known>& known) {
  std::vector<std::string> out;
  for (const std::string& difference : found) {
    bool expected = false;
    for (Known& each : known)
      if (starts_like(difference, each.prefix)) expected = each.used = true;
    if (!expected) out.push_back(difference);
  }
  return out;
}

// Differences of all objects, keyed "Kind/name".
inline std::vector<std::string> differences(const Objects& theirs, const Objects& ours) {
  std::vector<std::string> found;
  for (const auto& [key, object] : theirs)
    if (!ours.contains(key)) found.push_back(key + ": upstream only");
  for (const auto& [key, object] : ours) {
    auto there = theirs.find(key);
    if (there == theirs.end())
      found.push_back(key + ": ours only");
    else
      differences(stripped(there->second), stripped(object), key, found);
  }
  return found;
}

inline std::string key_of(const Json& object) {
  return str(get_string(object, {"kind"})) + "/" + str(get_string(object, {"metadata", "name"}));
}

}  // namespace gpuop::op
