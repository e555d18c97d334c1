#include "cluster/kubelet/device_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace gpuop::cluster {

DeviceAnswer from_proto(const v1beta1::ContainerAllocateResponse& message) {
  DeviceAnswer out;
  for (const auto& [key, value] : message.envs()) out.envs[key] = value;
  for (const auto& mount : message.mounts()) {
    out.mounts.push_back(
        {mount.host_path(), mount.container_path(), mount.read_only(), Propagation::kPrivate});
  }
  for (const auto& device : message.devices()) {
    out.devices.push_back({device.host_path(), device.container_path(), device.permissions()});
  }
  for (const auto& [key, value] : message.annotations()) out.annotations[key] = value;
  for (const auto& device : message.cdi_devices()) out.cdi_devices.push_back(device.name());
  return out;
}

v1beta1::ContainerAllocateResponse to_proto(const DeviceAnswer& answer) {
  v1beta1::ContainerAllocateResponse out;
  for (const auto& [key, value] : answer.envs) (*out.mutable_envs())[key] = value;
  for (const RuntimeMount& mount : answer.mounts) {
    auto* added = out.add_mounts();
    added->set_host_path(mount.host_path);
    added->set_container_path(mount.container_path);
    added->set_read_only(mount.read_only);
  }
  for (const RuntimeDevice& device : answer.devices) {
    auto* added = out.add_devices();
    added->set_host_path(device.host_path);
    added->set_container_path(device.container_path);
    added->set_permissions(device.permissions);
  }
  for (const auto& [key, value] : answer.annotations) (*out.mutable_annotations())[key] = value;
  for (const std::string& name : answer.cdi_devices) out.add_cdi_devices()->set_name(name);
  return out;
}

std::vector<Device> from_proto(const v1beta1::ListAndWatchResponse& message) {
  std::vector<Device> out;
  for (const auto& device : message.devices()) {
    Device& added = out.emplace_back();
    added.id = device.id();
    added.healthy = device.health() == "Healthy";
    for (const auto& node : device.topology().nodes()) added.numa.push_back(node.id());
  }
  return out;
}

std::string encode_answer(const DeviceAnswer& answer) {
  const v1beta1::ContainerAllocateResponse message = to_proto(answer);
  std::string out;
  {
    // Maps in a fixed order, so that the checkpoint changes only when a grant does.
    google::protobuf::io::StringOutputStream stream(&out);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return out;
}

Result<DeviceAnswer> decode_answer(const std::string& bytes) {
  v1beta1::ContainerAllocateResponse message;
  if (!message.ParseFromString(bytes)) {
    return fail(Code::kInvalid, "is no ContainerAllocateResponse");
  }
  return from_proto(message);
}

}  // namespace gpuop::cluster
