// gpuctl sim: hollow fleets on a virtual clock, and faults of the hardware of simulated nodes that run.
#include "sim/faults.h"

#include <cstdio>
#include <string>

#include "base/text.h"
#include "commands.h"

namespace gpuop {

int sim_main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "fault") return sim::sim_fault_main(argc - 1, argv + 1);
  if (word == "node") return sim_node_event_main(argc - 1, argv + 1);
  if (word == "exec") {
    std::string name = "gpuctl sim exec";
    argv[1] = name.data();
    return sim_exec_main(argc - 1, argv + 1);
  }
  if (word == "run") {
    std::string name = "gpuctl sim run";
    argv[1] = name.data();
    return sim_run_main(argc - 1, argv + 1);
  }
  if (word == "--help" || word == "-h") {
    std::puts(
        "usage: gpuctl sim run FLEET [--policy FILE] [--faults FILE] [--seed N] [--until ready|stable]\n"
        "                     [--data-dir FOLDER]\n"
        "       gpuctl sim fault --node NODE --gpu INDEX FAULT… [--state-dir DIR]\n"
        "       gpuctl sim node NODE EVENT… [--state-dir DIR]\n"
        "       gpuctl sim exec POD [-n NAMESPACE] [-c CONTAINER] [--state-dir DIR] -- COMMAND…\n\n"
        "--state-dir names the folder of a fleet that runs elsewhere than /run/gpuctl-demo (gpuctl demo "
        "--keep\n"
        "--state-dir DIR).\n"
        "Run a hollow fleet on a virtual clock, under faults: gpuctl sim run --help\n"
        "Make a GPU of a simulated node fail or recover: gpuctl sim fault --help\n"
        "Make something happen to a node (reboot, kubelet restart, loss, …): gpuctl sim node --help\n"
        "Run a program in a container: gpuctl sim exec --help");
    return 0;
  }
  const std::vector<std::string> known{"exec", "fault", "node", "run"};
  std::fprintf(stderr, "gpuctl sim: unknown command '%s'%s; there are run, fault, node and exec\n",
               word.c_str(), did_you_mean(word, known).c_str());
  return 2;
}

}  // namespace gpuop
