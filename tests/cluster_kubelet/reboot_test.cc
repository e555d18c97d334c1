// What a kubelet makes of its pods after the node booted: kubernetes-api.md §14.4.
#include "fixture.h"
#include "scripted_plugin.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kWithInit =
    "initContainers: [{name: first, image: 'a:1'}]\ncontainers: [{name: c, image: 'a:1'}]";

// Init containers end by themselves, the others run.
RecordingRuntime::Play init_ends(const ContainerSpec& spec) {
  RecordingRuntime::Play play;
  if (spec.init) play.lives = Duration::zero();
  return play;
}

void reboot(Node& n, const std::string& boot_id) {
  n.kubelet.reset();
  n.runtime->reboot();
  n.options.facts.boot_id = boot_id;
  n.restart();
}

TEST(cluster_kubelet, after_a_reboot_a_pod_begins_anew_with_its_init_containers) {
  Node n;
  n.options.facts.boot_id = "boot-1";
  n.runtime->behave = init_ends;
  n.start();
  n.add_pod("p", kWithInit);
  n.pass(1s);
  ASSERT_EQ(n.phase("p"), "Running");
  n.runtime->calls.clear();
  reboot(n, "boot-2");
  n.pass(1s);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.restarts("p", "first"), 1);
  EXPECT_EQ(n.restarts("p", "c"), 1);
  EXPECT_EQ(get_int(n.container("p", "c"), {"lastState", "terminated", "exitCode"}), 255);
  EXPECT_EQ(get_string(n.container("p", "c"), {"lastState", "terminated", "reason"}), "Unknown");
  EXPECT_EQ(n.condition("p", "Ready"), "True");
  // The sandbox first, the init container before the other.
  EXPECT_EQ(n.calls("sandbox "), 1);
  const auto& calls = n.runtime->calls;
  auto at = [&](std::string_view end) {
    return std::ranges::find_if(calls, [&](const auto& call) { return call.ends_with(end); }) - calls.begin();
  };
  EXPECT_LT(at("/first#1"), at("/c#1"));
  EXPECT_EQ(n.events("Rebooted"), 1);
  EXPECT_EQ(n.event_text("Rebooted"), "Node n1 has been rebooted, boot id: boot-2");
  EXPECT_EQ(get_string(n.node(), {"status", "nodeInfo", "bootID"}), "boot-2");
}

// The kubelet ends once more while the pod begins anew.
TEST(cluster_kubelet, a_kubelet_that_comes_in_the_middle_of_a_new_beginning_goes_on_with_it) {
  for (const Duration after : {Duration(1ms), Duration(3s)}) {
    Node n;
    n.options.facts.boot_id = "boot-1";
    n.runtime->behave = [](const ContainerSpec& spec) {
      RecordingRuntime::Play play;
      if (spec.init) play.lives = spec.attempt == 0 ? Duration(0) : Duration(2s);
      return play;
    };
    n.start();
    n.add_pod("p",
              "initContainers: [{name: first, image: 'a:1'}, {name: second, image: 'a:1'}]\n"
              "containers: [{name: c, image: 'a:1'}]");
    n.pass(1s);
    reboot(n, "boot-2");
    n.pass(after);
    n.restart();
    n.pass(1ms);
    EXPECT_EQ(n.restarts("p", "c"), 0) << "no app container before the init containers are through";
    n.pass(10s);
    EXPECT_EQ(n.phase("p"), "Running");
    EXPECT_EQ(n.restarts("p", "first"), 1);
    EXPECT_EQ(n.restarts("p", "second"), 1);
    EXPECT_EQ(n.restarts("p", "c"), 1);
  }
}

TEST(cluster_kubelet, a_kubelet_restart_is_no_reboot) {
  Node n;
  n.options.facts.boot_id = "boot-1";
  n.runtime->behave = init_ends;
  n.start();
  n.add_pod("p", kWithInit);
  n.pass(1s);
  n.restart();
  n.pass(1s);
  EXPECT_EQ(n.restarts("p", "first"), 0);
  EXPECT_EQ(n.restarts("p", "c"), 0);
  EXPECT_EQ(n.events("Rebooted"), 0);
}

TEST(cluster_kubelet, after_a_reboot_restart_policies_are_honoured) {
  Node n;
  n.options.facts.boot_id = "boot-1";
  n.runtime->behave = [](const ContainerSpec& spec) {
    RecordingRuntime::Play play;
    if (spec.name == "done") play.lives = Duration::zero();
    return play;
  };
  n.start();
  n.add_pod("never", "restartPolicy: Never\ncontainers: [{name: c, image: 'a:1'}]");
  n.add_pod("finished", "restartPolicy: Never\ncontainers: [{name: done, image: 'a:1'}]");
  n.add_pod("half",
            "restartPolicy: OnFailure\ncontainers: [{name: done, image: 'a:1'}, {name: c, image: 'a:1'}]");
  n.pass(1s);
  ASSERT_EQ(n.phase("finished"), "Succeeded");
  reboot(n, "boot-2");
  n.pass(1s);
  EXPECT_EQ(n.phase("never"), "Failed");
  EXPECT_EQ(get_int(n.container("never", "c"), {"state", "terminated", "exitCode"}), 255);
  EXPECT_EQ(n.phase("finished"), "Succeeded");
  EXPECT_EQ(n.phase("half"), "Running");
  EXPECT_EQ(n.restarts("half", "done"), 0);
  EXPECT_EQ(n.restarts("half", "c"), 1);
}

TEST(cluster_kubelet, the_node_is_not_ready_before_it_is_ready_again) {
  Node n;
  n.options.facts.boot_id = "boot-1";
  n.start();
  std::vector<std::string> seen;
  n.kubelet.reset();
  n.options.facts.boot_id = "boot-2";
  n.client = std::make_unique<kube::Client>(*n.loop, kube::make_memory_transport(*n.loop, n.api->handler()));
  n.kubelet = std::move(Kubelet::create(*n.loop, *n.client, *n.runtime, n.options)).value();
  n.kubelet->start();
  n.loop->run_until(
      [&] {
        const Json* ready = kube::condition(n.node(), "Ready");
        const std::string now = ready != nullptr ? str(get_string(*ready, {"status"})) : "";
        if (seen.empty() || seen.back() != now) seen.push_back(now);
        return seen.size() == 3;
      },
      1s);
  EXPECT_EQ(seen, (std::vector<std::string>{"True", "False", "True"}));
}

TEST(cluster_kubelet, a_gpu_pod_that_comes_before_its_plugin_after_a_reboot_is_refused) {
  Node n(true);
  n.options.facts.boot_id = "boot-1";
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  n.add_pod("p", gpu_pod(1));
  n.pass(1s);
  ASSERT_EQ(n.phase("p"), "Running");
  // The kubelet alone: it has what it has.
  n.restart();
  n.pass(1s);
  EXPECT_EQ(n.phase("p"), "Running");
  reboot(n, "boot-2");
  n.pass(1s);
  EXPECT_EQ(n.phase("p"), "Failed");
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "reason"}), "UnexpectedAdmissionError");
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "message"}),
            "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy "
            "devices nvidia.com/gpu, which is unexpected");
}

TEST(cluster_kubelet, a_device_that_broke_while_the_node_was_down_refuses_its_pod) {
  Node n(true);
  n.options.facts.boot_id = "boot-1";
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", gpus(n, 2));
  n.settle();
  n.add_pod("p", gpu_pod(1));
  n.pass(1s);
  n.kubelet.reset();
  n.runtime->reboot();
  n.options.facts.boot_id = "boot-2";
  n.client = std::make_unique<kube::Client>(*n.loop, kube::make_memory_transport(*n.loop, n.api->handler()));
  n.kubelet = std::move(Kubelet::create(*n.loop, *n.client, *n.runtime, n.options)).value();
  auto plugin = gpus(n, 2);
  plugin->devices[0].healthy = false;
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.kubelet->start();
  n.pass(1s);
  EXPECT_NE(get_string(n.pod_of("p"), {"status", "message"})
                .find("previously allocated devices are no longer healthy"),
            std::string_view::npos);
}

}  // namespace
}  // namespace gpuop::cluster
