// The subcommands of gpuctl. A new one: a file beside this with `int NAME_main(int argc, char** argv)`, its
// declaration below and one line in commands.cc. argv[0] is then "gpuctl NAME", and what follows are its
// arguments.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace gpuop {

struct GpuctlCommand {
  std::string_view name;
  std::string_view summary;  // "": a part of the simulator that people do not call; not in --help
  int (*main)(int argc, char** argv);
};

std::span<const GpuctlCommand> gpuctl_commands();

// Where a kept demo lies when nothing else was said; one a machine, since --stop has to find it.
std::filesystem::path default_state_dir();

int demo_main(int argc, char** argv);
int sim_main(int argc, char** argv);
// Where the control plane of a demo with --faults tells which of them have struck nothing so far.
inline constexpr const char* kIdleFaultsPath = "/gpuctl/idle-faults";

int sim_run_main(int argc, char** argv);   // of sim
int sim_exec_main(int argc, char** argv);  // of sim
int status_main(int argc, char** argv);
int preflight_main(int argc, char** argv);
// `gpuctl sim node …`.
int sim_node_event_main(int argc, char** argv);
// Parts of the simulator.
int sim_supervisor_main(int argc, char** argv);
int sim_control_plane_main(int argc, char** argv);
int sim_node_runtime_main(int argc, char** argv);
int sim_node_kubelet_main(int argc, char** argv);
int sim_node_systemctl_main(int argc, char** argv);
int sim_node_vgpus_main(int argc, char** argv);

}  // namespace gpuop
