// What a simulated node's runtime itself costs a container: from the kubelet's call to a program that runs.
// The promise is 10 ms (runc needs about 145 ms).
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <optional>

#include "cluster/runtime/node_runtime.h"

namespace gpuop::cluster {
namespace {

// A node's folders on a tmpfs, in mounts of this program's own, with busybox for an image.
struct Bench {
  TempDir dir{"bench"};
  Loop loop;
  std::unique_ptr<NodeRuntime> runtime;

  std::string open() {
    if (::geteuid() != 0) return "containers need root";
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("node", dir.path().c_str(), "tmpfs", 0, nullptr) != 0) {
      return "mounts of its own: not allowed";
    }
    fs::create_directories(dir.path() / "image/bin");
    fs::copy_file("/bin/busybox", dir.path() / "image/bin/sleep");
    NodeRuntimeOptions options;
    options.engine.state_dir = dir.path() / "state";
    options.engine.run_dir = dir.path() / "run";
    options.engine.config = dir.path() / "config.toml";
    options.launcher = BUILD_ROOT "/bin/gpuop-runc";
    options.images.rows = {{.reference = "bench/busybox:1", .layers = {(dir.path() / "image").string()}}};
    auto made = NodeRuntime::create(loop, options);
    if (!made) return made.error().text();
    runtime = std::move(*made);
    runtime->run_sandbox({.uid = "pod", .ns = "bench", .name = "pod", .hostname = "pod"}, [](Result<>) {});
    return {};
  }
  ~Bench() {
    runtime.reset();
    ::umount2(dir.path().c_str(), MNT_DETACH);
  }
};

void container_start(benchmark::State& state) {
  Bench bench;
  if (std::string why = bench.open(); !why.empty()) {
    state.SkipWithError(why.c_str());
    return;
  }
  ContainerSpec spec;
  spec.pod_uid = "pod";
  spec.name = "c";
  spec.image = "bench/busybox:1";
  spec.command = {"/bin/sleep", "1000"};
  spec.log_path = bench.dir.path() / "log";
  for (auto _ : state) {
    std::optional<Result<std::string>> id;
    bench.runtime->start_container(spec, [&](Result<std::string> result) { id = std::move(result); });
    bench.loop.run_until([&] { return id.has_value(); }, 10s);
    state.PauseTiming();
    if (!id || !*id) {
      state.SkipWithError(id ? id->error().text().c_str() : "no answer");
      break;
    }
    bool gone = false;
    bench.runtime->remove_container(**id, [&](Result<>) { gone = true; });
    bench.loop.run_until([&] { return gone; }, 10s);
    ++spec.attempt;
    state.ResumeTiming();
  }
}
BENCHMARK(container_start)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace gpuop::cluster
