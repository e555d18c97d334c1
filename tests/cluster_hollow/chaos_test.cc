// Chaos: whatever goes wrong for a while, a fleet ends with the same objects as one where nothing did.
//
// GPUOP_CHAOS=FROM-TO runs those seeds (the campaign); a slice of them runs by default.
#include <algorithm>
#include <cstdlib>

#include "base/process.h"
#include "base/text.h"
#include "cluster/faults/chaos.h"
#include "world.h"

namespace gpuop::cluster::test {
namespace {

const std::vector<ChaosNode> kNodes{{"a100", 8}, {"l4", 2}, {"cpu", 0}};

std::string fleet_of(std::uint64_t seed) {
  // Half of the fleets have a control plane that lists before it watches.
  return std::string(seed % 2 == 0 ? "kubernetes: v1.33.0\n" : "") + kThree;
}

struct Outcome {
  bool stable = false;
  std::string objects, events, broken;
};

Outcome run(std::uint64_t seed, const FaultPlan& plan, bool keep_events = false) {
  HollowFleetOptions options = options_of(fleet_of(seed));
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

const std::string& calm() {
  static const std::string kObjects = run(1, {}).objects;
  return kObjects;
}

// The lines of one text that the other has not.
std::string difference(const std::string& expected, const std::string& got) {
  const auto a = split(expected, '\n'), b = split(got, '\n');
  std::string out;
  for (const auto& line : a) {
    if (std::ranges::find(b, line) == b.end()) out += "- " + line + "\n";
  }
  for (const auto& line : b) {
    if (std::ranges::find(a, line) == a.end()) out += "+ " + line + "\n";
  }
  return out;
}

std::pair<std::uint64_t, std::uint64_t> seeds() {
  const std::string given = env_or("GPUOP_CHAOS");
  const auto dash = given.find('-');
  const auto from = parse_int(given.substr(0, dash));
  const auto to = dash == std::string::npos ? from : parse_int(given.substr(dash + 1));
  if (!from || !to) return {1, 12};
  return {static_cast<std::uint64_t>(*from), static_cast<std::uint64_t>(*to)};
}

TEST(cluster_hollow, chaos_ends_like_calm) {
  ASSERT_FALSE(calm().empty());
  const auto [from, to] = seeds();
  int bad = 0;
  for (std::uint64_t seed = from; seed <= to; ++seed) {
    const FaultPlan plan = chaos_plan(seed, kNodes);
    const Outcome outcome = run(seed, plan);
    if (outcome.stable && outcome.objects == calm()) continue;
    ++bad;
    ADD_FAILURE() << "seed " << seed << (outcome.stable ? "" : ": not stable: " + outcome.broken) << "\n"
                  << difference(calm(), outcome.objects) << faults_text(plan);
  }
  EXPECT_EQ(bad, 0) << "of " << to - from + 1;
}

TEST(cluster_hollow, a_run_replays_byte_for_byte) {
  const FaultPlan plan = chaos_plan(7, kNodes);
  const Outcome first = run(7, plan, true), second = run(7, plan, true);
  ASSERT_GT(first.events.size(), 10000u);
  EXPECT_NE(first.events.find("FAULT"), std::string::npos);
  EXPECT_TRUE(first.events == second.events);
  EXPECT_TRUE(first.events != run(8, plan, true).events) << "the seed counts";
}

TEST(cluster_hollow, plans_survive_their_text) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const FaultPlan plan = chaos_plan(seed, kNodes);
    const std::string text = faults_text(plan);
    const auto read = parse_faults(text, "plan.yaml");
    ASSERT_TRUE(read) << read.error().text() << "\n" << text;
    EXPECT_EQ(faults_text(*read), text);
  }
}

}  // namespace
}  // namespace gpuop::cluster::test
