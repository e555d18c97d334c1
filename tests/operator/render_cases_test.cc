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
#include "upstream_objects.h"

namespace gpuop::op {
namespace {

TEST(operator_render, ten_policies_render_as_upstream_renders_them) {
  Assets assets = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  std::vector<Known> known = known_differences();
  for (const std::string name : kCases) {
    SCOPED_TRACE(name);
    policy::ClusterPolicy policy = policy_of_case(name);
    Plan plan = render(policy, facts_of_cases(), assets);
    Objects ours;
    for (const State& state : plan.states) {
      ASSERT_FALSE(state.error) << state.name << ": " << state.error->text();
      for (const Json& object : state.objects) ours[key_of(object)] = object;
    }
    for (const std::string& difference : unexpected(differences(upstream_objects(name), ours), known))
      ADD_FAILURE() << difference;
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
  for (const Json& each : state.objects) ours[key_of(each)] = each;

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
