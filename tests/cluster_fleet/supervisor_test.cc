// A whole fleet as processes, with the real programs.
#include "cluster/fleet/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "cluster/fleet/install_tree.h"
#include "kube/config.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

class supervisor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) FAIL() << "a fleet needs root: run the tests as root";
    auto tree = stage_install_tree({BUILD_ROOT "/bin", BUILD_ROOT "/sim", "", BUILD_ROOT "/image"});
    ASSERT_TRUE(tree) << tree.error().text();
    options_.fleet = *parse_fleet(
        "nodes: [{name: gpu, gpus: {model: A100-SXM4-80GB, count: 2}, driver: preinstalled}, {name: cpu}]",
        "test");
    options_.state_dir = dir_.path() / "state";
    options_.install_tree = BUILD_ROOT "/image";
    options_.program = BUILD_ROOT "/bin/gpuctl";
    options_.image = "ghcr.io/gpu-operator/gpu-operator:test";
  }
  void start() {
    auto fleet = FleetProcess::start(
        loop_, options_, [this](const FleetStatus& status) { status_ = status; }, [this] { ended_ = true; });
    ASSERT_TRUE(fleet) << fleet.error().text();
    fleet_ = std::move(*fleet);
    ASSERT_TRUE(
        loop_.run_until([&] { return ended_ || status_.phase != FleetStatus::Phase::kStarting; }, 20s))
        << logs();
    ASSERT_EQ(status_.phase, FleetStatus::Phase::kUp) << status_.error << logs();
    client_ = *kube::make_client(loop_, *kube::load_kubeconfig({fleet_->kubeconfig().string()}));
  }
  std::string logs() {
    std::string out = "\n";
    for (const std::string& name :
         list_dir(options_.state_dir / "log").value_or(std::vector<std::string>{})) {
      out += "--- " + name + "\n" + read_file(options_.state_dir / "log" / name).value_or("");
    }
    return out;
  }
  // Watches until every object of that kind satisfies `good`, and there are `count`.
  bool await_all(const kube::Resource& type, std::size_t count,
                 const std::function<bool(const Json&)>& good) {
    kube::Informer informer(*client_, type, {.keep = {"*"}});
    informer.start();
    return loop_.run_until(
        [&] {
          std::size_t fine = 0;
          informer.for_each([&](const auto& object) { fine += good(*object) ? 1 : 0; });
          return informer.synced() && fine == count;
        },
        20s);
  }
  static bool ready(const Json& object) {
    const Json* condition = kube::condition(object, "Ready");
    return condition && get_string(*condition, {"status"}) == "True";
  }
  pid_t pid_of(const std::string& role, const std::string& node) {
    auto processes = list_fleet_processes(options_.state_dir);
    if (!processes) return 0;
    for (const FleetProcessInfo& info : *processes) {
      if (info.role == role && info.node == node) return info.pid;
    }
    return 0;
  }

  TempDir dir_{"fleet"};
  Loop loop_;
  FleetOptions options_;
  FleetStatus status_;
  bool ended_ = false;
  std::unique_ptr<FleetProcess> fleet_;
  std::unique_ptr<kube::Client> client_;
};

TEST_F(supervisor, nodes_become_ready_run_pods_and_everything_comes_back) {
  start();
  ASSERT_TRUE(await_all(kube::kNodes, 2, ready)) << logs();
  Json pod = *parse_json(
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default"},"spec":{)"
      R"("nodeName":"gpu","containers":[{"name":"c","image":"ghcr.io/gpu-operator/gpu-operator:test",)"
      R"("command":["sh","-c","hostname; nvidia-smi -L; ls /proc/driver; sleep 1000"],)"
      R"("volumeMounts":[{"name":"host","mountPath":"/host"}]}],)"
      R"("volumes":[{"name":"host","hostPath":{"path":"/"}}]}})");
  auto made =
      kube::await(loop_, [&](auto done) { return client_->create(kube::kPods, "default", pod, {}, done); });
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(await_all(kube::kPods, 1, ready)) << logs();

  // Whatever is killed comes back; the container runs on.
  pid_t container = 0;
  const auto processes = list_fleet_processes(options_.state_dir);
  ASSERT_TRUE(processes);
  for (const auto& info : *processes) {
    // The first of a container is its init; what it runs comes and goes.
    if (container == 0 && info.role == "container" && info.container == "default/p/c") container = info.pid;
  }
  ASSERT_GT(container, 0);
  for (const char* role : {"runtime", "kubelet"}) {
    pid_t before = pid_of(role, "gpu");
    ASSERT_GT(before, 0) << role;
    ::kill(before, SIGKILL);
    ASSERT_TRUE(loop_.run_until(
        [&] {
          pid_t now = pid_of(role, "gpu");
          return now > 0 && now != before;
        },
        10s))
        << role << logs();
  }
  EXPECT_TRUE(await_all(kube::kPods, 1, ready)) << logs();
  EXPECT_TRUE(file_exists("/proc/" + std::to_string(container)))
      << "containers outlive their runtime and kubelet" << logs();

  // The supervisor's end is everybody's.
  client_.reset();
  ::kill(fleet_->pid(), SIGKILL);
  ASSERT_TRUE(loop_.run_until([&] { return ended_; }, 10s));
  EXPECT_FALSE(file_exists("/proc/" + std::to_string(container)));
  EXPECT_FALSE(list_fleet_processes(options_.state_dir));
  fleet_.reset();
  EXPECT_FALSE(file_exists(options_.state_dir));
}

TEST_F(supervisor, nodes_join_a_cluster_that_is_there) {
  start();
  FleetOptions more = options_;
  more.fleet = *parse_fleet("nodes: [{name: late}]", "test");
  more.state_dir = dir_.path() / "more";
  // By path, as kubeconfig files of real clusters have it.
  kube::Config config = *kube::load_kubeconfig({fleet_->kubeconfig().string()});
  auto put = [&](const char* name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(dir_.path() / name, text));
  };
  put("ca.crt", config.ca_pem);
  put("client.crt", config.client_cert_pem);
  put("client.key", config.client_key_pem);
  put("config",
      "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: \"" +
          config.server +
          "\", certificate-authority: ca.crt}}], users: [{name: u, user: {client-certificate: client.crt, "
          "client-key: client.key}}], contexts: [{name: c, context: {cluster: c, user: u}}]}");
  more.kubeconfig = dir_.path() / "config";
  FleetStatus status;
  auto second = FleetProcess::start(loop_, more, [&](const FleetStatus& now) { status = now; }, nullptr);
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_TRUE(await_all(kube::kNodes, 3, ready)) << status.error << logs();
  for (const FleetService& service : status.services) EXPECT_NE(service.role, "control-plane");
}

TEST_F(supervisor, a_folder_holds_one_fleet) {
  start();
  auto second = FleetProcess::start(loop_, options_, nullptr, nullptr);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kBusy);
  EXPECT_TRUE(stop_fleet(options_.state_dir));
  EXPECT_FALSE(file_exists(options_.state_dir));
  auto none = stop_fleet(options_.state_dir);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace gpuop::cluster
