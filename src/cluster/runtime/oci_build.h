// From what a kubelet asks for to the OCI configuration that containerd would write. Pure: everything that
// was looked up is an argument.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/runtime/containerd_config.h"
#include "cluster/runtime/images.h"
#include "cluster/runtime/runtime.h"

namespace gpuop::cluster {

// Where a container finds the tree of kernel facts that GPUOP_KERNEL_ROOT names (operands-driver-validator.md
// §4.1).
inline constexpr const char* kKernelRootInside = "/.gpuop-kernel";

struct HostDevice {
  std::string path;  // in the container
  std::int64_t major = 0, minor = 0;
  std::string permissions = "rwm";
};

struct SpecInputs {
  const SandboxSpec& sandbox;
  const ContainerSpec& container;
  const Image& image;
  const RuntimeHandler& handler;
  std::string id;
  std::string rootfs;               // absolute
  std::string kernel_root;          // on the node; empty: none
  bool kernel_osrelease = false;    // <kernel_root>/proc/sys/kernel/osrelease is there
  std::string pid_namespace;        // to join; empty: a new one, or the node's with host_pid
  std::vector<HostDevice> devices;  // asked for, and all of the node's for a privileged container
  bool kernel_drivers = false;      // <kernel_root>/proc/driver is there, and a /proc/driver to bind it over
};
Json build_oci_spec(const SpecInputs& inputs);

// The CDI devices of a container: the CRI field, then annotations cdi.k8s.io/…, without duplicates
// (container-toolkit-cdi.md §1.6). kInvalid: an annotation that holds no qualified names.
Result<std::vector<std::string>> requested_cdi_devices(const ContainerSpec& container);

// Whether an annotation key is one of `patterns` ("nvidia.cdi.k8s.io/*", or whole keys).
bool annotation_passes(const std::vector<std::string>& patterns, std::string_view key);

}  // namespace gpuop::cluster
