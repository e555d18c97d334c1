// operands-driver-validator.md §8.3.
#include "hardware/vfio.h"

#include <gtest/gtest.h>

namespace gpuop::hardware {
namespace {

constexpr std::string_view kGrace = "pci:v000010DEd00002941sv000010DEsd000016C1bc03sc02i00\n";
constexpr std::string_view kHopper = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00";

TEST(operands_driver_validator, case28_variant_of_vfio) {
  const std::string_view aliases =
      "# Aliases\n"
      "alias pci:v000010DEd*sv*sd*bc03sc*i* nvidia\n"
      "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"
      "alias vfio_pci:v000010DEd00002941sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci\n"
      "alias vfio_pci:v000010DEd00002941sv*sd*bc*sc*i* second\n"
      "alias vfio_pci:v000010DE broken\n"
      "alias vfio_pci:v000015B3d*sv*sd*bc*sc*i* mlx5_vfio_pci\n";
  EXPECT_EQ(*best_vfio_driver(kGrace, aliases), "nvgrace_gpu_vfio_pci");
  EXPECT_EQ(*best_vfio_driver(kHopper, aliases), "vfio_pci");
  EXPECT_EQ(*best_vfio_driver(kHopper, ""), "vfio-pci");
  for (const char* bad : {"", "usb:v10DE", "pci:v000010DEd00002330"}) {
    const auto none = best_vfio_driver(bad, aliases);
    ASSERT_FALSE(none) << bad;
    EXPECT_TRUE(none.error().text().ends_with("not the modalias of a PCI function")) << none.error().text();
  }
}

TEST(hardware, modules_and_drivers_spell_their_name_either_way) {
  EXPECT_TRUE(same_driver("vfio_pci", "vfio-pci"));
  EXPECT_FALSE(same_driver("nvidia", "vfio-pci"));
  EXPECT_FALSE(same_driver("vfio-pci", "vfio-pci-core"));
}

}  // namespace
}  // namespace gpuop::hardware
