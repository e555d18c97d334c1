#include "policy/nvidia_driver.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/yaml.h"
#include "policy/crds.h"

namespace gpuop::policy {
namespace {

Result<NvidiaDriver> parse(const std::string& spec) {
  Json object = parse_yaml_one("metadata: {name: d}\nspec: " + spec, "test").value().value;
  return parse_nvidia_driver(object);
}

TEST(policy, nvidia_driver_of_the_upstream_chart_is_taken_as_it_is) {
  fs::path path = fs::path(TEST_DATA) / "data/08-driver-crd-nvidiadriver.yaml";
  Json object = parse_yaml_one(read_file(path).value(), path.string()).value().value;
  Result<NvidiaDriver> driver = parse_nvidia_driver(object);
  ASSERT_TRUE(driver) << driver.error().text();
  EXPECT_TRUE(driver->notes.empty());
  EXPECT_TRUE(driver->spec.is_default);
  EXPECT_EQ(driver->spec.upgrade_policy.max_parallel_upgrades, 4);
  EXPECT_TRUE(driver->spec.upgrade_policy.drain.enable);
  EXPECT_TRUE(driver->spec.licensing_config.nls_enabled);
}

TEST(policy, nvidia_driver_defaults) {
  NvidiaDriver driver = parse("{}").value();
  EXPECT_EQ(driver.spec.image, "nvcr.io/nvidia/driver");
  EXPECT_EQ(driver.spec.driver_type, "gpu");
  EXPECT_TRUE(driver.spec.upgrade_policy.auto_upgrade);
}

TEST(policy, nvidia_driver_case33_default_with_a_selector_is_refused) {
  Result<NvidiaDriver> driver = parse("{default: true, nodeSelector: {a: b}}");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().text(),
            "load NVIDIADriver 'd': spec.nodeSelector: default NVIDIADriver must not use nodeSelector");
  Json crd = crds().at(1);
  const Json& spec =
      *find(get_array(crd, {"spec", "versions"}).at(0), {"schema", "openAPIV3Schema", "properties", "spec"});
  EXPECT_EQ(get_array(spec, {"x-kubernetes-validations"}).size(), 1u);
  EXPECT_EQ(
      get_string(get_array(spec, {"properties", "driverType", "x-kubernetes-validations"}).at(0), {"rule"}),
      "self == oldSelf");
  EXPECT_EQ(get_array(crd, {"spec", "names", "shortNames"}).size(), 3u);
}

}  // namespace
}  // namespace gpuop::policy
