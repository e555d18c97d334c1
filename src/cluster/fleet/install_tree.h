// The install tree: the content of the operator's image as a folder, and the two thin layers that turn it
// into a simulated node's root and into a driver container's.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::cluster {

struct InstallTreeOptions {
  fs::path programs;  // gpu-operator, gpu-node, gpuctl, nvidia-container-runtime, …, gpuop-runc
  fs::path sim;       // the fake hardware: lib/, bin/, profiles/; may be absent
  fs::path assets;    // operand manifests; empty: none
  fs::path out;       // made if absent
  fs::path crds;      // custom resource definitions, for the chart's hooks; empty: none
};

struct InstallTree {
  fs::path image;         // the operator's image: programs, the libraries that they need, busybox, assets
  fs::path node_layer;    // on top of it for a node's root: gpuop-runc as `runc`, the fake hardware
  fs::path driver_layer;  // on top of it for a driver container's root: the program that plays the driver

  static InstallTree at(const fs::path& out) { return {out / "image", out / "node", out / "driver"}; }
};

// Programs and every shared library that they need, found as the dynamic loader would (its cache, then the
// default folders); busybox under the names of its applets, less those that could touch the machine; links
// for the roles that `gpu-node --names` prints. Only what differs is copied. kNotFound: a library or busybox
// is not there.
Result<InstallTree> stage_install_tree(const InstallTreeOptions& options);

}  // namespace gpuop::cluster
