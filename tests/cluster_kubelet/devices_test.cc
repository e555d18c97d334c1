// The device manager: the checkpoint's format, admission, counts over a plugin's life.
#include "cluster/kubelet/devices.h"

#include "fixture.h"
#include "scripted_plugin.h"

namespace gpuop::cluster {
namespace {

// Both files are as a kubelet wrote them; the checksum is the kubelet's.
TEST(device_manager, checkpoint_is_the_kubelets_own) {
  const std::string with_grant =
      R"({"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",)"
      R"("ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},)"
      R"("AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},)"
      R"("Checksum":3660592824})";
  const auto read = read_checkpoint(with_grant);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->grants.at(0).answer.envs.at("NVIDIA_VISIBLE_DEVICES"), "tegra");
  EXPECT_EQ(write_checkpoint(*read), with_grant);
  const std::string empty =
      R"({"Data":{"PodDeviceEntries":null,"RegisteredDevices":)"
      R"({"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280})";
  const auto none = read_checkpoint(empty);
  ASSERT_TRUE(none);
  EXPECT_EQ(write_checkpoint(*none), empty);
  EXPECT_FALSE(read_checkpoint(replace_all(with_grant, "tegra\"]}", "other\"]}")));
  EXPECT_FALSE(read_checkpoint("{}"));
  EXPECT_FALSE(read_checkpoint("nonsense"));
}

// kubernetes-api.md case 35.
TEST(cluster_kubelet, case35_device_plugin_stops) {
  Node n;
  n.start();
  auto plugin = gpus(n, 2);
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  EXPECT_EQ(quantity(n, "capacity"), "2");
  EXPECT_EQ(quantity(n, "allocatable"), "2");
  plugin->devices[1].healthy = false;
  plugin->announce();
  n.settle();
  EXPECT_EQ(quantity(n, "capacity"), "2");
  EXPECT_EQ(quantity(n, "allocatable"), "1");
  plugin->end();
  n.settle();
  EXPECT_EQ(quantity(n, "allocatable"), "0");
  EXPECT_EQ(quantity(n, "capacity"), "2");
  n.pass(5min);
  EXPECT_EQ(quantity(n, "capacity"), "0");
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  EXPECT_EQ(quantity(n, "allocatable"), "2");
}

TEST(cluster_kubelet, the_container_gets_what_allocate_answered) {
  Node n;
  n.start();
  auto plugin = gpus(n, 4);
  plugin->prefers = std::vector<std::string>{"GPU-3", "GPU-1"};
  plugin->wants_pre_start = true;
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("p",
            "containers: [{name: c, image: 'a:1', env: [{name: A, value: b}], resources: {limits: "
            "{nvidia.com/gpu: 2}}}]");
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(plugin->calls, (std::vector<std::string>{"preferred GPU-0,GPU-1,GPU-2,GPU-3 must  of 2",
                                                     "allocate GPU-3,GPU-1", "prestart GPU-3,GPU-1"}));
  const ContainerSpec& spec = n.runtime->specs.at(0);
  EXPECT_EQ(spec.cdi_devices, std::vector<std::string>{"nvidia.com/gpu=GPU-3"});
  EXPECT_EQ(spec.annotations.at("cdi.k8s.io/x"), "y");
  EXPECT_EQ(spec.devices.at(0).host_path, "/dev/nvidia0");
  EXPECT_EQ(spec.mounts.at(0).host_path, "/run/x");
  EXPECT_TRUE(spec.mounts.at(0).read_only);
  EXPECT_NE(std::ranges::find(spec.env, "NVIDIA_VISIBLE_DEVICES=GPU-3,GPU-1"), spec.env.end());
  EXPECT_NE(std::ranges::find(spec.env, "A=b"), spec.env.end());
}

TEST(cluster_kubelet, devices_are_given_once_and_come_back) {
  Node n;
  n.start();
  auto plugin = gpus(n, 1);
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("a", gpu_pod(1));
  n.add_pod("b", gpu_pod(1));
  EXPECT_EQ(n.phase("a"), "Running");
  EXPECT_EQ(n.phase("b"), "Failed");
  EXPECT_EQ(get_string(n.pod_of("b"), {"status", "reason"}), "UnexpectedAdmissionError");
  EXPECT_EQ(
      get_string(n.pod_of("b"), {"status", "message"}),
      "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
      "Requested: 1, Available: 0, which is unexpected");
  n.api->delete_pod(Node::pod_path("a"), 0);
  n.settle();
  n.add_pod("c", gpu_pod(1));
  EXPECT_EQ(n.phase("c"), "Running");
}

TEST(cluster_kubelet, a_refused_allocation_fails_the_pod) {
  Node n;
  n.start();
  auto plugin = gpus(n, 1);
  plugin->refuses = Error(Code::kUnknown, "rpc error: code = Unknown desc = no");
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("p", gpu_pod(1));
  EXPECT_EQ(n.phase("p"), "Failed");
  EXPECT_EQ(n.event_text("UnexpectedAdmissionError"),
            "Allocate failed due to rpc error: code = Unknown desc = no, which is unexpected");
  // The device is free again.
  plugin->refuses.reset();
  n.add_pod("q", gpu_pod(1));
  EXPECT_EQ(n.phase("q"), "Running");
}

TEST(cluster_kubelet, two_pods_at_once_never_share_a_device) {
  Node n;
  n.start();
  auto plugin = gpus(n, 2);
  plugin->prefers = std::vector<std::string>{"GPU-0"};
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  for (const char* name : {"a", "b"}) {
    n.api->put(Node::pod_path(name),
               yaml("{apiVersion: v1, kind: Pod, metadata: {name: " + std::string(name) +
                    ", namespace: default}, spec: {nodeName: n1, " + gpu_pod(1) + "}}"));
  }
  n.settle();
  EXPECT_EQ(plugin->calls.at(1), "allocate GPU-0");
  EXPECT_EQ(plugin->calls.at(3), "allocate GPU-1");
}

TEST(cluster_kubelet, init_containers_lend_their_devices) {
  Node n;
  n.runtime->behave = [](const ContainerSpec& spec) {
    return spec.name == "i" ? lives(1s, 0) : RecordingRuntime::Play{};
  };
  n.start();
  auto plugin = gpus(n, 1);
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("p", "{initContainers: [{name: i, image: 'a:1', resources: {limits: {nvidia.com/gpu: 1}}}], " +
                     gpu_pod(1) + "}");
  n.pass(2s);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.runtime->specs.at(0).cdi_devices, n.runtime->specs.at(1).cdi_devices);
}

TEST(cluster_kubelet, grants_survive_a_killed_kubelet) {
  Node n(true);
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  n.add_pod("a", gpu_pod(1));
  n.restart();
  EXPECT_EQ(quantity(n, "allocatable"), "0");  // until the plugin is back
  EXPECT_EQ(quantity(n, "capacity"), "0");
  EXPECT_EQ(n.phase("a"), "Running");
  auto plugin = gpus(n, 2);
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  EXPECT_EQ(quantity(n, "allocatable"), "2");
  n.add_pod("b", gpu_pod(1));
  EXPECT_EQ(plugin->calls, std::vector<std::string>{"allocate GPU-1"});
  // A restarted container gets the same answer again without another Allocate.
  n.runtime->exit(str(get_string(n.pod_of("a"), {"metadata", "uid"})), "c", 1);
  n.settle();
  EXPECT_EQ(n.runtime->specs.back().cdi_devices, std::vector<std::string>{"nvidia.com/gpu=GPU-0"});
  EXPECT_EQ(plugin->calls.size(), 1u);
  const auto checkpoint = read_checkpoint(
      read_file(n.dir.path() / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").value());
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->grants.size(), 2u);
  EXPECT_EQ(checkpoint->registered.at("nvidia.com/gpu").size(), 2u);
}

// A node without a root, as hollow ones are.
TEST(cluster_kubelet, grants_without_a_disk_outlive_the_kubelet) {
  Node n;
  n.options.kept_devices = std::make_shared<std::optional<DeviceCheckpoint>>();
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  n.add_pod("a", gpu_pod(1));
  ASSERT_EQ(n.phase("a"), "Running");
  n.restart();
  EXPECT_EQ(quantity(n, "allocatable"), "0");  // until the plugin is back
  EXPECT_EQ(quantity(n, "capacity"), "0");
  auto plugin = gpus(n, 2);
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("b", gpu_pod(1));
  EXPECT_EQ(plugin->calls, std::vector<std::string>{"allocate GPU-1"});
  // Another disk: what the node shows is of the installation before.
  *n.options.kept_devices = std::nullopt;
  n.restart();
  EXPECT_EQ(quantity(n, "allocatable"), "0");
}

TEST(cluster_kubelet, the_first_report_of_a_node_that_was_there_has_a_heartbeat) {
  Node n;
  n.start();
  const auto heartbeat = [&] {
    return str(get_string(*kube::condition(n.node(), "Ready"), {"lastHeartbeatTime"}));
  };
  n.pass(40s);
  const std::string before = heartbeat();
  n.restart();
  EXPECT_GT(heartbeat(), before);
}

TEST(cluster_kubelet, a_node_that_was_installed_anew_offers_nothing_of_the_one_before) {
  Node n(true);
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  ASSERT_EQ(quantity(n, "allocatable"), "2");
  n.kubelet.reset();
  ASSERT_TRUE(remove_file(n.dir.path() / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"));
  n.restart();
  EXPECT_EQ(quantity(n, "capacity"), "0");
  EXPECT_EQ(quantity(n, "allocatable"), "0");
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  EXPECT_EQ(quantity(n, "allocatable"), "2");
}

TEST(cluster_kubelet, a_broken_checkpoint_is_set_aside) {
  Node n(true);
  const fs::path dir = n.dir.path() / "var/lib/kubelet/device-plugins";
  ASSERT_TRUE(make_dirs(dir));
  ASSERT_TRUE(write_file_atomic(dir / "kubelet_internal_checkpoint", "{\"Data\":{},\"Checksum\":1}"));
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 1));
  n.settle();
  n.add_pod("p", gpu_pod(1));
  EXPECT_EQ(n.phase("p"), "Running");
}

}  // namespace
}  // namespace gpuop::cluster
