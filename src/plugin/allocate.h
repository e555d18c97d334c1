// What a container gets for the devices that the kubelet chose (device-plugin-gfd-mps.md §4.1): decided, not
// sent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "plugin/resources.h"

namespace gpuop::plugin {

struct Mount {
  std::string host_path, container_path;
  bool read_only = false;
};
struct DeviceNode {
  std::string host_path, container_path, permissions;
};

struct Allocation {
  std::map<std::string, std::string> envs, annotations;
  std::vector<Mount> mounts;
  std::vector<DeviceNode> devices;
  std::vector<std::string> cdi_devices;
};

// Everything that answers about one resource rest on. Immutable once made: gRPC's threads read it without
// locks.
struct Offer {
  Resource resource;
  sharing::Settings settings;
  std::vector<std::vector<int>> scores;
  std::vector<std::string> control_nodes;
  bool imex = false;
  // Extra CDI classes whose specs were written: some of "gdrcopy", "gds", "mofed".
  std::vector<std::string> cdi_classes;
  // Names of devices that the CDI spec does not hold because a node of theirs is missing.
  std::vector<std::string> not_in_cdi;

  std::unordered_map<std::string_view, const Device*> by_id;  // into resource.devices
  const Device* find(std::string_view id) const;
};
std::shared_ptr<const Offer> make_offer(Offer parts);

// One container's answer. `unique` is a fresh UUID text, used in the name of the CDI annotation. kInvalid: an
// unknown device, or too many shared ones; the text is what the kubelet shows.
Result<Allocation> allocate(const Offer& offer, std::span<const std::string> ids, std::string_view unique);

// What `device` is called by the device ID strategy.
const std::string& device_name(const Offer& offer, const Device& device);

}  // namespace gpuop::plugin
