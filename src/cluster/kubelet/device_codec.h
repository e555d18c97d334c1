// Between the plugin API's messages and our structs. Includes protobuf: for .cc files only.
#pragma once

#include "cluster/kubelet/devices.h"
#include "kubeletapi/device_plugin.pb.h"

namespace gpuop::cluster {

DeviceAnswer from_proto(const v1beta1::ContainerAllocateResponse& message);
v1beta1::ContainerAllocateResponse to_proto(const DeviceAnswer& answer);
std::vector<Device> from_proto(const v1beta1::ListAndWatchResponse& message);

}  // namespace gpuop::cluster
