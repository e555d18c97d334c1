// Runs of a small hollow fleet with the repository's own manifests: for tests, the campaign and the
// benchmark.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "base/yaml.h"
#include "cluster/faults/chaos.h"
#include "cluster/hollow/fleet.h"
#include "fleet/manifests.h"
#include "kube/object.h"

namespace gpuop::cluster::runs {

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
    for (const char* part : {"deploy/chart/crds", "deploy/manifests"}) {
      const auto objects = *fleet::load_manifests(root / part);
      out.insert(out.end(), objects.begin(), objects.end());
    }
    const auto documents = *parse_yaml(*read_file(root / "sim/fleets/demo-policy.yaml"), "demo-policy.yaml");
    for (const auto& document : documents) out.push_back(document.value);
    return out;
  }();
  return kObjects;
}

inline HollowFleetOptions options_of(std::string_view fleet) {
  log::setup("hollow", log::Level::kError);
  auto parsed = parse_fleet(fleet, "fleet.yaml");
  if (!parsed) {
    std::fprintf(stderr, "%s\n", parsed.error().text().c_str());
    std::abort();
  }
  HollowFleetOptions out;
  out.fleet = std::move(*parsed);
  out.objects = install();
  out.image = kImage;
  out.profiles = fs::path(SOURCE_ROOT) / "sim/profiles";
  out.assets = &assets();
  return out;
}

// A node with a driver of its own, one with a driver container, one without GPUs.
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
inline const std::vector<ChaosNode>& chaos_nodes() {
  static const std::vector<ChaosNode> kNodes{{"a100", 8}, {"l4", 2}, {"cpu", 0}};
  return kNodes;
}

struct Outcome {
  bool stable = false;
  std::string objects, events, broken;
};

// Half of the fleets have a control plane that lists before it watches.
inline Outcome run(std::uint64_t seed, const FaultPlan& plan, bool keep_events = false) {
  HollowFleetOptions options = options_of(std::string(seed % 2 == 0 ? "kubernetes: v1.33.0\n" : "") + kThree);
  options.faults = plan;
  options.seed = seed;
  if (!keep_events) options.events = [](std::string_view) {};
  Outcome out;
  auto fleet = HollowFleet::create(std::move(options));
  if (!fleet) {
    out.broken = fleet.error().text();
    return out;
  }
  out.stable = (*fleet)->loop().run_until([&] { return (*fleet)->stable(); }, 3h);
  out.broken = (*fleet)->first_broken_link();
  out.objects = (*fleet)->normalised();
  out.events = (*fleet)->events().text();
  return out;
}

// How a run without faults ends.
inline const std::string& calm() {
  static const std::string kObjects = run(1, {}).objects;
  return kObjects;
}

// Where two texts first differ, line by line of those that the other has not.
inline std::string difference(const std::string& expected, const std::string& got) {
  std::vector<std::string> gone, come;
  const auto a = split(expected, '\n'), b = split(got, '\n');
  std::ranges::copy_if(a, std::back_inserter(gone),
                       [&](const auto& line) { return std::ranges::find(b, line) == b.end(); });
  std::ranges::copy_if(b, std::back_inserter(come),
                       [&](const auto& line) { return std::ranges::find(a, line) == a.end(); });
  std::string out;
  for (std::size_t i = 0; i < std::max(gone.size(), come.size()); ++i) {
    const std::string left = i < gone.size() ? gone[i] : "", right = i < come.size() ? come[i] : "";
    std::size_t at = 0;
    while (at < left.size() && at < right.size() && left[at] == right[at]) ++at;
    const std::size_t from = at < 120 ? 0 : at - 120;
    const std::string& whose = left.empty() ? right : left;
    out += whose.substr(0, 90) + "…\n  - …" + (from < left.size() ? left.substr(from, 300) : "") + "\n  + …" +
           (from < right.size() ? right.substr(from, 300) : "") + "\n";
  }
  return out;
}

// Empty when the run with that seed's plan ends like one without faults; else why not, and the plan.
inline std::string chaos(std::uint64_t seed) {
  const FaultPlan plan = chaos_plan(seed, chaos_nodes());
  const Outcome outcome = run(seed, plan);
  if (outcome.stable && outcome.objects == calm()) return {};
  return "seed " + std::to_string(seed) + (outcome.stable ? "" : ": not stable: " + outcome.broken) + "\n" +
         difference(calm(), outcome.objects) + faults_text(plan);
}

}  // namespace gpuop::cluster::runs
