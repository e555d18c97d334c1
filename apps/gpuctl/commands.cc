#include "commands.h"

namespace gpuop {

std::span<const GpuctlCommand> gpuctl_commands() {
  static constexpr GpuctlCommand kTable[] = {
      {"demo", "run a simulated fleet from bare nodes to schedulable GPUs", demo_main},
      {"sim", "hollow fleets under faults; make simulated nodes and their hardware fail or recover",
       sim_main},
      {"status", "how far each node has come, and what it waits for", status_main},
      {"preflight", "what a values file would do, before helm is run", preflight_main},
      {"sim-supervisor", "", sim_supervisor_main},
      {"sim-control-plane", "", sim_control_plane_main},
      {"sim-node-runtime", "", sim_node_runtime_main},
      {"sim-node-kubelet", "", sim_node_kubelet_main},
      {"sim-node-systemctl", "", sim_node_systemctl_main},
      {"sim-node-vgpus", "", sim_node_vgpus_main},
  };
  return kTable;
}

std::filesystem::path default_state_dir() {
  return "/run/gpuctl-demo";
}

}  // namespace gpuop
