// The operator's rights (deploy/manifests, equal to the chart's): every verb that it uses is granted, and
// every one that is granted is used, granted on to an operand, or listed with its reason in
// unused_rights.txt.
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "base/yaml.h"
#include "features/master.h"
#include "kube/lease.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

// "patch nodes/status", "create apps/daemonsets"; "in the namespace" is told apart from "in the cluster".
struct Right {
  bool cluster = false;
  std::string verb, group, resource;
  auto operator<=>(const Right&) const = default;
  std::string text() const {
    return std::string(cluster ? "cluster" : "namespace") + " " + (group.empty() ? "" : group + "/") +
           resource + " " + verb;
  }
};

std::optional<Right> right_of(const HttpRequest& request) {
  auto parts = split(request.path, '/');
  parts.erase(parts.begin());
  Right right;
  std::size_t at = 2;
  if (parts.front() == "apis") {
    if (parts.size() < 4) return std::nullopt;  // discovery, which everybody may read
    right.group = parts[1];
    at = 3;
  } else if (parts.front() != "api") {
    return std::nullopt;
  }
  right.cluster = true;
  if (parts[at] == "namespaces" && parts.size() > at + 2) {
    right.cluster = parts[at + 1] != kNs;
    at += 2;
  }
  right.resource = parts[at];
  const bool named = parts.size() > at + 1;
  if (parts.size() > at + 2) right.resource += "/" + parts[at + 2];
  if (request.method == "GET")
    right.verb = named ? "get" : request.query.find("watch=") != std::string::npos ? "watch" : "list";
  else if (request.method == "POST")
    right.verb = "create";
  else if (request.method == "PUT")
    right.verb = "update";
  else
    right.verb = to_lower(request.method);
  return right;
}

std::set<Right> rights(const Json& role) {
  std::set<Right> out;
  for (const auto& rule : get_array(role, {"rules"}))
    for (const auto& group : get_array(rule, {"apiGroups"}))
      for (const auto& resource : get_array(rule, {"resources"}))
        for (const auto& verb : get_array(rule, {"verbs"}))
          out.insert({get_string(role, {"kind"}) == "ClusterRole", std::string(as_text(verb)),
                      std::string(as_text(group)), std::string(as_text(resource))});
  return out;
}

std::set<Right> granted() {
  std::set<Right> out;
  const fs::path file = fs::path(SOURCE_ROOT) / "deploy/manifests/10-operator-rbac.yaml";
  const auto documents = parse_yaml(*read_file(file), file.string());
  for (const auto& document : *documents) out.merge(rights(document.value));
  return out;
}

// What operands get: nobody may grant what he does not hold.
std::set<Right> granted_on() {
  std::set<Right> out;
  const Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  for (const auto& [state, manifests] : assets.states)
    for (const auto& manifest : manifests) out.merge(rights(manifest.object));
  return out;
}

// A life of the operator: everything that it does at some time.
std::set<Right> used() {
  std::set<Right> out;
  Cluster cluster(false);
  kube::ClientOptions options;
  options.user_agent = "under-test";
  kube::Client own(*cluster.loop, cluster.transport, options);
  cluster.spy = [&out](const HttpRequest& request) {
    const auto agent = request.headers.find("User-Agent");
    if (agent == request.headers.end() || agent->second != "under-test") return;
    if (const auto right = right_of(request)) out.insert(*right);
  };
  const fs::path crds = fs::path(SOURCE_ROOT) / "deploy/chart/crds";
  const auto files = list_dir(crds).value();
  for (const auto& file : files) {
    if (!file.starts_with("nfd.")) continue;
    const Json crd = parse_yaml_one(*read_file(crds / file), file)->value;
    Cluster::must(kube::await(*cluster.loop, [&](auto done) {
      return cluster.client->create(kube::kCustomResourceDefinitions, "", crd, {}, done);
    }));
  }
  cluster.loop->run_for(100ms);
  kube::LeaseOptions lease;
  lease.ns = kNs;
  lease.name = "53822513.nvidia.com";
  lease.identity = "me";
  auto elector = kube::LeaderElector::create(own, lease, [] {}, [] {});
  EXPECT_TRUE(elector);
  (*elector)->start();
  features::MasterOptions master_options;
  master_options.ns = kNs;
  features::Master master(*cluster.loop, own, master_options);
  master.start_watching();
  master.lead();
  cluster.start_operator(&own);
  cluster.node("n1", kGpu);
  cluster.node("n2", kGpu);
  cluster.policy("p", R"({"fleet":{"startupTaint":{"enabled":true}},"psa":{"enabled":true}})");
  cluster.loop->run_for(30s);
  cluster.pod("nvidia-container-toolkit-daemonset", "n1",
              R"({"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":4,
                 "state":{"waiting":{"reason":"CrashLoopBackOff"}}}]})");
  cluster.settle();
  cluster.all_available();
  // Everything changes, and everything goes.
  for (
      const char* patch :
      {R"({"spec":{"operator":{"runtimeClass":"other"},"daemonsets":{"labels":{"a":"b"}},"dcgmExporter":{"enablePodLabels":true}}})",
       R"({"spec":{"cdi":{"enabled":false},"dcgm":{"enabled":true,"image":"x"},"dcgmExporter":{"service":{"type":"NodePort"},"enablePodLabels":false}}})",
       R"({"spec":{"toolkit":{"enabled":false},"devicePlugin":{"enabled":false},"gfd":{"enabled":false},"dcgm":{"enabled":false},
            "dcgmExporter":{"enabled":false},"migManager":{"enabled":false},"cdi":{"enabled":true}}})",
       R"({"spec":{"toolkit":{"enabled":true},"driver":{"enabled":true,"useNvidiaDriverCRD":true}}})"}) {
    cluster.merge(kube::kClusterPolicies, "", "p", patch);
    cluster.loop->run_for(5s);
  }
  // Somebody edits what is ours.
  cluster.merge(kube::kRoles, kNs, "nvidia-container-toolkit", R"({"rules":[]})");
  cluster.merge(kube::kRoleBindings, kNs, "nvidia-container-toolkit", R"({"subjects":[]})");
  cluster.merge(kube::kConfigMaps, kNs, "nvidia-container-toolkit-entrypoint", R"({"data":{"x":"y"}})");
  for (const auto* type : {&kube::kClusterRoles, &kube::kClusterRoleBindings}) {
    for (const auto& name : cluster.names(*type, "")) {
      if (!name.starts_with("nvidia-")) continue;
      cluster.merge(*type, "", name, type->kind == "ClusterRole" ? R"({"rules":[]})" : R"({"subjects":[]})");
      break;
    }
  }
  const Json driver = *parse_json(
      R"({"apiVersion":"nvidia.com/v1alpha1","kind":"NVIDIADriver","metadata":{"name":"d"},"spec":{"default":true,"driverType":"gpu","repository":"r","image":"driver","version":"595.91.07"}})");
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kNvidiaDrivers, "", driver, {}, done);
  }));
  cluster.loop->run_for(5s);
  const Json gpu_cluster = *parse_json(
      R"({"apiVersion":"nvidia.com/v1alpha1","kind":"GPUCluster","metadata":{"name":"gpu-cluster"},"spec":{"draDriver":{"repository":"r","image":"i","version":"1"}}})");
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kGpuClusters, "", gpu_cluster, {}, done);
  }));
  const Json feature = *parse_json(
      R"({"metadata":{"name":"gone","namespace":"gpu-operator","labels":{"nfd.node.kubernetes.io/node-name":"gone"}},
          "spec":{"labels":{"feature.node.kubernetes.io/x":"y"}}})");
  (void)kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kNodeFeatures, kNs, feature, {}, done);
  });
  cluster.loop->run_for(2h);  // garbage collection of features has its hour
  return out;
}

// Of the file: right to reason. "cluster nvidia.com/gpuclusters get,list: why"; "*" stands for every verb of
// the rule.
std::map<std::string, std::string> listed() {
  std::map<std::string, std::string> out;
  for (const auto& line : split(*read_file(fs::path(TEST_DATA) / "unused_rights.txt"), '\n')) {
    if (line.empty() || line.starts_with('#')) continue;
    const auto colon = line.find(": ");
    EXPECT_NE(colon, std::string::npos) << line;
    const auto words = split(line.substr(0, colon), ' ');
    EXPECT_EQ(words.size(), 3u) << line;
    for (const auto& verb : split(words[2], ','))
      out[words[0] + " " + words[1] + " " + verb] = line.substr(colon + 2);
  }
  return out;
}

TEST(operator_rbac, what_is_used_is_granted_and_what_is_granted_is_used_or_has_its_reason) {
  const auto wanted = used();
  const auto held = granted();
  EXPECT_GT(wanted.size(), 50u);
  for (const auto& right : wanted) {
    Right everywhere = right;
    everywhere.cluster = true;
    EXPECT_TRUE(held.contains(right) || held.contains(everywhere))
        << "used and not granted: " << right.text();
  }
  const auto on = granted_on();
  auto reasons = listed();
  for (const auto& right : held) {
    Right other = right;
    other.cluster = !right.cluster;
    const bool known = wanted.contains(right) || on.contains(right) || (right.cluster && on.contains(other));
    const auto reason = reasons.find(right.text());
    EXPECT_TRUE(known || reason != reasons.end()) << "granted, unused and without a reason: " << right.text();
    if (reason != reasons.end()) {
      EXPECT_FALSE(wanted.contains(right)) << "used, and listed as unused: " << right.text();
      reasons.erase(reason);
    }
  }
  for (const auto& [right, reason] : reasons) ADD_FAILURE() << "listed, but not granted: " << right;
}

}  // namespace
}  // namespace gpuop::op
