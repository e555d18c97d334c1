// Whatever happens to a node, its stack comes back to the state that it was in (docs/simulator.md).
#include <sys/stat.h>

#include <cstdlib>
#include <random>

#include "cluster/fleet/control.h"
#include "demo_fleet.h"

namespace gpuop {
namespace {

constexpr const char* kOneNode =
    "nodes: [{name: gpu, kernel: 5.15.0-1058-generic, gpus: {model: A100-SXM4-80GB, count: 2}, driver: "
    "container}]";

class node_events : public DemoFleet {
 protected:
  void happens(const std::vector<std::string>& words) {
    const auto event = cluster::parse_node_event(words);
    ASSERT_TRUE(event) << event.error().text();
    const auto sent = cluster::send_node_event(loop_, state_, "gpu", *event);
    ASSERT_TRUE(sent) << join(words, " ") << ": " << sent.error().text() << logs();
  }
  std::string refusal(const std::vector<std::string>& words) {
    const auto event = cluster::parse_node_event(words);
    if (!event) return event.error().text();
    const auto sent = cluster::send_node_event(loop_, state_, "gpu", *event);
    return sent ? std::string() : sent.error().text();
  }
  const Json& node() const {
    static const Json kNone;
    const auto found = nodes_->get("gpu");
    held_ = found;
    return found ? *found : kNone;
  }
  std::string boot_id() const { return str(get_string(node(), {"status", "nodeInfo", "bootID"})); }
  std::int64_t allocatable() const {
    return parse_int(get_string(node(), {"status", "allocatable", "nvidia.com/gpu"})).value_or(0);
  }
  std::int64_t restarts() const {
    std::int64_t sum = 0;
    pods_->for_each([&](const auto& pod) {
      for (const Json& status : get_array(*pod, {"status", "containerStatuses"})) {
        sum += get_int(status, {"restartCount"});
      }
    });
    return sum;
  }
  std::int64_t starts_of_validator() const {
    std::int64_t count = 0;
    pods_->for_each([&count](const auto& pod) {
      if (kube::label(*pod, "app") != "nvidia-operator-validator") return;
      for (const Json& status : get_array(*pod, {"status", "containerStatuses"}))
        count += 1 + get_int(status, {"restartCount"});
    });
    return count;
  }
  bool whole() const { return chain().ready() && settled() && picture() == before_; }
  void comes_back(const std::string& after, const std::function<bool()>& first = [] { return true; }) {
    const Duration began = loop_.elapsed();
    EXPECT_TRUE(wait([&] { return first() && whole(); }, 120s)) << "after " << after << "\n"
                                                                << render(chain()) << logs();
    RecordProperty(after, std::to_string((loop_.elapsed() - began) / 1ms) + " ms");
  }
  void boots(const std::vector<std::string>& words) {
    const std::string was = boot_id();
    const std::int64_t starts = starts_of_validator();
    happens(words);
    comes_back(join(words, " "), [&] { return boot_id() != was; });
    EXPECT_EQ(starts_of_validator(), starts + 1) << "it waits for the driver, which costs no back-off\n"
                                                 << logs();
  }

  void create(const std::string& name, const std::string& spec) {
    const Json pod = JsonObject{{"apiVersion", "v1"},
                                {"kind", "Pod"},
                                {"metadata", JsonObject{{"name", name}, {"namespace", "default"}}},
                                {"spec", *parse_json(spec)}};
    const auto made = kube::await(
        loop_, [&](const auto& done) { return client_->create(kube::kPods, "default", pod, {}, done); });
    ASSERT_TRUE(made) << made.error().message;
  }
  // The status of a pod of ours, as text.
  std::string status(const std::string& name) {
    const auto got = kube::await(
        loop_, [&](const auto& done) { return client_->get(kube::kPods, "default", name, done); });
    return got ? to_text(*gpuop::find(*got, {"status"})) : got.error().message;
  }
  bool says(const std::string& name, const std::string& text, Duration limit) {
    const Duration end = loop_.elapsed() + limit;
    for (;;) {
      if (status(name).find(text) != std::string::npos) return true;
      if (loop_.elapsed() > end) return false;
      loop_.run_for(100ms);
    }
  }
  void start() {
    bring_up(kOneNode);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(wait([&] { return settled(); }, 20s)) << logs();
    before_ = picture();
  }

  std::map<std::string, std::string> before_;
  mutable std::shared_ptr<const Json> held_;
};

TEST_F(node_events, each_ends_in_the_same_ready_state) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  const std::int64_t calm = restarts();
  happens({"kubelet-restart"});
  comes_back("kubelet-restart");
  happens({"runtime-restart"});
  comes_back("runtime-restart");
  EXPECT_EQ(restarts(), calm) << "containers outlive kubelet and runtime";
  happens({"runtime-restart", "--kill-shims"});
  comes_back("runtime-restart --kill-shims", [&] { return restarts() > calm; });
  // What holds a GPU when the node goes down is refused when it is back: the kubelet looks before the plugin
  // is.
  create("holds", R"({"containers":[{"name":"c","image":")" + std::string(kImage) +
                      R"(","command":["sleep","3600"],"resources":{"limits":{"nvidia.com/gpu":"1"}}}]})");
  ASSERT_TRUE(says("holds", "\"phase\":\"Running\"", 20s)) << status("holds") << logs();
  boots({"reboot"});
  EXPECT_TRUE(says("holds", "UnexpectedAdmissionError", 20s)) << status("holds");
  happens({"lose", "--network"});
  happens({"return"});
  comes_back("lose --network, return");
  const std::string was = boot_id();
  happens({"lose"});
  happens({"return"});
  comes_back("lose, return", [&] { return boot_id() != was; });
  boots({"kernel-upgrade", "6.8.0-61-generic"});
  EXPECT_EQ(get_string(node(), {"status", "nodeInfo", "kernelVersion"}), "6.8.0-61-generic");
}

TEST_F(node_events, a_gpu_that_is_pulled_out_is_not_offered) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  happens({"remove-gpu", "1"});
  EXPECT_TRUE(wait([&] { return allocatable() == 1; }, 20s)) << logs();
  EXPECT_EQ(get_string(node(), {"status", "capacity", "nvidia.com/gpu"}), "2");
  EXPECT_EQ(refusal({"remove-gpu", "1"}), "node 'gpu': GPU 1: it is out already");
  EXPECT_EQ(refusal({"insert-gpu", "0"}), "node 'gpu': GPU 0: it is in its slot already");
  happens({"insert-gpu", "1"});
  boots({"reboot"});
  EXPECT_EQ(allocatable(), 2);
}

TEST_F(node_events, a_deleted_node_is_back_when_its_kubelet_is_started_anew) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  const std::string was(kube::uid_of(node()));
  const auto gone = kube::await(
      loop_, [&](const auto& done) { return client_->remove(kube::kNodes, "", "gpu", {}, done); });
  ASSERT_TRUE(gone) << gone.error().message;
  EXPECT_TRUE(wait([&] { return !nodes_->get("gpu"); }, 5s));
  loop_.run_for(4s);
  EXPECT_FALSE(nodes_->get("gpu")) << "a kubelet registers once";
  happens({"kubelet-restart"});
  comes_back("delete node, kubelet-restart",
             [&] { return nodes_->get("gpu") && kube::uid_of(node()) != was; });
}

TEST_F(node_events, a_full_run_and_a_dead_registry_are_said_plainly) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  happens({"image-pull", "--fail", "dial tcp 192.0.2.1:443: connect: connection refused"});
  create("pulls", R"({"restartPolicy":"Never","containers":[{"name":"c","image":")" + std::string(kImage) +
                      R"(","imagePullPolicy":"Always","command":["true"]}]})");
  EXPECT_TRUE(says("pulls", "ImagePullBackOff", 20s)) << status("pulls");
  EXPECT_NE(
      status("pulls").find("Back-off pulling image \\\"" + std::string(kImage) + "\\\": ErrImagePull: "),
      std::string::npos)
      << status("pulls");
  EXPECT_NE(status("pulls").find("connection refused"), std::string::npos);
  happens({"image-pull", "--delay", "1500ms"});
  create("slow", R"({"restartPolicy":"Never","containers":[{"name":"c","image":")" + std::string(kImage) +
                     R"(","imagePullPolicy":"Always","command":["true"]}]})");
  loop_.run_for(1s);
  EXPECT_NE(status("slow").find("ContainerCreating"), std::string::npos) << status("slow");
  EXPECT_TRUE(says("slow", "\"phase\":\"Succeeded\"", 20s)) << status("slow");
  happens({"image-pull"});
  happens({"fill-run"});
  create("writes", R"({"restartPolicy":"Never","containers":[{"name":"c","image":")" + std::string(kImage) +
                       R"(","command":["true"]}]})");
  bool said = false;
  for (int i = 0; i < 100 && !said; ++i) {
    loop_.run_for(100ms);
    const auto events = kube::await(
        loop_, [&](const auto& done) { return client_->list(kube::kEvents, "default", {}, done); });
    said = events && to_text(*events).find("No space left on device") != std::string::npos;
  }
  EXPECT_TRUE(said) << status("writes") << logs();
  happens({"free-run"});
  EXPECT_TRUE(says("writes", "\"phase\":\"Succeeded\"", 30s)) << status("writes") << logs();
  EXPECT_TRUE(says("pulls", "\"phase\":\"Succeeded\"", 30s)) << status("pulls") << logs();
  comes_back("fill-run, free-run");
}

// By hand, while operands run: they have the driver open, so its container cannot unload it and stays until
// its grace is over. The driver manager of the next pod pauses them by their labels, and lets them come back.
TEST_F(node_events, a_driver_pod_that_is_deleted_leaves_the_driver_to_its_users) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  // A file that comes and goes with the module. The runtime, through which it is seen, may be another by
  // then.
  const auto module = [&] {
    struct stat info{};
    const fs::path file = root_of("gpu") / ".gpuop-kernel/sys/module/nvidia/version";
    return ::stat(file.c_str(), &info) == 0 ? info.st_ino : 0;
  };
  const auto loaded = module();
  ASSERT_NE(loaded, 0u);
  std::string name, uid;
  pods_->for_each([&](const auto& pod) {
    if (kube::label(*pod, "app") != "nvidia-driver-daemonset") return;
    name = str(kube::name_of(*pod));
    uid = str(kube::uid_of(*pod));
  });
  ASSERT_FALSE(name.empty());
  const auto removed = kube::await(
      loop_, [&](const auto& done) { return client_->remove(kube::kPods, "gpu-operator", name, {}, done); });
  ASSERT_TRUE(removed) << removed.error().message;
  const Duration began = loop_.elapsed();
  const auto gone = [&] {
    const auto pod = pods_->get(kube::object_key("gpu-operator", name));
    return !pod || kube::uid_of(*pod) != uid;
  };
  ASSERT_TRUE(wait(gone, 60s)) << logs();
  EXPECT_GE(loop_.elapsed() - began, 25s) << "it waits for who uses the driver, as long as it may";
  bool paused = false;
  comes_back("deletion of the driver pod", [&] {
    paused =
        paused || kube::label(node(), "nvidia.com/gpu.deploy.device-plugin") == "paused-for-driver-upgrade";
    return paused;
  });
  EXPECT_EQ(module(), loaded) << "the module of the same configuration stays loaded";
}

// `./run campaign node-events` runs twenty.
TEST_F(node_events, any_sequence_ends_in_the_same_state) {
  const auto number = [](const char* name, int fallback) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : fallback;
  };
  const int runs = number("GPUOP_NODE_EVENT_RUNS", 0);
  if (runs == 0) GTEST_SKIP() << "a campaign: ./run campaign node-events";
  const int first = number("GPUOP_NODE_EVENT_SEED", 1);
  const std::vector<std::vector<std::string>> kEvents{
      {"kubelet-restart"},   {"runtime-restart"}, {"runtime-restart", "--kill-shims"},   {"reboot"}, {"lose"},
      {"lose", "--network"}, {"fill-run"},        {"kernel-upgrade", "6.8.0-61-generic"}};
  for (int run = 0; run < runs; ++run) {
    SCOPED_TRACE("seed " + std::to_string(first + run));
    start();
    ASSERT_FALSE(HasFatalFailure());
    std::mt19937 random(static_cast<unsigned>(first + run));
    std::string told;
    for (int i = 0; i < 6; ++i) {
      const auto& event = kEvents[random() % kEvents.size()];
      told += join(event, " ") + "; ";
      happens(event);
      loop_.run_for(std::chrono::milliseconds(random() % 2000));
      if (event[0] == "lose") happens({"return"});
      if (event[0] == "fill-run") happens({"free-run"});
      ASSERT_FALSE(HasFatalFailure());
    }
    // The longest back-off that six crashes come to.
    EXPECT_TRUE(wait([&] { return whole(); }, 200s)) << told << "\n" << render(chain()) << logs();
    std::printf("seed %d: %s\n", first + run, told.c_str());
    take_down();
  }
}

}  // namespace
}  // namespace gpuop
