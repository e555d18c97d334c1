// The operator program at 5,000 GPU nodes (or as many as the argument says): node label patches a second of
// its first convergence (goal ≥ 200), requests of a first install, resident memory (goal ≤ 64 MiB), what it
// asks for while nothing happens (goal: its lease), for one event of a node (goal ≤ 3) and when it starts
// again. Control plane and nodes share this process; the operator has its own.
#include <cstdio>

#include "cluster_hollow/operator_load.h"

namespace gpuop::cluster::runs {
namespace {

constexpr Duration kQuiet = 6s;

void line(const char* what, const std::string& value, const char* goal = "") {
  std::printf("  %-58s %s%s%s%s\n", what, value.c_str(), *goal != '\0' ? "   (goal " : "", goal,
              *goal != '\0' ? ")" : "");
  std::fflush(stdout);
}
std::string number(double value, const char* unit, int digits = 1) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, unit);
  return text;
}

int failed(const std::string& what) {
  std::printf("  FAILED: %s\n", what.c_str());
  return 1;
}

void memory(OperatorLoad& load, const char* peak, const char* steady) {
  const auto figures = load.figures();
  line(peak, number(figures.peak_mib, "MiB"), "≤ 64 MiB");
  line(steady,
       number(figures.resident_mib, "MiB") + " (" + number(figures.anonymous_mib, "MiB anonymous") + ")",
       "≤ 64 MiB");
}

bool first_install(OperatorLoad& load, std::size_t nodes) {
  const auto patches = [&load] { return sum(load.requests(), "patch nodes"); };
  double began = 0;
  load.loop().run_until([&] { return patches() > 0; }, 2min);
  began = load.seconds();
  if (!load.loop().run_until([&] { return load.labelled() == nodes; }, 10min)) return false;
  const double labelled = load.seconds();
  const double cpu = load.figures().cpu_s;
  line("start to the first label", number(began, "s", 2));
  line("every node labelled, control plane and operator alone", number(labelled - began, "s") + ", " +
                                                                    std::to_string(patches()) + " patches, " +
                                                                    number(cpu, "s of CPU"));
  line("node label patches a second",
       number(static_cast<double>(patches()) / std::max(0.001, labelled - began), "", 0), "≥ 200");
  load.start_controllers();
  if (!load.loop().run_until([&] { return load.settled(kQuiet); }, 15min)) return false;
  line("every pod ready, the policy too, nothing more to do, after",
       number(load.seconds() - std::chrono::duration<double>(kQuiet).count(), "s") + ", " +
           number(load.figures().cpu_s, "s of CPU"));
  const InstallCost cost = install_cost(load.requests());
  line("requests", text_of(load.requests()));
  line("requests beside nodes', leases' and one an object",
       std::to_string(cost.more) + " for " + std::to_string(cost.objects) + " objects", "≤ 30");
  memory(load, "memory, peak of the first install", "memory then");
  return true;
}

void event(OperatorLoad& load, const char* what, std::string_view patch) {
  const Requests before = load.requests();
  const double cpu = load.figures().cpu_s;
  load.patch_node("n-1", patch);
  load.loop().run_for(8s);
  Requests made = minus(load.requests(), before);
  std::erase_if(made, [](const auto& entry) { return entry.first.ends_with(" leases"); });
  line(what,
       std::to_string(sum(made)) + ": " + text_of(made) + "; " +
           number(1000 * (load.figures().cpu_s - cpu), "ms of CPU", 0),
       "≤ 3");
}

int bench(int nodes, const std::string& kubernetes) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("the operator program, %d GPU nodes, Kubernetes %s\n", nodes, kubernetes.c_str());
  auto load = OperatorLoad::create(nodes, kubernetes, 10min);
  if (!load) return failed(load.error().text());
  if (auto started = (*load)->start(); !started) return failed(started.error().text());
  const auto count = static_cast<std::size_t>(nodes);
  if (!first_install(**load, count))
    return failed("policy " + (*load)->policy_state() + ", " + std::to_string((*load)->labelled()) +
                  " nodes labelled, " + text_of((*load)->requests()));

  const Requests before = (*load)->requests();
  const double cpu = (*load)->figures().cpu_s;
  (*load)->loop().run_for(20s);
  line("20 quiet seconds",
       text_of(minus((*load)->requests(), before)) + "; " +
           number(1000 * ((*load)->figures().cpu_s - cpu), "ms of CPU", 0),
       "its lease alone");
  event(**load, "an operand switched off on one node",
        R"({"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm-exporter":"false"}}})");
  event(**load, "and on again", R"({"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm-exporter":null}}})");
  event(**load, "a label of somebody else", R"({"metadata":{"labels":{"example.com/rack":"7"}}})");
  event(**load, "a node cordoned", R"({"spec":{"unschedulable":true}})");

  (*load)->stop();
  const Requests stopped = (*load)->requests();
  if (auto started = (*load)->start(); !started) return failed(started.error().text());
  (*load)->loop().run_until([&] { return sum(minus((*load)->requests(), stopped), "update leases") > 0; },
                            2min);
  (*load)->loop().run_until([&] { return (*load)->settled(kQuiet); }, 5min);
  line("started again, requests", text_of(minus((*load)->requests(), stopped)));
  line("started again, CPU", number((*load)->figures().cpu_s, "s", 2));
  memory(**load, "memory, peak of the second start", "memory then");
  return 0;
}

}  // namespace
}  // namespace gpuop::cluster::runs

int main(int argc, char** argv) {
  using namespace gpuop;
  const auto given = argc > 1 ? parse_int(argv[1]) : std::nullopt;
  const std::string kubernetes = argc > 2 ? argv[2] : "v1.34.0";
  return cluster::runs::bench(static_cast<int>(given.value_or(5000)), kubernetes);
}
