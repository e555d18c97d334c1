// gpuctl sim: what can be done to the hardware of simulated nodes while they run.
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
  if (word == "--help" || word == "-h") {
    std::puts(
        "usage: gpuctl sim fault --node NODE --gpu INDEX FAULT…\n"
        "       gpuctl sim node NODE EVENT…\n\n"
        "Make a GPU of a simulated node fail or recover: gpuctl sim fault --help\n"
        "Make something happen to a node (reboot, kubelet restart, loss, …): gpuctl sim node --help");
    return 0;
  }
  const std::vector<std::string> known{"fault", "node"};
  std::fprintf(stderr, "gpuctl sim: unknown command '%s'%s; there are fault and node\n", word.c_str(),
               did_you_mean(word, known).c_str());
  return 2;
}

}  // namespace gpuop
