#include "roles.h"

#include <algorithm>

namespace gpuop {

std::span<const Role> roles() {
  // In the order of --help: by name.
  static const std::vector<Role> table = {
      {"config-manager", {}, "select a configuration file by the node's label", config_manager_main},
      {"dcgm-exporter", {}, "export the GPUs' figures as Prometheus metrics", dcgm_exporter_main},
      {"device-plugin",
       {"nvidia-device-plugin"},
       "advertise the node's GPUs to the kubelet",
       device_plugin_main},
      {"driver-manager",
       {},
       "clear the node for a driver container, or find that the host has a driver",
       driver_manager_main},
      {"event", {}, "write an Event about this pod", event_main},
      {"feature-discovery",
       {"gpu-feature-discovery"},
       "label the node with what its GPUs are",
       feature_discovery_main},
      {"mps-control-daemon", {}, "run the MPS control daemons of shared GPUs", mps_control_daemon_main},
      {"nfd-worker", {}, "discover the node's features and publish them", nfd_worker_main},
      {"pause", {}, "print one line and wait for SIGTERM", pause_main},
      {"toolkit",
       {"nvidia-toolkit", "nvidia-ctk-installer"},
       "install the container toolkit on the host and wire the engine",
       nvidia_toolkit_main},
      {"validations",
       {},
       "prove stages of the node one after the other, then run a program",
       validations_main},
      {"validator",
       {"nvidia-validator"},
       "prove a stage of the node and leave its gate file",
       validator_main},
      {"vector-add", {"vectorAdd"}, "add two vectors on the GPU", vector_add_main},
      {"wait-for", {}, "wait until files exist", wait_for_main},
  };
  return table;
}

const Role* find_role(std::string_view name) {
  for (const Role& role : roles()) {
    if (role.name == name || std::ranges::find(role.aliases, name) != role.aliases.end()) return &role;
  }
  return nullptr;
}

}  // namespace gpuop
