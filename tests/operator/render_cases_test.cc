// Our rendering against what upstream's operator made of the same ten policies on a real API server.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "operator/driver_pools.h"
#include "operator/render.h"
#include "render_fixture.h"

namespace gpuop::op {
namespace {

using Objects = std::map<std::string, Json>;

Json read_yaml(const fs::path& path) {
  return parse_yaml_one(read_file(path).value(), path.string()).value().value;
}

// What upstream made for a case: 01-defaults.yaml with the case's differences laid over it.
Objects upstream_objects(const std::string& name) {
  fs::path dir = fs::path(TEST_DATA) / "data";
  Objects objects;
  Json base = read_yaml(dir / "01-defaults.yaml");
  for (const auto& [key, object] : get_object(base, {"objects"})) objects[str(key)] = object;
  if (name == "01-defaults") return objects;
  Json overlay = read_yaml(dir / (name + ".yaml"));
  for (const Json& key : get_array(overlay, {"absent"})) objects.erase(str(as_text(key)));
  for (const auto& [key, object] : get_object(overlay, {"objects"})) objects[str(key)] = object;
  return objects;
}

const Json kZero = 0;

bool equals(const Json* value, const Json& other) {
  return value && to_canonical_text(*value) == to_canonical_text(other);
}

void drop_if(Json& object, Keys keys, const Json& value) {
  if (equals(find(object, keys), value)) remove(object, keys);
}

void strip_container(Json& c) {
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

void strip_pod(Json& pod) {
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

// Removes what an API server fills in by itself, and the owner, whose uid the captures lack.
Json stripped(Json object) {
  remove(object, {"metadata", "ownerReferences"});
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

void differences(const Json& want, const Json& have, const std::string& path, std::vector<std::string>& out) {
  if (want.is_object() && have.is_object()) {
    std::set<std::string> keys;
    for (const auto& [key, value] : want.get_object()) keys.insert(str(key));
    for (const auto& [key, value] : have.get_object()) keys.insert(str(key));
    for (const std::string& key : keys) {
      const Json* a = find(want, {key});
      const Json* b = find(have, {key});
      if (!a)
        out.push_back(path + "." + key + ": ours only: " + to_text(*b));
      else if (!b)
        out.push_back(path + "." + key + ": upstream only: " + to_text(*a));
      else
        differences(*a, *b, path + "." + key, out);
    }
  } else if (want.is_array() && have.is_array() && want.get_array().size() == have.get_array().size()) {
    for (std::size_t i = 0; i < want.get_array().size(); ++i)
      differences(want.get_array()[i], have.get_array()[i], path + "[" + std::to_string(i) + "]", out);
  } else if (to_canonical_text(want) != to_canonical_text(have)) {
    out.push_back(path + ": upstream " + to_text(want) + ", ours " + to_text(have));
  }
}

// Lines "PATH-PREFIX  # reason"; "*" stands for any text within one name.
struct Known {
  std::string prefix;
  bool used = false;
};

std::vector<Known> known_differences() {
  std::vector<Known> known;
  for (const std::string& line :
       split(read_file(fs::path(TEST_DATA) / "known_differences.txt").value(), '\n'))
    if (std::string prefix(trim(line.substr(0, line.find("  # ")))); !prefix.empty() && prefix[0] != '#')
      known.push_back({prefix});
  return known;
}

bool starts_like(std::string_view text, std::string_view pattern) {
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

const char* const kCases[] = {"01-defaults",  "02-preinstalled-driver", "03-time-slicing",
                              "04-mig-mixed", "05-air-gapped",          "06-vm-workloads",
                              "07-rdma-gds",  "08-driver-crd",          "09-nri-monitoring",
                              "10-openshift"};

TEST(operator_render, ten_policies_render_as_upstream_renders_them) {
  Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  std::vector<Known> known = known_differences();
  for (const std::string name : kCases) {
    SCOPED_TRACE(name);
    policy::ClusterPolicy policy = policy_of_case(name);
    Plan plan = render(policy, facts_of_cases(), assets);
    Objects ours, theirs = upstream_objects(name);
    for (const State& state : plan.states) {
      ASSERT_FALSE(state.error) << state.name << ": " << state.error->text();
      for (const Json& object : state.objects)
        ours[str(get_string(object, {"kind"})) + "/" + str(get_string(object, {"metadata", "name"}))] =
            object;
    }
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
    for (const std::string& difference : found) {
      bool expected = false;
      for (Known& k : known)
        if (starts_like(difference, k.prefix)) expected = k.used = true;
      EXPECT_TRUE(expected) << difference;
    }
  }
  for (const Known& k : known) EXPECT_TRUE(k.used) << "known difference that is none: " << k.prefix;
}

TEST(operator_render, a_default_nvidiadriver_renders_as_upstream_renders_it) {
  const Json object = case_object("08-driver-crd-nvidiadriver");
  policy::NvidiaDriver driver = policy::parse_nvidia_driver(object).value();
  driver.uid = "00000000-0000-0000-0000-000000000001";
  std::vector<DriverNode> nodes;
  for (const char* name : {"plain-a", "plain-b"})
    nodes.push_back({name,
                     {{"nvidia.com/gpu.present", "true"},
                      {"feature.node.kubernetes.io/system-os_release.ID", "ubuntu"},
                      {"feature.node.kubernetes.io/system-os_release.VERSION_ID", "22.04"}}});
  std::vector<std::string> warnings;
  const auto pools = driver_pools(driver.spec, nodes, false, warnings);
  ASSERT_EQ(pools.size(), 1u);
  EXPECT_TRUE(warnings.empty());
  const std::string name = pool_name(driver, pools[0]);
  const Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  const State state = render_driver(driver, pools, facts_of_cases(), assets, "/");
  ASSERT_FALSE(state.error) << state.error->text();
  Objects ours;
  for (const Json& each : state.objects)
    ours[str(get_string(each, {"kind"})) + "/" + str(get_string(each, {"metadata", "name"}))] = each;

  // Upstream's names have a hash of another uid in them.
  const fs::path file = fs::path(TEST_DATA) / "data/08-nvidiadriver-objects.yaml";
  const std::string text =
      replace_all(read_file(file).value(), "nvidia-gpu-driver-ubuntu22.04-5fbfb449f9", name);
  const Json captured = parse_yaml_one(text, file.string()).value().value;
  std::vector<std::string> found;
  for (const auto& [key, theirs] : get_object(captured, {"objects"})) {
    const auto mine = ours.find(str(key));
    if (mine == ours.end())
      found.push_back(str(key) + ": upstream only");
    else
      differences(stripped(theirs), stripped(mine->second), str(key), found);
  }
  const std::vector<std::string> known = {
      // Whoever manages a driver on a node, no second one may (D-04, OURS).
      ".spec.template.spec.affinity.podAntiAffinity",
      // Operands emit Events (operands-driver-validator.md §3.1, OURS).
      "Role/nvidia-gpu-driver-default-ubuntu22.04.rules",
      "ClusterRole/nvidia-gpu-driver-default-ubuntu22.04.rules"};
  for (const std::string& difference : found)
    EXPECT_TRUE(std::ranges::any_of(known, [&](const auto& each) { return difference.contains(each); }))
        << difference;
  ASSERT_TRUE(ours.contains("ConfigMap/nvidia-driver-startup-probe"));
  EXPECT_EQ(get_string(ours["ConfigMap/nvidia-driver-startup-probe"], {"metadata", "labels", "app"}), name);
}

}  // namespace
}  // namespace gpuop::op
