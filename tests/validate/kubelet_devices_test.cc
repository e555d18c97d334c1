#include "validate/kubelet_devices.h"

#include <gtest/gtest.h>

#include <atomic>

#include "../podresources/served.h"
#include "base/files.h"

namespace gpuop::validate {
namespace {

class Answers : public v1::PodResourcesLister::Service {
 public:
  grpc::Status GetAllocatableResources(grpc::ServerContext*, const v1::AllocatableResourcesRequest*,
                                       v1::AllocatableResourcesResponse* out) override {
    ++asked;
    const auto add = [out](const char* name, const char* id) {
      auto* devices = out->add_devices();
      devices->set_resource_name(name);
      devices->add_device_ids(id);
    };
    add("example.com/nic", "n1");
    if (!gpus) return grpc::Status::OK;
    add("nvidia.com/gpu", "GPU-1");
    add("nvidia.com/gpu", "GPU-2");
    return grpc::Status::OK;
  }
  std::atomic<bool> gpus = false;
  std::atomic<int> asked = 0;
};
using Kubelet = podresources::Served<Answers>;

class Node {
 public:
  Node() : folders{dir.path() / "pod-resources", dir.path() / "device-plugins"} {
    EXPECT_TRUE(make_dirs(folders.device_plugins));
  }
  void watch() {
    auto made = KubeletDevices::create(loop, folders, 1h, [this](const std::string& what) { found = what; });
    ASSERT_TRUE(made) << made.error().text();
    devices = std::move(*made);
  }
  bool until(const std::function<bool()>& done) { return loop.run_until(done, 5s); }

  TempDir dir;
  KubeletFolders folders;
  Loop loop;
  std::string found;
  std::unique_ptr<KubeletDevices> devices;
};

TEST(validate, kubelet_says_that_it_has_gpus_when_its_devices_change) {
  Node node;
  ASSERT_TRUE(make_dirs(node.folders.pod_resources));
  node.watch();
  Kubelet kubelet(node.folders.pod_resources / "kubelet.sock");  // it comes later, and is seen
  ASSERT_TRUE(node.until([&] { return kubelet.asked > 0; }));
  EXPECT_EQ(node.found, "") << "other devices do not count";
  kubelet.gpus = true;
  // As a kubelet does with every change of its devices.
  ASSERT_TRUE(write_file_atomic(node.folders.device_plugins / "kubelet_internal_checkpoint", "{}"));
  ASSERT_TRUE(node.until([&] { return !node.found.empty(); })) << node.devices->fault();
  EXPECT_EQ(node.found, "nvidia.com/gpu: 2");
  node.devices.reset();
}

TEST(validate, kubelet_is_not_asked_where_its_folder_is_not_mounted) {
  Node node;
  node.watch();
  ASSERT_TRUE(make_dirs(node.folders.pod_resources));
  Kubelet kubelet(node.folders.pod_resources / "kubelet.sock");
  ASSERT_TRUE(write_file_atomic(node.folders.device_plugins / "x", ""));
  EXPECT_FALSE(node.loop.run_until([&] { return kubelet.asked > 0; }, 100ms));
}

}  // namespace
}  // namespace gpuop::validate
