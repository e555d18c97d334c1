// gpuctl sim exec: a program in a container of a node with processes, as `kubectl exec` runs it, without the
// API server.
#include <algorithm>
#include <cstdio>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "cli.h"
#include "cluster/fleet/supervisor.h"
#include "cluster/launcher/container.h"
#include "commands.h"

namespace gpuop {
namespace {

struct Arguments {
  std::string state_dir = default_state_dir(), ns = "gpu-operator", pod, container;
  std::vector<std::string> command;
};

constexpr int kBadInput = 2;

// A process of the container that is meant, found by the names of what runs.
Result<cluster::FleetProcessInfo> find_container(const Arguments& arguments) {
  const auto processes = TRY(cluster::list_fleet_processes(arguments.state_dir));
  std::set<std::string> pods, containers;
  std::vector<cluster::FleetProcessInfo> found;
  for (const auto& process : processes) {
    const auto parts = split(process.container, '/');
    if (process.role != "container" || parts.size() != 3 || parts[0] != arguments.ns) continue;
    pods.insert(parts[1]);
    if (parts[1] != arguments.pod) continue;
    if (!arguments.container.empty() && parts[2] != arguments.container) {
      containers.insert(parts[2]);
    } else if (containers.insert(parts[2]).second) {
      found.push_back(process);
    }
  }
  const std::string what = "run a program in pod '" + arguments.ns + "/" + arguments.pod + "': ";
  if (!pods.contains(arguments.pod)) {
    return fail(Code::kNotFound, what + "no container of it runs on a node of '" + arguments.state_dir + "'" +
                                     did_you_mean(arguments.pod, std::vector(pods.begin(), pods.end())) +
                                     " (another fleet: name its folder with --state-dir)");
  }
  const std::string running = join(std::vector(containers.begin(), containers.end()), ", ");
  if (found.empty())
    return fail(Code::kNotFound,
                what + "no container '" + arguments.container + "' runs in it; there are " + running);
  if (found.size() > 1) return fail(Code::kInvalid, what + "-c: must be one of " + running);
  return found.front();
}

Result<int> run(const Arguments& arguments) {
  const auto process = TRY(find_container(arguments));
  return cluster::exec_in_container({process.pid, process.bundle, arguments.command});
}

}  // namespace

int sim_exec_main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Run a program in a container of a fleet that runs (gpuctl demo --keep), with the container's "
      "environment, user and capabilities. Exit code: the program's; 2 the words are wrong; 1 no such "
      "container runs.");
  app.add_option("POD", arguments.pod, "the pod")->required();
  app.add_option("-n,--namespace", arguments.ns, "its namespace")->capture_default_str();
  app.add_option("-c,--container", arguments.container, "which of its containers, where several run");
  app.add_option("--state-dir", arguments.state_dir, "the fleet's folder")->capture_default_str();
  app.add_option("COMMAND", arguments.command, "behind --: program and arguments")->required();
  if (auto code = parse_command_line(app, argc, argv, kBadInput)) return *code;
  const auto ended = run(arguments);
  if (ended) return *ended;
  std::fprintf(stderr, "gpuctl sim exec: %s\n", ended.error().text().c_str());
  return ended.error().code() == Code::kInvalid ? kBadInput : 1;
}

}  // namespace gpuop
