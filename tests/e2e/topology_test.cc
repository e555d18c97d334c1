// The kubelet's topology manager beside our plugin's own choice: GPUs of one NUMA node, or none.
#include "demo_fleet.h"

namespace gpuop {
namespace {

class topology : public DemoFleet {
 protected:
  // A pod that asks for GPUs and says which it got; its phase and reason at the end.
  std::string run(const std::string& name, int gpus) {
    const Json pod = *parse_json(
        R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":")" + name +
        R"(","namespace":"gpu-operator"},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":")" +
        std::string(kImage) +
        R"(","command":["sh","-c","nvidia-smi -L | grep -c GPU- > /dev/termination-log"],)" +
        R"("resources":{"limits":{"nvidia.com/gpu":")" + std::to_string(gpus) + R"("}}}]}})");
    const auto made = kube::await(
        loop_, [&](const auto& done) { return client_->create(kube::kPods, "gpu-operator", pod, {}, done); });
    if (!made) return made.error().message;
    const auto live = [&] { return pods_->get("gpu-operator/" + name); };
    const auto over = [&] {
      const auto now = live();
      const std::string_view phase = now ? get_string(*now, {"status", "phase"}) : std::string_view();
      return phase == "Succeeded" || phase == "Failed";
    };
    if (!wait(over, 30s)) return "still there" + waiting() + logs();
    const auto now = live();
    std::string out =
        str(get_string(*now, {"status", "phase"})) + " " + str(get_string(*now, {"status", "reason"}));
    for (const Json& status : get_array(*now, {"status", "containerStatuses"}))
      out += trim(get_string(status, {"state", "terminated", "message"}));
    return out;
  }
};

TEST_F(topology, gpus_come_from_one_numa_node_or_not_at_all) {
  bring_up(
      "nodes: [{name: gpu, gpus: {model: A100-SXM4-80GB, count: 8}, numa: 2, topologyPolicy: "
      "single-numa-node, "
      "driver: preinstalled, driverVersion: 580.95.05}]");
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(run("four", 4), "Succeeded 4");
  EXPECT_EQ(run("five", 5), "Failed TopologyAffinityError");
  EXPECT_EQ(run("again", 4), "Succeeded 4") << "what was refused holds nothing";
}

}  // namespace
}  // namespace gpuop
