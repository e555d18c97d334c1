// 500 crashes of the store over files that lose what was not synced: nothing answered or shown is lost
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "cluster_apiserver/crash_run.h"

int main(int argc, char** argv) {
  using namespace gpuop;
  int want = 500;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--slice") == 0) want = 100;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = std::strtoull(argv[++i], nullptr, 10);
    if (std::strcmp(argv[i], "--crashes") == 0 && i + 1 < argc) want = std::atoi(argv[++i]);
  }
  log::setup("store-crash", log::Level::kError);
  int crashes = 0, faults = 0, acknowledged = 0, shown = 0, resumed = 0;
  for (; crashes < want; ++seed) {
    cluster::CrashRun run(seed);
    for (int life = 0; life < 10; ++life) {
      if (std::string bad = run.live(); !bad.empty()) {
        std::printf("seed %llu, crash %d: %s\n", static_cast<unsigned long long>(seed), run.crashes,
                    bad.c_str());
        return 1;
      }
    }
    crashes += run.crashes;
    faults += run.faults;
    acknowledged += run.acknowledged;
    shown += run.shown;
    resumed += run.resumed;
  }
  std::printf(
      "%d crashes, %d disk faults: %d writes answered, %d events shown, none lost; %d watches went on after "
      "a crash\n",
      crashes, faults, acknowledged, shown, resumed);
  return 0;
}
