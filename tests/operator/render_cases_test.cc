// Our rendering against what upstream's operator made of the same ten policies on a real API server.
#include <gtest/gtest.h>

#include "operator/driver_pools.h"
#include "operator/render.h"
#include "render_fixture.h"
#include "upstream_objects.h"

namespace gpuop::op {
namespace {

const Assets& assets() {
  static const Assets loaded = load_assets(fs::path(SOURCE_ROOT) / "assets").value();
  return loaded;
}

void add(Objects& to, const State& state) {
  ASSERT_FALSE(state.error) << state.name << ": " << state.error->text();
  for (const Json& object : state.objects) to[key_of(object)] = object;
}

// Of the NVIDIADriver that is the eighth policy's; answers its pool's name.
std::string add_driver(Objects& to) {
  policy::NvidiaDriver driver =
      policy::parse_nvidia_driver(case_object("08-driver-crd-nvidiadriver")).value();
  driver.uid = "00000000-0000-0000-0000-000000000001";
  std::vector<DriverNode> nodes;
  for (const char* name : {"plain-a", "plain-b"})
    nodes.push_back({name,
                     {{"nvidia.com/gpu.present", "true"},
                      {"feature.node.kubernetes.io/system-os_release.ID", "ubuntu"},
                      {"feature.node.kubernetes.io/system-os_release.VERSION_ID", "22.04"}}});
  std::vector<std::string> warnings;
  const auto pools = driver_pools(driver.spec, nodes, false, warnings);
  EXPECT_EQ(pools.size(), 1u);
  EXPECT_TRUE(warnings.empty());
  add(to, render_driver(driver, pools, facts_of_cases(), assets(), "/"));
  return pool_name(driver, pools.at(0));
}

TEST(operator_render, ten_policies_render_as_upstream_renders_them) {
  std::vector<Known> known = known_differences();
  for (const std::string name : kCases) {
    SCOPED_TRACE(name);
    const policy::ClusterPolicy policy = policy_of_case(name);
    Objects ours;
    for (const State& state : render(policy, facts_of_cases(), assets()).states) add(ours, state);
    const std::string pool = policy.spec.driver.use_nvidia_driver_crd ? add_driver(ours) : "";
    for (const auto& difference :
         unexpected(differences(upstream_objects(name, "objects", pool), ours), known))
      ADD_FAILURE() << difference;
  }
  for (const Known& k : known) EXPECT_TRUE(k.used) << "known difference that is none: " << k.prefix;
}

}  // namespace
}  // namespace gpuop::op
