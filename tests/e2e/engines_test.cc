// The toolkit configures each container engine, and a pod gets its GPU through it (container-toolkit-cdi.md
// §4.3).
#include "demo_fleet.h"

namespace gpuop {
namespace {

class engines : public DemoFleet {
 protected:
  void bring_up_on(const std::string& runtime) {
    bring_up("nodes: [{name: gpu, " + runtime +
             ", gpus: {model: A100-SXM4-80GB, count: 2}, driver: container}]");
  }
  std::string runtime_version() const {
    const auto node = nodes_->get("gpu");
    return node ? str(get_string(*node, {"status", "nodeInfo", "containerRuntimeVersion"})) : "";
  }
  // A pod with one GPU lists it.
  void one_gpu() {
    const Json pod = *parse_json(
        R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"wants-gpu","namespace":"gpu-operator"},)"
        R"("spec":{"restartPolicy":"Never","containers":[{"name":"c","image":")" +
        std::string(kImage) +
        R"(","command":["sh","-c","test $(nvidia-smi -L | grep -c GPU-) = 1"],)"
        R"("resources":{"limits":{"nvidia.com/gpu":"1"}}}]}})");
    const auto made = kube::await(
        loop_, [&](auto done) { return client_->create(kube::kPods, "gpu-operator", pod, {}, done); });
    ASSERT_TRUE(made) << made.error().message;
    const auto phase = [&] {
      const auto live = pods_->get("gpu-operator/wants-gpu");
      return live ? str(get_string(*live, {"status", "phase"})) : std::string();
    };
    EXPECT_TRUE(wait([&] { return phase() == "Succeeded" || phase() == "Failed"; }, 30s)) << logs();
    EXPECT_EQ(phase(), "Succeeded") << waiting() << logs();
  }
};

TEST_F(engines, crio) {
  bring_up_on("runtime: crio");
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(runtime_version(), "cri-o://1.34.0");
  EXPECT_NE(
      read_file(root_of("gpu") / "etc/crio/crio.conf.d/99-nvidia.conf").value_or("").find("runtimes.nvidia]"),
      std::string::npos);
  one_gpu();
}

// cri-dockerd hands no CDI devices on: the classic way, by the default runtime and environment variables.
TEST_F(engines, docker) {
  adjust_ = [](Json& policy) { set(policy, {"spec", "cdi", "enabled"}, false); };
  bring_up_on("runtime: docker, runtimeVersion: 27.5.1");
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(runtime_version(), "docker://27.5.1");
  EXPECT_NE(read_file(root_of("gpu") / "etc/docker/daemon.json")
                .value_or("")
                .find(R"("default-runtime": "nvidia")"),
            std::string::npos);
  one_gpu();
}

// One that does, to a Docker that has CDI on by itself.
TEST_F(engines, docker_with_cdi) {
  bring_up_on("runtime: docker, runtimeVersion: 28.3.0, criDockerdCdi: true");
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(runtime_version(), "docker://28.3.0");
  const auto daemon = parse_json(read_file(root_of("gpu") / "etc/docker/daemon.json").value_or(""));
  ASSERT_TRUE(daemon) << daemon.error().text();
  EXPECT_TRUE(get_bool(*daemon, {"features", "cdi"})) << to_text(*daemon);
  one_gpu();
}

// CDI is off there unless configured: the toolkit does.
TEST_F(engines, containerd_1_7) {
  bring_up_on("runtime: containerd, runtimeVersion: 1.7.27");
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(runtime_version(), "containerd://1.7.27");
  const std::string drop_in = read_file(root_of("gpu") / "etc/containerd/conf.d/99-nvidia.toml").value_or("");
  EXPECT_NE(drop_in.find("version = 2"), std::string::npos) << drop_in;
  EXPECT_NE(drop_in.find("enable_cdi = true"), std::string::npos) << drop_in;
  one_gpu();
}

}  // namespace
}  // namespace gpuop
