// What a node tells of itself: read once from its root, or given (hollow nodes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace gpuop::cluster {

struct NodeFacts {
  std::string kernel_version;  // "6.8.0-45-generic"
  std::string os_image;        // PRETTY_NAME of os-release
  std::string kubelet_version = "v1.34.0";
  std::string architecture;  // "amd64", "arm64"; empty: this machine's
  std::string machine_id, system_uuid, boot_id;
  std::int64_t cpus = 4;
  std::int64_t memory_bytes = 16ll << 30;
  std::int64_t ephemeral_bytes = 100ll << 30;
  std::int64_t pods = 110;
};

// Reads <root>/etc/os-release and /etc/machine-id, and from the kernel's root (GPUOP_KERNEL_ROOT, else
// <root>) /proc/sys/kernel/osrelease, /proc/sys/kernel/random/boot_id, /proc/meminfo,
// /sys/class/dmi/id/product_uuid; the number of processors is this process's. What is missing keeps its
// default, and ids are then derived from `name`, so that they stay equal over restarts.
NodeFacts read_node_facts(const std::filesystem::path& root, const std::string& name);

// "amd64" or "arm64": what this program was built for.
std::string machine_architecture();

}  // namespace gpuop::cluster
