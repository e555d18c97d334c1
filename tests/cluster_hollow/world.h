// A small hollow fleet with the repository's own manifests.
#pragma once

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/log.h"
#include "base/version.h"
#include "base/yaml.h"
#include "cluster/hollow/fleet.h"
#include "fleet/manifests.h"
#include "kube/object.h"

namespace gpuop::cluster::test {

inline constexpr const char* kImage = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;

inline const op::Assets& assets() {
  static const op::Assets kAssets = *op::load_assets(fs::path(SOURCE_ROOT) / "assets");
  return kAssets;
}

// CRDs, the operator's manifests and the demo's policy.
inline const std::vector<Json>& install() {
  static const std::vector<Json> kObjects = [] {
    const fs::path root = SOURCE_ROOT;
    std::vector<Json> out;
    for (const char* part : {"deploy/crds", "deploy/manifests"}) {
      const auto objects = *fleet::load_manifests(root / part);
      out.insert(out.end(), objects.begin(), objects.end());
    }
    const auto documents = *parse_yaml(*read_file(root / "sim/fleets/demo-policy.yaml"), "demo-policy.yaml");
    for (const auto& document : documents) out.push_back(document.value);
    return out;
  }();
  return kObjects;
}

inline HollowFleetOptions options_of(std::string_view fleet, std::string_view faults = "") {
  log::setup("test", log::Level::kError);
  HollowFleetOptions out;
  auto parsed = parse_fleet(fleet, "fleet.yaml");
  EXPECT_TRUE(parsed) << parsed.error().text();
  if (parsed) out.fleet = std::move(*parsed);
  if (!faults.empty()) {
    auto plan = parse_faults(faults, "faults.yaml");
    EXPECT_TRUE(plan) << plan.error().text();
    if (plan) out.faults = std::move(*plan);
  }
  out.objects = install();
  out.image = kImage;
  out.profiles = fs::path(SOURCE_ROOT) / "sim/profiles";
  out.assets = &assets();
  return out;
}

inline constexpr const char* kThree = R"(
mode: hollow
nodes:
  - name: a100
    gpus: {model: A100-SXM4-80GB, count: 8}
    driver: preinstalled
    driverVersion: 580.95.05
    numa: 2
  - name: l4
    gpus: {model: L4, count: 2}
    driver: container
  - name: cpu
)";

}  // namespace gpuop::cluster::test
