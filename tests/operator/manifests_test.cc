// The manifests that ship: deploy/manifests, and what they must hold for the operands in assets/.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/version.h"
#include "base/yaml.h"
#include "operator/render.h"
#include "policy/cluster_policy.h"

namespace gpuop::op {
namespace {

std::vector<Json> documents(const fs::path& path) {
  std::vector<Json> found;
  Result<std::vector<YamlDocument>> all = parse_yaml(read_file(path).value(), path.string());
  if (!all) throw std::runtime_error(all.error().text());
  for (YamlDocument& document : *all) found.push_back(std::move(document.value));
  return found;
}

std::vector<std::string> files_of(const fs::path& dir) {
  return list_dir(dir).value();
}

std::vector<Json> deployed() {
  std::vector<Json> found;
  fs::path dir = fs::path(SOURCE_ROOT) / "deploy/manifests";
  for (const std::string& file : files_of(dir))
    for (Json& object : documents(dir / file)) found.push_back(std::move(object));
  return found;
}

const Json& object(const std::vector<Json>& all, std::string_view kind, std::string_view name) {
  for (const Json& each : all)
    if (get_string(each, {"kind"}) == kind && get_string(each, {"metadata", "name"}) == name) return each;
  throw std::runtime_error("no such object");
}

bool holds(const JsonArray& list, std::string_view word) {
  return std::ranges::any_of(
      list, [word](const Json& item) { return as_text(item) == word || as_text(item) == "*"; });
}

bool allowed(const Json& role, std::string_view group, std::string_view resource, std::string_view verb) {
  return std::ranges::any_of(get_array(role, {"rules"}), [&](const Json& rule) {
    return !has(rule, {"resourceNames"}) && holds(get_array(rule, {"apiGroups"}), group) &&
           holds(get_array(rule, {"resources"}), resource) && holds(get_array(rule, {"verbs"}), verb);
  });
}

TEST(operator_manifests, the_operator_holds_every_right_that_it_grants) {
  std::vector<Json> all = deployed();
  const Json& cluster_role = object(all, "ClusterRole", "gpu-operator");
  const Json& role = object(all, "Role", "gpu-operator");
  Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  int checked = 0;
  for (const auto& [state, manifests] : assets.states)
    for (const Manifest& manifest : manifests) {
      std::string_view kind = get_string(manifest.object, {"kind"});
      if (kind != "Role" && kind != "ClusterRole") continue;
      for (const Json& rule : get_array(manifest.object, {"rules"}))
        for (const Json& group : get_array(rule, {"apiGroups"}))
          for (const Json& resource : get_array(rule, {"resources"}))
            for (const Json& verb : get_array(rule, {"verbs"})) {
              ++checked;
              bool held = allowed(cluster_role, as_text(group), as_text(resource), as_text(verb)) ||
                          (kind == "Role" && allowed(role, as_text(group), as_text(resource), as_text(verb)));
              EXPECT_TRUE(held) << state << "/" << manifest.file << ": " << as_text(verb) << " "
                                << as_text(group) << "/" << as_text(resource);
            }
    }
  EXPECT_GT(checked, 50);
}

TEST(operator_manifests, images_are_this_version) {
  const std::string ours = std::string("ghcr.io/gpu-operator/gpu-operator:") + GPUOP_VERSION;
  std::vector<Json> all = deployed();
  const Json& operator_pod =
      get_array(object(all, "Deployment", "gpu-operator"), {"spec", "template", "spec", "containers"}).at(0);
  EXPECT_EQ(get_string(operator_pod, {"image"}), ours);
  // Programs that are in no image of ours are NVIDIA's.
  for (const Json& entry : get_array(operator_pod, {"env"}))
    if (get_string(entry, {"name"}).ends_with("_IMAGE") &&
        !get_string(entry, {"value"}).starts_with("nvcr.io/")) {
      EXPECT_EQ(get_string(entry, {"value"}), ours);
    }
  const Json& worker = object(all, "DaemonSet", "gpu-operator-node-feature-discovery-worker");
  EXPECT_EQ(get_string(get_array(worker, {"spec", "template", "spec", "containers"}).at(0), {"image"}), ours);
}

TEST(operator_manifests, the_sample_policy_renders_our_roles) {
  Json sample = documents(fs::path(SOURCE_ROOT) / "deploy/samples/clusterpolicy.yaml").at(0);
  Result<policy::ClusterPolicy> policy = policy::parse_cluster_policy(sample);
  ASSERT_TRUE(policy) << policy.error().text();
  EXPECT_TRUE(policy->notes.empty());
  ClusterFacts facts;
  facts.operator_namespace = "gpu-operator";
  facts.own_image = std::string("ghcr.io/gpu-operator/gpu-operator:") + GPUOP_VERSION;
  facts.kubernetes_version = "v1.35.0";
  facts.gpu_nodes = {{"n", "ubuntu", "24.04", "6.8.0", ""}};
  Plan plan = render(*policy, facts, load_assets(fs::path(SOURCE_ROOT) / "assets").value());
  for (const State& state : plan.states) {
    EXPECT_FALSE(state.error) << state.error->text();
    for (const Json& object : state.objects)
      if (get_string(object, {"kind"}) == "DaemonSet") {
        EXPECT_FALSE(to_text(object).contains("sleep"));
      }
  }
}

TEST(operator_manifests, every_type_of_the_default_vgpu_configuration_has_a_configuration_of_its_name) {
  const fs::path file = fs::path(SOURCE_ROOT) / "assets/state-vgpu-device-manager/0400_configmap.yaml";
  const Json map = documents(file).at(0);
  const Json config = parse_yaml_one(get_string(map, {"data", "config.yaml"}), "config").value().value;
  const JsonObject& all = get_object(config, {"vgpu-configs"});
  EXPECT_GT(all.size(), 500u);
  std::set<std::string> boards;
  for (const auto& [name, entries] : all)
    for (const Json& entry : entries.as_array())
      for (const auto& [type, count] : get_object(entry, {"vgpu-devices"})) {
        EXPECT_TRUE(all.contains(type)) << type;
        EXPECT_GT(count.as_int64(), 0) << type;
        if (name == "default")
          boards.insert(str(get_string(entry, {"device-filter"})));
        else
          EXPECT_EQ(std::string_view(name), std::string_view(type));
      }
  EXPECT_GE(boards.size(), 50u);
}

TEST(operator_manifests, crds_are_complete_yaml) {
  fs::path dir = fs::path(SOURCE_ROOT) / "deploy/chart/crds";
  std::set<std::string> names;
  for (const std::string& file : files_of(dir))
    for (const Json& crd : documents(dir / file)) {
      EXPECT_EQ(get_string(crd, {"kind"}), "CustomResourceDefinition");
      names.insert(str(get_string(crd, {"metadata", "name"})));
    }
  for (const char* name : {"clusterpolicies.nvidia.com", "nodefeatures.nfd.k8s-sigs.io",
                           "nodefeaturerules.nfd.k8s-sigs.io", "nodefeaturegroups.nfd.k8s-sigs.io"})
    EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace gpuop::op
