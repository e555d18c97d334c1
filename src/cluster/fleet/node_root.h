// The root file system and namespaces of one simulated node (architecture §8).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "cluster/fleet/fleet.h"
#include "cluster/fleet/install_tree.h"

namespace gpuop::cluster {

struct NodeRootOptions {
  FleetNode node;
  std::uint64_t seed = 1;
  std::string address;  // the node's own: "127.0.1.1"
  std::string image;    // reference of the operator's image
  InstallTree tree;
  fs::path folder;  // the node's, on a tmpfs
  // The folder is that of a node which ran before: its disk is kept, what was in memory is not.
  bool boots_again = false;
  // Further layers of the node's root, above the tree's own, the highest first.
  std::vector<fs::path> layers;
  // Paths of the machine that show on the node: from, to.
  std::vector<std::pair<fs::path, fs::path>> binds;
};

// The size of a node's /run.
inline constexpr const char* kRunSize = "256m";

// Paths on a node.
inline constexpr const char* kNodeKernelRoot = "/.gpuop-kernel";
inline constexpr const char* kNodeImages = "/.gpuop-images";
inline constexpr const char* kNodeSim = "/usr/lib/gpuop-sim";
inline constexpr const char* kNodeConfig = "/etc/gpuop-sim/node.json";
inline constexpr const char* kNodeNetwork = "/run/netns/node";
inline constexpr const char* kNodePulls = "/etc/gpuop-sim/pulls.json";

// For a process that has just been made with new mount, UTS and network namespaces, in the fleet's PID
// namespace: builds the node's root (an overlay over the install tree, without device files), makes it this
// namespace's root, fills in what the node's machine and its installer would have put there, and brings
// loopback up. Nothing of the machine is reachable afterwards but its six harmless devices.
Result<> become_node(const NodeRootOptions& options);

// The configuration file that become_node writes for the node's runtime and kubelet.
struct NodeConfig {
  FleetNode node;
  std::string address;
  std::string image;
};
Result<NodeConfig> read_node_config(const fs::path& path = kNodeConfig);

}  // namespace gpuop::cluster
