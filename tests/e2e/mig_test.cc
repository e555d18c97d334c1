// A board that is partitioned on a running node: what nvidia-smi does there reaches the kernel's files, the
// device plugin and a pod.
#include "base/process.h"
#include "demo_fleet.h"

namespace gpuop {
namespace {

class mig : public DemoFleet {
 protected:
  // A program of the node, in the node's mount namespace.
  void on_node(std::vector<std::string> argv) {
    pid_t runtime = 0;
    const auto processes = cluster::list_fleet_processes(state_);
    ASSERT_TRUE(processes);
    for (const auto& info : *processes) {
      if (info.role == "runtime" && info.node == "gb200") runtime = info.pid;
    }
    argv.insert(argv.begin(), {"/usr/bin/nsenter", "-t", std::to_string(runtime), "-m", "--"});
    Command command{std::move(argv), {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}};
    const auto done = run_command(command, 20s);
    ASSERT_TRUE(done) << done.error().text();
    EXPECT_EQ(done->code, 0) << done->out << done->err;
  }
  void kill_plugin() {
    const auto processes = cluster::list_fleet_processes(state_);
    ASSERT_TRUE(processes);
    for (const auto& info : *processes) {
      if (info.role == "container" && info.node == "gb200" &&
          info.container.ends_with("/nvidia-device-plugin"))
        ::kill(info.pid, SIGKILL);
    }
  }
  std::map<std::string, std::int64_t> allocatable() const {
    std::map<std::string, std::int64_t> out;
    for (const auto& node : chain().nodes) {
      if (node.name == "gb200") out.insert(node.allocatable.begin(), node.allocatable.end());
    }
    return out;
  }
  std::string pod_status(const std::string& name) const {
    auto live = pods_->get("gpu-operator/" + name);
    return live ? to_text(*find(*live, {"status"})) : std::string();
  }
};

TEST_F(mig, instances_made_on_a_node_run_pods) {
  adjust_ = [](Json& policy) {
    policy.as_object()["spec"].as_object()["mig"] = JsonObject{{"strategy", "mixed"}};
  };
  // Mixed with every mode off: whole boards.
  bring_up("nodes: [{name: gb200, gpus: {model: GB200, count: 2}, driver: preinstalled}, {name: cpu}]");
  ASSERT_FALSE(HasFatalFailure());
  using Resources = std::map<std::string, std::int64_t>;
  EXPECT_EQ(allocatable(), (Resources{{"nvidia.com/gpu", 2}}));

  on_node({"nvidia-smi", "-i", "0", "-mig", "1"});
  on_node({"nvidia-smi", "mig", "-i", "0", "-cgi", "3g.93gb,1g.23gb", "-C"});
  const fs::path instances = root_of("gb200") / ".gpuop-kernel/proc/driver/nvidia/capabilities/gpu0/mig";
  EXPECT_EQ(list_dir(instances)->size(), 2u);
  kill_plugin();
  const Resources mixed{{"nvidia.com/gpu", 1}, {"nvidia.com/mig-1g.23gb", 1}, {"nvidia.com/mig-3g.93gb", 1}};
  ASSERT_TRUE(wait([&] { return allocatable() == mixed; }, 40s)) << render(chain()) << logs();

  Json pod = *parse_json(
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"on-mig","namespace":"gpu-operator"},)"
      R"("spec":{"restartPolicy":"Never","containers":[{"name":"c","image":")" +
      std::string(kImage) +
      // /proc/driver is the node's, but for what a hook hides.
      R"(","command":["sh","-c","cd /proc/driver && ls nvidia/capabilities/gpu0/mig/gi*/access && )"
      R"(test -e nvidia-caps/mig-minors && grep -q 'ModifyDeviceFiles: 0' nvidia/params && )"
      R"(gpu-node vector-add"],"resources":{"limits":{"nvidia.com/mig-3g.93gb":"1"}}}]}})");
  auto made = kube::await(loop_, [&](auto done) {
    return client_->create(kube::kPods, "gpu-operator", pod, {}, std::move(done));
  });
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(
      wait([&] { return pod_status("on-mig").find("\"phase\":\"Succeeded\"") != std::string::npos; }, 30s))
      << pod_status("on-mig") << logs();
}

}  // namespace
}  // namespace gpuop
