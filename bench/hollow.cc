// Hollow fleets: 5,000 nodes with 12 DaemonSets until all 60,000 pods are Ready (goal ≤ 90 s and ≤ 1.5 GiB,
// all of the cluster in one thread); a chaos run of three nodes (goal ≤ 600 ms each: 1,000 in ten minutes);
// and what the operator asks of the API server.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "cluster_hollow/runs.h"
#include "kube/informer.h"

namespace gpuop::cluster {
namespace {

using Figures = std::array<double, 4>;

// Runs `work` in a process of its own, whose memory is then nobody else's; its peak in MiB comes with it.
double in_child(const std::function<Figures()>& work, Figures& figures) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const Figures made = work();
    if (::write(ends[1], made.data(), sizeof made) != static_cast<ssize_t>(sizeof made)) ::_exit(1);
    ::_exit(0);
  }
  ::close(ends[1]);
  const bool whole = ::read(ends[0], figures.data(), sizeof figures) == static_cast<ssize_t>(sizeof figures);
  ::close(ends[0]);
  rusage usage{};
  int status = 0;
  ::wait4(child, &status, 0, &usage);
  return whole && status == 0 ? static_cast<double>(usage.ru_maxrss) / 1024 : -1;
}

Json daemon_set(int number) {
  const std::string name = "load-" + std::to_string(number);
  const JsonObject labels{{"app", name}};
  JsonObject container{
      {"name", "c"},
      {"image", runs::kImage},
      {"command", JsonArray{"gpu-node", "pause"}},
      {"resources", JsonObject{{"requests", JsonObject{{"cpu", "10m"}, {"memory", "16Mi"}}}}}};
  JsonObject spec{{"containers", JsonArray{std::move(container)}}};
  JsonObject pod{{"metadata", JsonObject{{"labels", labels}}}, {"spec", std::move(spec)}};
  return JsonObject{
      {"apiVersion", "apps/v1"},
      {"kind", "DaemonSet"},
      {"metadata", JsonObject{{"name", name}, {"namespace", "default"}}},
      {"spec", JsonObject{{"selector", JsonObject{{"matchLabels", labels}}}, {"template", std::move(pod)}}}};
}

Figures scale(int nodes, int sets) {
  HollowFleetOptions options =
      runs::options_of("mode: light\nnodes: [{name: n, count: " + std::to_string(nodes) + ", cpus: 64}]\n");
  options.objects.clear();
  for (int i = 0; i < sets; ++i) options.objects.push_back(daemon_set(i));
  options.events = [](std::string_view) {};
  options.log_reads = false;
  auto fleet = HollowFleet::create(std::move(options));
  if (!fleet) return {};
  kube::InformerOptions keep;
  keep.ns = "default";
  keep.keep = {"status"};
  kube::Informer watch((*fleet)->client(), kube::kDaemonSets, keep);
  std::int64_t available = 0;
  watch.on_change([&](const auto&, const auto&) {
    available = 0;
    watch.for_each([&](const auto& set) { available += get_int(*set, {"status", "numberAvailable"}); });
  });
  watch.start();
  (*fleet)->loop().run_until([&] { return available == static_cast<std::int64_t>(nodes) * sets; }, 30min);
  return {static_cast<double>(available), static_cast<double>((*fleet)->requests()),
          std::chrono::duration<double>((*fleet)->events().elapsed()).count(), 0};
}

void all_pods_ready(benchmark::State& state) {
  const int nodes = static_cast<int>(state.range(0)), sets = 12;
  for (auto _ : state) {
    Figures figures{};
    const double mib = in_child([&] { return scale(nodes, sets); }, figures);
    if (mib < 0 || figures[0] < nodes * sets) {
      state.SkipWithError("not every pod turned Ready");
      return;
    }
    state.counters["pods"] = figures[0];
    state.counters["peak_MiB"] = mib;
    state.counters["requests"] = figures[1];
    state.counters["clock_s"] = figures[2];
  }
}
BENCHMARK(all_pods_ready)->Arg(500)->Arg(5000)->Iterations(1)->Unit(benchmark::kSecond);

void chaos_run(benchmark::State& state) {
  std::uint64_t seed = 1, bad = 0;
  runs::calm();
  for (auto _ : state) bad += runs::chaos(seed++).empty() ? 0 : 1;
  state.counters["ended_differently"] = static_cast<double>(bad);
}
BENCHMARK(chaos_run)->Iterations(20)->Unit(benchmark::kMillisecond);

// Requests of the operator: until ten nodes are ready for the first time, and for one label of one node.
void operator_requests(benchmark::State& state) {
  for (auto _ : state) {
    HollowFleetOptions options =
        runs::options_of("mode: light\nnodes: [{name: n, count: 10, gpus: {model: H200, count: 8}}]\n");
    options.events = [](std::string_view) {};
    auto fleet = HollowFleet::create(std::move(options));
    if (!fleet || !(*fleet)->loop().run_until([&] { return (*fleet)->ready(); }, 30min)) {
      state.SkipWithError("not ready");
      return;
    }
    state.counters["first_install"] = static_cast<double>((*fleet)->requests_of("gpu-operator"));
    (*fleet)->loop().run_until([&] { return (*fleet)->stable(); }, 30min);
    const auto before = (*fleet)->requests_of("gpu-operator");
    const Json patch = *parse_json(R"({"metadata":{"labels":{"nvidia.com/gpu.deploy.operands":"false"}}})");
    (*fleet)
        ->client()
        .patch(kube::kNodes, "", "n-3", kube::Patch::kMerge, patch, {}, [](const auto&) {})
        .detach();
    (*fleet)->loop().run_for(1s);
    state.counters["one_label"] = static_cast<double>((*fleet)->requests_of("gpu-operator") - before);
  }
}
BENCHMARK(operator_requests)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gpuop::cluster
