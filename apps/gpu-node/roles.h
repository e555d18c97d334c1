// The roles of gpu-node: one program that is every operand of a node (architecture §3). The role is the first
// argument, or the name by which the program was called, so that upstream's command names work as links.
//
// A new role: a file ROLE.cc beside this with `int ROLE_main(int argc, char** argv)`, its declaration below
// and one line in roles.cc. argv[0] is then the role's name as it was given, and what follows are its own
// arguments.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace gpuop {

struct Role {
  std::string_view name;
  std::vector<std::string_view> aliases;  // other names, upstream's commands among them
  std::string_view summary;               // one line for --help
  int (*main)(int argc, char** argv);
};

std::span<const Role> roles();
// By name or alias; nullptr when there is none.
const Role* find_role(std::string_view name);

int config_manager_main(int argc, char** argv);
int dcgm_exporter_main(int argc, char** argv);
int device_plugin_main(int argc, char** argv);
int driver_manager_main(int argc, char** argv);
int event_main(int argc, char** argv);
int feature_discovery_main(int argc, char** argv);
int mps_control_daemon_main(int argc, char** argv);
int nfd_worker_main(int argc, char** argv);
int nvidia_toolkit_main(int argc, char** argv);
int pause_main(int argc, char** argv);
int validations_main(int argc, char** argv);
int validator_main(int argc, char** argv);
int vector_add_main(int argc, char** argv);
int wait_for_main(int argc, char** argv);

}  // namespace gpuop
