// What a node of the real cluster is made from.
#pragma once

#include <string>

#include "base/files.h"

namespace gpuop::real {

struct NodeOptions {
  std::string cluster;  // the cluster's folder
  std::string name;
  fs::path fleet;            // fleet file; its first node is the hardware
  fs::path stage;            // install tree (cluster/fleet/install_tree.h)
  fs::path tools;            // layer with kubelet, containerd, runc, mount
  fs::path folder;           // the node's: etc/ and images/ are read, the rest is made
  std::string address;       // on the machine's loopback: where the API server finds the kubelet
  int kubelet_port = 10250;  // there and on the node
  int api_port = 16443;      // of the API server, on the machine's loopback
  std::string image;         // reference of the operator's image
};

// Where things are on the node.
inline constexpr const char* kEtc = "/etc/kubernetes";           // keys, kubeconfig, kubelet.yaml
inline constexpr const char* kImages = "/var/lib/gpuop-images";  // archives to import
inline constexpr const char* kCgroups = "/.gpuop-cgroups";       // the machine's, until /sys is there
inline constexpr const char* kServiceAddress = "127.96.0.1";     // of the API server, inside the cluster

}  // namespace gpuop::real
