// GPUCluster (operator.md §1.5).
#include "policy/gpu_cluster.h"

#include <gtest/gtest.h>

#include "base/yaml.h"
#include "policy/crds.h"

namespace gpuop::policy {
namespace {

Result<GpuCluster> parsed(const std::string& spec) {
  const Json object = JsonObject{{"metadata", JsonObject{{"name", "gpu-cluster"}}},
                                 {"spec", parse_yaml_one(spec, "spec").value().value}};
  return parse_gpu_cluster(object);
}

TEST(policy, a_gpu_cluster_has_the_defaults_of_its_declaration) {
  const auto cluster = parsed("{draDriver: {repository: r, image: dra, version: v1}}");
  ASSERT_TRUE(cluster) << cluster.error().text();
  EXPECT_TRUE(cluster->spec.dra_driver.compute_domains.enabled);
  EXPECT_TRUE(cluster->spec.dra_driver.gpus.kubelet_plugin.healthcheck.enabled);
  EXPECT_FALSE(cluster->spec.dcgm.enabled);
  EXPECT_TRUE(cluster->spec.dcgm_exporter.enabled);
  EXPECT_EQ(cluster->spec.host_paths.kubelet_root_dir, "/var/lib/kubelet");
  EXPECT_TRUE(cluster->notes.empty());
}

TEST(policy, a_gpu_cluster_is_checked_and_its_unknown_fields_are_named) {
  EXPECT_NE(parsed("{}").error().text().find("spec.draDriver"), std::string::npos);
  EXPECT_NE(parsed("{draDriver: {image: a/b}}").error().text().find("spec.draDriver.image"),
            std::string::npos);
  EXPECT_NE(parsed("{draDriver: {gpus: {kubeletPlugin: {healthcheck: {port: 70000}}}}}")
                .error()
                .text()
                .find("port"),
            std::string::npos);
  EXPECT_NE(parsed("{draDriver: {featureGates: {A: 'yes'}}}").error().text().find("featureGates"),
            std::string::npos);
  const auto gates = parsed("{draDriver: {featureGates: {A: true}}, rootFS: /}");
  ASSERT_TRUE(gates) << gates.error().text();
  EXPECT_TRUE(get_bool(gates->spec.dra_driver.feature_gates, {"A"}));
  ASSERT_EQ(gates->notes.size(), 1u);
  EXPECT_EQ(gates->notes[0].path, "spec.rootFS");
}

}  // namespace
}  // namespace gpuop::policy
