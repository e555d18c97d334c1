// The promise: nvidia-container-runtime adds at most 2 ms to a container's start. The real program on a
// bundle whose container asks for every GPU, with a management CDI spec as a node with 8 GPUs has it; what it
// becomes is `true`.
#include <benchmark/benchmark.h>

#include "base/files.h"
#include "base/process.h"
#include "cdi/spec.h"

namespace {

using namespace gpuop;

cdi::Spec management_spec() {
  cdi::Spec spec{"", "management.nvidia.com/gpu", {}, {{"all", {}, {}}}, {}};
  for (int i = 0; i < 12; ++i) {
    spec.devices[0].edits.device_nodes.push_back(
        {"/dev/gpuop-bench" + std::to_string(i), "", "c", 195, i, 0666, "rwm", {}, {}});
  }
  spec.edits.env = {"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu"};
  for (int i = 0; i < 60; ++i) {
    std::string path = "/usr/lib/x86_64-linux-gnu/libnvidia-" + std::to_string(i) + ".so.580.95.05";
    spec.edits.mounts.push_back({path, path, {"ro", "nosuid", "nodev", "rbind", "rprivate"}, ""});
  }
  for (auto hook : {"create-symlinks", "enable-cuda-compat", "update-ldcache"}) {
    spec.edits.hooks.push_back({"createContainer",
                                "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
                                {"nvidia-cdi-hook", hook},
                                {"NVIDIA_CTK_DEBUG=false"},
                                {}});
  }
  return spec;
}

struct Bundle {
  TempDir dir{"bench"};
  fs::path root = file_exists("/dev/shm") ? fs::path("/dev/shm") / dir.path().filename() : dir.path();
  Bundle() {
    fs::create_directories(root / "rootfs");
    auto saved = cdi::save_spec(management_spec(), root / "cdi/management.nvidia.com-gpu.yaml");
    auto config = write_file_atomic(root / "config.toml",
                                    "[nvidia-container-runtime]\nmode = \"cdi\"\nruntimes = [\"/bin/true\"]\n"
                                    "[nvidia-container-runtime.modes.cdi]\nspec-dirs = [\"" +
                                        (root / "cdi").string() +
                                        "\"]\ndefault-kind = \"management.nvidia.com/gpu\"\n");
    if (!saved || !config) std::abort();
  }
  ~Bundle() { fs::remove_all(root); }
  void reset() const {
    auto written = write_file_atomic(
        root / "config.json",
        R"({"ociVersion":"1.2.0","process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]},"root":{"path":"rootfs"}})");
    if (!written) std::abort();
  }
};

void run(benchmark::State& state, const std::vector<std::string>& argv) {
  Bundle bundle;
  Command command{
      .argv = argv,
      .env = {"PATH=/bin", "NVIDIA_CTK_CONFIG_FILE_PATH=" + (bundle.root / "config.toml").string()}};
  if (argv.size() > 1) command.argv.insert(command.argv.end(), {"--bundle", bundle.root.string(), "x"});
  for (auto _ : state) {
    state.PauseTiming();
    bundle.reset();
    state.ResumeTiming();
    auto ended = run_command(command, 10s);
    if (!ended || !ended->ok()) {
      state.SkipWithError(ended ? ended->err.c_str() : ended.error().text().c_str());
      return;
    }
  }
}

void low_level_runtime_alone(benchmark::State& state) {
  run(state, {"/bin/true"});
}
BENCHMARK(low_level_runtime_alone)->Unit(benchmark::kMillisecond)->UseRealTime();

void runtime_shim_create(benchmark::State& state) {
  run(state, {BUILD_ROOT "/bin/nvidia-container-runtime", "create"});
}
BENCHMARK(runtime_shim_create)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
