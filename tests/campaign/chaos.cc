// Chaos: 1,000 runs of a hollow fleet of three nodes, each under its own faults, end in the same objects as a
// run without any; and one of them, run again, writes the same event log.
//
//   chaos [--slice] [--runs N] [--seed N]     --seed: that run alone, with its plan and where it differs
#include <chrono>
#include <cstring>

#include "cluster_hollow/runs.h"

int main(int argc, char** argv) {
  using namespace gpuop::cluster;
  std::uint64_t from = 1, to = 1000;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--slice") {
      to = 20;
    } else if (word == "--runs" && i + 1 < argc) {
      to = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seed" && i + 1 < argc) {
      from = to = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "chaos: unknown argument '%s'; there are --slice, --runs N and --seed N\n",
                   word.c_str());
      return 2;
    }
  }
  if (runs::calm().empty()) return 2;
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t bad = 0;
  for (std::uint64_t seed = from; seed <= to; ++seed) {
    const std::string why = runs::chaos(seed);
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
  const std::uint64_t count = to - from + 1;
  std::printf(
      "chaos: %llu runs in %.1f s (%.0f ms each), %llu ended differently; replayed byte for byte: %s\n",
      static_cast<unsigned long long>(count), seconds, seconds * 1000 / static_cast<double>(count),
      static_cast<unsigned long long>(bad), replays ? "yes" : "no");
  return bad == 0 && replays ? 0 : 1;
}
