// Chaos: 1,000 runs of a hollow fleet of three nodes, each under its own faults, and 200 under storms that
// all hit the operator, end in the same objects as a run without any; and one of them, run again, writes the
// same event log.
//
//   chaos [--slice] [--runs N] [--storms N] [--seed N] [--storm N]
//       --seed, --storm: that run alone, with its plan and where it differs
#include <array>
#include <chrono>
#include <cstring>
#include <random>

#include "cluster_hollow/runs.h"

namespace gpuop::cluster {
namespace {

// What an operator meets at its worst: throttled and failing requests, a conflict at every fifth write,
// watches that end, 410 for whatever it asks from a version on, and restarts on lists that are a minute old;
// on top of what the seed's own plan does to everybody.
class Storm {
 public:
  explicit Storm(std::uint64_t seed)
      : random_(seed * 2654435761u + 17), plan_(chaos_plan(seed, runs::chaos_nodes())) {}

  FaultPlan make() {
    hit("throttled", ApiFault::kThrottle, {}).retry_after = std::chrono::seconds(1 + pick(5));
    hit("failing", ApiFault::kError, {}).status =
        std::array{500, 503, 504}.at(static_cast<std::size_t>(pick(3)));
    hit("answers lost", ApiFault::kLostAnswer, {"create", "update", "patch", "delete"});
    hit("watches cut", ApiFault::kCutWatch, {"watch"}).probability = 1;
    hit("410", ApiFault::kExpired, {"list", "watch"}).probability = 1;
    for (int nth = 5; nth <= 300; nth += 5) {
      Fault& conflict = add("conflict " + std::to_string(nth), ApiFault::kConflict, {"update", "patch"});
      conflict.nth = nth;
      conflict.times = 1;
    }
    for (int i = 0; i < 2; ++i) restart();
    return std::move(plan_);
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  Fault& add(const std::string& name, ApiFault what, std::vector<std::string> verbs) {
    Fault& fault = plan_.faults.emplace_back();
    fault.name = "storm: " + name;
    fault.api = what;
    fault.where.component = "gpu-operator";
    fault.where.verbs = std::move(verbs);
    return fault;
  }
  Fault& hit(const std::string& name, ApiFault what, std::vector<std::string> verbs) {
    Fault& fault = add(name, what, std::move(verbs));
    fault.at = std::chrono::milliseconds(pick(90000));
    fault.span = std::chrono::milliseconds(2000 + pick(30000));
    fault.probability = std::array{0.8, 0.4, 0.2}.at(static_cast<std::size_t>(pick(3)));
    return fault;
  }
  void restart() {
    const Duration at = std::chrono::milliseconds(1000 + pick(120000));
    Fault& stale = add("old lists", ApiFault::kStaleList, {"list"});
    stale.at = at;
    stale.span = 20s;
    stale.behind = std::chrono::seconds(5 + pick(55));
    Fault crash;
    crash.name = "storm: restart";
    crash.at = at;
    crash.event = NodeFault::kContainerCrash;
    crash.node = "*";
    crash.container = "gpu-operator";
    plan_.faults.push_back(std::move(crash));
  }

  std::mt19937_64 random_;
  FaultPlan plan_;
};

// Empty when the run ends as it should.
std::string ends_like_calm(const char* what, std::uint64_t seed, const FaultPlan& plan) {
  const runs::Outcome outcome = runs::run(seed, plan);
  if (outcome.stable && outcome.objects == runs::calm()) return {};
  return std::string(what) + " " + std::to_string(seed) +
         (outcome.stable ? "" : ": not stable: " + outcome.broken) + "\n" +
         runs::difference(runs::calm(), outcome.objects) + faults_text(plan);
}

}  // namespace
}  // namespace gpuop::cluster

int main(int argc, char** argv) {
  using namespace gpuop::cluster;
  std::uint64_t from = 1, to = 1000, first_storm = 1, last_storm = 200;
  std::vector<std::uint64_t> seeds, storms;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--slice") {
      to = 20;
      last_storm = 2;
      seeds = {368, 562, 730};  // each found a fault once, as these did
      storms = {74, 103, 119};
    } else if (word == "--runs" && i + 1 < argc) {
      to = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seed" && i + 1 < argc) {
      from = to = std::strtoull(argv[++i], nullptr, 10);
      last_storm = 0;
    } else if (word == "--storms" && i + 1 < argc) {
      last_storm = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--storm" && i + 1 < argc) {
      first_storm = last_storm = std::strtoull(argv[++i], nullptr, 10);
      to = 0;
    } else {
      std::fprintf(
          stderr,
          "chaos: unknown argument '%s'; there are --slice, --runs N, --storms N, --seed N and --storm N\n",
          word.c_str());
      return 2;
    }
  }
  if (runs::calm().empty()) return 2;
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t bad = 0;
  for (std::uint64_t seed = from; seed <= to; ++seed) seeds.push_back(seed);
  for (const std::uint64_t seed : seeds) {
    const std::string why = runs::chaos(seed);
    if (why.empty()) continue;
    ++bad;
    std::fprintf(stderr, "%s\n", why.c_str());
  }
  for (std::uint64_t seed = first_storm; seed <= last_storm; ++seed) storms.push_back(seed);
  for (const std::uint64_t seed : storms) {
    const std::string why = ends_like_calm("storm", seed, Storm(seed).make());
    if (why.empty()) continue;
    ++bad;
    std::fprintf(stderr, "%s\n", why.c_str());
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const FaultPlan plan = chaos_plan(from, runs::chaos_nodes());
  const std::string events = runs::run(from, plan, true).events;
  const bool replays = !events.empty() && events == runs::run(from, plan, true).events;
  if (!replays)
    std::fprintf(stderr, "seed %llu: run again, it went another way\n",
                 static_cast<unsigned long long>(from));
  const std::uint64_t count = seeds.size() + storms.size();
  std::printf(
      "chaos: %llu runs (%llu of them storms on the operator) in %.1f s (%.0f ms each), %llu ended "
      "differently; replayed byte for byte: %s\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(storms.size()), seconds,
      seconds * 1000 / static_cast<double>(count), static_cast<unsigned long long>(bad),
      replays ? "yes" : "no");
  return bad == 0 && replays ? 0 : 1;
}
