// Seeded chaos on the virtual clock: whatever happens to kubelet, runtime, API server and containers, in the
// end every pod that should run runs, and nothing else is left.
#include <cstdlib>
#include <random>
#include <set>

#include "fixture.h"

namespace gpuop::cluster {
namespace {

class Storm {
 public:
  explicit Storm(std::uint64_t seed) : random_(seed) {
    n.runtime->behave = [this](const ContainerSpec& spec) {
      RecordingRuntime::Play play;
      if (spec.name == "init") play = lives(std::chrono::milliseconds(pick(3000)), 0);
      play.stops_after = std::chrono::milliseconds(pick(2000));
      if (!calm_ && pick(10) == 0) play = lives(std::chrono::milliseconds(pick(5000)), pick(3));
      if (!calm_ && pick(10) == 0) play.refuses = Error(Code::kInvalid, "refused");
      return play;
    };
    n.start();
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      n.pass(std::chrono::milliseconds(pick(3000)));
    }
  }

  void end_well() {
    calm_ = true;
    n.api->refuse_writes = false;
    if (!n.kubelet) n.restart();
    if (away_) n.runtime->come_back(false);
    n.runtime->missing_images.clear();
    n.pass(4min);
  }

  void check() {
    EXPECT_EQ(n.kubelet->pods(), pods_.size());
    std::set<std::string> expected, sandboxes;
    for (const std::string& name : pods_) {
      EXPECT_EQ(n.phase(name), "Running") << name << to_pretty_text(n.pod_of(name));
      EXPECT_EQ(n.condition(name, "Ready"), "True") << name;
      const std::string uid = str(get_string(n.pod_of(name), {"metadata", "uid"}));
      expected.insert(uid);
      const ContainerInfo* info = n.runtime->container(uid, "c");
      ASSERT_NE(info, nullptr) << name;
      EXPECT_EQ(info->state, ContainerState::kRunning);
      EXPECT_EQ(get_string(n.container(name, "c"), {"containerID"}), "containerd://" + info->id);
      EXPECT_EQ(n.restarts(name, "c"), info->attempt);
    }
    for (const SandboxSpec& spec : n.runtime->sandboxes()) sandboxes.insert(spec.uid);
    EXPECT_EQ(sandboxes, expected);
    for (const std::string& name : gone_) EXPECT_FALSE(n.api->has(Node::pod_path(name))) << name;
    EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"status"}), "True");
    std::set<std::string> folders;
    const auto listed = list_dir(n.dir.path() / "var/lib/kubelet/pods");
    if (listed) folders.insert(listed->begin(), listed->end());
    EXPECT_TRUE(std::ranges::includes(expected, folders));
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  void step() {
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
        return add();
      case 3:
        return remove();
      case 4:
        return crash();
      case 5:
        return n.kubelet ? n.restart() : n.start();
      case 6:
        n.kubelet.reset();
        return;
      case 7:
        away_ = true;
        return n.runtime->go_away();
      case 8:
        if (!std::exchange(away_, false)) return;
        return n.runtime->come_back(pick(3) == 0);
      case 9:
        n.api->refuse_writes = !n.api->refuse_writes;
        return;
      case 10:
        if (!n.runtime->missing_images.empty()) return n.runtime->missing_images.clear();
        n.runtime->missing_images.insert("a:1");
        return;
      default:
        return change();
    }
  }
  void add() {
    const std::string name = "p" + std::to_string(next_++);
    pods_.insert(name);
    n.add_pod(name, R"(
terminationGracePeriodSeconds: 1
volumes: [{name: v, configMap: {name: cm, optional: true}}, {name: e, emptyDir: {}}]
initContainers: [{name: init, image: 'a:1'}, {name: side, image: 'a:1', restartPolicy: Always}]
containers:
- {name: c, image: 'a:1', volumeMounts: [{name: v, mountPath: /v}], readinessProbe: {exec: {command: [x]}}}
)");
  }
  void remove() {
    if (pods_.empty()) return;
    auto victim = pods_.begin();
    std::advance(victim, pick(static_cast<int>(pods_.size())));
    if (pick(4) == 0) {
      n.api->erase(Node::pod_path(*victim));
    } else {
      n.api->delete_pod(Node::pod_path(*victim), pick(2));
    }
    gone_.insert(*victim);
    pods_.erase(victim);
  }
  void crash() {
    for (const std::string& name : pods_) {
      const std::string uid = str(get_string(n.pod_of(name), {"metadata", "uid"}));
      if (pick(3) == 0) n.runtime->exit(uid, pick(2) == 0 ? "c" : "side", pick(3));
    }
  }
  void change() {
    n.api->put(
        "/api/v1/namespaces/default/configmaps/cm",
        yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: cm, namespace: default}, data: {a: '" +
             std::to_string(pick(5)) + "'}}"));
  }

  Node n{true};
  std::mt19937_64 random_;
  bool calm_ = false, away_ = false;
  int next_ = 0;
  std::set<std::string> pods_, gone_;
};

TEST(cluster_kubelet, storms_end_well) {
  const char* asked = std::getenv("STORMS");  // more of them, to look for rare faults
  const auto seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 4;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Storm storm(seed);
    storm.run(40);
    storm.end_well();
    storm.check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gpuop::cluster
