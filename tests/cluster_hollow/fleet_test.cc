// Hollow fleets: the way from bare to schedulable without a process.
#include <gtest/gtest.h>

#include "runs.h"

namespace gpuop::cluster::runs {
namespace {

std::unique_ptr<HollowFleet> make(HollowFleetOptions options) {
  auto fleet = HollowFleet::create(std::move(options));
  EXPECT_TRUE(fleet) << fleet.error().text();
  return fleet ? std::move(*fleet) : nullptr;
}

HollowFleetOptions with_faults(std::string_view faults) {
  HollowFleetOptions options = options_of(kThree);
  auto plan = parse_faults(faults, "faults.yaml");
  EXPECT_TRUE(plan) << plan.error().text();
  if (plan) options.faults = std::move(*plan);
  return options;
}

// One GPU node that registers with a NoSchedule taint of this key.
HollowFleetOptions one_tainted(const std::string& key) {
  return options_of(R"(
mode: hollow
nodes:
  - name: l4
    gpus: {model: L4, count: 1}
    driver: preinstalled
    taints: [{key: )" +
                    key + ", effect: NoSchedule}]\n");
}

TEST(cluster_hollow, three_nodes_become_schedulable) {
  auto fleet = make(options_of(kThree));
  ASSERT_TRUE(fleet);
  const bool ready = fleet->loop().run_until([&] { return fleet->ready(); }, 10min);
  ASSERT_TRUE(ready) << fleet->first_broken_link() << "\n" << fleet::render(fleet->chain());
  const auto chain = fleet->chain();
  ASSERT_EQ(chain.nodes.size(), 3u);
  EXPECT_EQ(chain.nodes[0].product, "8 × NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(chain.nodes[0].allocatable.at("nvidia.com/gpu"), 8);
  EXPECT_EQ(chain.nodes[2].product, "2 × NVIDIA-L4");
  EXPECT_EQ(chain.nodes[2].allocatable.at("nvidia.com/gpu"), 2);
  EXPECT_FALSE(chain.nodes[1].gpu);
  EXPECT_NE(fleet->events().text().find("node/l4 plugin nvidia.com/gpu"), std::string::npos);
}

// No other nodes are there: what takes the taints off has to run under them.
TEST(cluster_hollow, nodes_that_register_with_the_startup_taint_become_schedulable) {
  auto options = one_tainted("nvidia.com/gpu.not-ready");
  for (Json& object : options.objects) {
    if (get_string(object, {"kind"}) != "ClusterPolicy") continue;
    set(object, {"spec", "fleet", "startupTaint", "enabled"}, true);
    set(object, {"spec", "fleet", "dedicatedTaint", "enabled"}, true);
  }
  auto fleet = make(std::move(options));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min)) << fleet->first_broken_link();
  EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
  const auto node = kube::await(
      fleet->loop(), [&](const auto& done) { return fleet->client().get(kube::kNodes, "", "l4", done); });
  ASSERT_TRUE(node);
  ASSERT_EQ(get_array(*node, {"spec", "taints"}).size(), 1u) << to_text(*node);
  EXPECT_EQ(get_string(get_array(*node, {"spec", "taints"})[0], {"key"}), "nvidia.com/gpu");
}

// What the API server and the fleet make of the operator's objects is nobody's change.
TEST(cluster_hollow, an_operator_that_was_killed_takes_nothing_for_a_change) {
  auto fleet = make(with_faults(R"(faults:
  - {at: 120s, node: "*", event: container-crash, container: gpu-operator}
  - {at: 240s, node: "*", event: container-crash, container: gpu-operator}
)"));
  ASSERT_TRUE(fleet);
  fleet->loop().run_for(119s);
  ASSERT_TRUE(fleet->ready()) << fleet->first_broken_link();
  fleet->loop().run_for(10min);
  EXPECT_TRUE(fleet->ready()) << fleet->first_broken_link();
  const auto events = kube::await(
      fleet->loop(), [&](const auto& done) { return fleet->client().list(kube::kEvents, "", {}, done); });
  ASSERT_TRUE(events);
  EXPECT_FALSE(get_array(*events, {"items"}).empty());
  for (const Json& event : get_array(*events, {"items"}))
    EXPECT_NE(get_string(event, {"reason"}), "ChangePutBack") << to_text(event);
}

TEST(cluster_hollow, an_operator_that_finds_no_node_is_named) {
  auto fleet = make(one_tainted("example.com/private"));
  ASSERT_TRUE(fleet);
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->ready(); }, 5min));
  EXPECT_NE(fleet->first_broken_link().find("example.com/private"), std::string::npos)
      << fleet->first_broken_link();
}

// The validators of the old policy end while those of the new one start beside them.
TEST(cluster_hollow, a_policy_that_takes_anothers_place_at_once_becomes_ready) {
  auto fleet = make(options_of(R"(
mode: hollow
nodes:
  - name: l4
    gpus: {model: L4, count: 2}
    driver: preinstalled
  - name: a100
    gpus: {model: A100-SXM4-80GB, count: 1}
    driver: preinstalled
)"));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
  const Json old = *kube::await(fleet->loop(), [&](const auto& done) {
    return fleet->client().get(kube::kClusterPolicies, "", "cluster-policy", done);
  });
  ASSERT_TRUE(kube::await(fleet->loop(), [&](const auto& done) {
    return fleet->client().remove(kube::kClusterPolicies, "", "cluster-policy", {}, done);
  }));
  const Json next = JsonObject{{"apiVersion", "nvidia.com/v1"},
                               {"kind", "ClusterPolicy"},
                               {"metadata", JsonObject{{"name", "cluster-policy"}}},
                               {"spec", *find(old, {"spec"})}};
  ASSERT_TRUE(kube::await(fleet->loop(), [&](const auto& done) {
    return fleet->client().create(kube::kClusterPolicies, "", next, {}, done);
  }));
  EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h))
      << fleet->first_broken_link() << "\n"
      << fleet->unsettled();
}

TEST(cluster_hollow, what_never_comes_is_named) {
  auto fleet = make(with_faults("faults:\n  - {node: l4, event: lost}\n"));
  ASSERT_TRUE(fleet);
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min));
  EXPECT_NE(fleet->first_broken_link().find("l4"), std::string::npos) << fleet->first_broken_link();
}

// A fault without `at` comes before the first thing that anybody does.
TEST(cluster_hollow, what_fails_from_the_start_fails_first) {
  auto fleet = make(with_faults(R"(
faults:
  - {node: l4, event: lost}
  - {node: a100, event: kubelet-restart, for: 5s}
  - {node: cpu, event: reboot}
)"));
  ASSERT_TRUE(fleet);
  const auto nodes = [&] {
    const auto list = kube::await(
        fleet->loop(), [&](const auto& done) { return fleet->client().list(kube::kNodes, "", {}, done); });
    std::string out;
    for (const Json& node : get_array(*list, {"items"})) out += str(kube::name_of(node)) + " ";
    return out;
  };
  fleet->loop().run_for(4s);
  EXPECT_EQ(nodes(), "");
  for (const char* kubelet : {"kubelet/a100 ", "kubelet/l4 ", "kubelet/cpu "}) {
    EXPECT_EQ(fleet->events().text().find(kubelet), std::string::npos) << kubelet;
  }
  fleet->loop().run_for(4s);
  EXPECT_EQ(nodes(), "a100 ");
  fleet->loop().run_for(30s);
  EXPECT_EQ(nodes(), "a100 cpu ");
}

TEST(cluster_hollow, a_kept_cluster_goes_on) {
  TempDir dir;
  const auto uids = [](HollowFleet& fleet) {
    std::string out;
    for (const kube::Resource& type : {kube::kNodes, kube::kPods}) {
      const auto list = kube::await(
          fleet.loop(), [&](const auto& done) { return fleet.client().list(type, "", {}, done); });
      // What has done its work once, as the validator's pods, is made again.
      for (const Json& item : get_array(*list, {"items"}))
        if (get_string(item, {"spec", "restartPolicy"}, "Always") == "Always")
          out += str(kube::uid_of(item)) + "\n";
    }
    return out;
  };
  HollowFleetOptions options = options_of(kThree);
  options.data_dir = dir.path();
  std::string before;
  Time ended{};
  {
    auto fleet = make(options);
    ASSERT_TRUE(fleet);
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h));
    before = uids(*fleet);
    ended = fleet->loop().now();
    HollowFleetOptions second = options;
    const auto refused = HollowFleet::create(std::move(second));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().text(), "open data folder '" + dir.path().string() +
                                          "': another process uses this data folder; end it, or name "
                                          "another folder");
  }
  auto fleet = make(options);
  ASSERT_TRUE(fleet);
  EXPECT_GT(fleet->loop().now(), ended);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
  EXPECT_EQ(uids(*fleet), before);
}

TEST(cluster_hollow, a_lost_gpu_is_not_offered_until_the_plugin_is_restarted) {
  auto fleet = make(with_faults(R"(
faults:
  - {at: 100s, node: a100, event: gpu-lost, gpu: 3, for: 10s}
  - {at: 200s, node: a100, event: plugin-crash}
)"));
  ASSERT_TRUE(fleet);
  const auto gpus = [&] { return fleet->chain().nodes[0].allocatable["nvidia.com/gpu"]; };
  fleet->loop().run_for(90s);
  EXPECT_EQ(gpus(), 8);
  fleet->loop().run_for(60s);
  EXPECT_EQ(gpus(), 7);
  EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h));
  EXPECT_EQ(gpus(), 8);
}

TEST(cluster_hollow, a_kernel_upgrade_shows_in_the_node_and_its_labels) {
  auto fleet = make(
      with_faults("faults:\n  - {at: 60s, node: l4, event: kernel-upgrade, kernel: 6.8.0-99-generic}\n"));
  ASSERT_TRUE(fleet);
  EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
  EXPECT_NE(
      fleet->normalised().find("\"feature.node.kubernetes.io/kernel-version.full\":\"6.8.0-99-generic\""),
      std::string::npos);
}

TEST(cluster_hollow, a_clock_that_jumps_ends_like_one_that_does_not) {
  std::vector<std::string> ends;
  for (const char* faults :
       {"faults: []\n", "faults:\n  - {at: 100s, clock: 1h}\n  - {at: 160s, clock: \"-3h\"}\n"}) {
    auto fleet = make(with_faults(faults));
    ASSERT_TRUE(fleet);
    fleet->loop().run_for(90s);
    ASSERT_TRUE(fleet->ready()) << fleet->first_broken_link();
    fleet->loop().run_for(110s);
    EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
    ends.push_back(fleet->normalised());
  }
  EXPECT_TRUE(ends[0] == ends[1]);
}

TEST(cluster_hollow, faults_that_strike_nobody_are_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"faults:\n  - {node: l40, event: reboot}\n",
       "line 2: faults[0].node: the fleet has no node 'l40'; there are a100, l4, cpu (did you mean 'l4'?)"},
      {"faults:\n  - {node: l4, event: gpu-lost, gpu: 2}\n",
       "node 'l4' has 2 GPUs, with indexes 0 to 1; got index 2"},
      {"faults:\n  - {api: error, where: {resource: clusterpolicy}}\n", "(did you mean 'clusterpolicies'?)"},
      {"faults:\n  - {api: error, where: {resource: leases/status}}\n",
       "where.resource: must be the plural name"},
      {"faults:\n  - {node: l4, event: container-crash, container: nvidia-device-plugn}\n",
       "(did you mean 'nvidia-device-plugin'?)"},
  };
  for (const auto& [text, part] : cases) {
    const auto fleet = HollowFleet::create(with_faults(text));
    ASSERT_FALSE(fleet);
    EXPECT_NE(fleet.error().text().find(part), std::string::npos) << fleet.error().text();
  }
}

TEST(cluster_hollow, a_fleet_with_a_container_in_back_off_is_not_stable) {
  // The first restart comes at once, the second after 10 s.
  auto fleet = make(with_faults(R"(
faults:
  - {at: 60s, node: "*", event: container-crash, container: work*}
  - {at: 63s, node: "*", event: container-crash, container: worker}
)"));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->events().elapsed() > 65s; }, 10min));
  EXPECT_TRUE(fleet->ready());
  EXPECT_NE(fleet->unsettled().find("container worker waits: CrashLoopBackOff"), std::string::npos)
      << fleet->unsettled();
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(3s); }, 10min)) << fleet->unsettled();
  EXPECT_GE(fleet->events().elapsed(), 73s) << "its back-off is 10 s";
  EXPECT_EQ(fleet->unsettled(), "");
  EXPECT_TRUE(fleet->idle_faults().empty());
}

// What the policy and the nodes said last is not enough.
TEST(cluster_hollow, without_an_operator_that_runs_nothing_is_ready) {
  auto fleet = make(with_faults(R"(
faults:
  - {at: 60s, node: "*", event: container-crash, container: gpu-operator}
  - {at: 63s, node: "*", event: container-crash, container: gpu-operator}
)"));
  ASSERT_TRUE(fleet);
  fleet->loop().run_for(59s);
  EXPECT_TRUE(fleet->ready()) << fleet->first_broken_link();
  fleet->loop().run_for(6s);
  EXPECT_FALSE(fleet->ready()) << "it waits out a back-off of 10 s";
  EXPECT_TRUE(fleet->first_broken_link().starts_with(
      "operator: Deployment gpu-operator: 0 of 1 replicas available; pod gpu-operator-"))
      << fleet->first_broken_link();
  EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 30s)) << fleet->first_broken_link();
}

TEST(cluster_hollow, stable_waits_for_faults_that_come_late) {
  auto fleet = make(with_faults("faults:\n  - {at: 4m, api: error, times: 1, name: late}\n"));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 3min)) << fleet->first_broken_link();
  ASSERT_EQ(fleet->idle_faults().size(), 1u);
  EXPECT_TRUE(fleet->idle_faults()[0].late);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 10min)) << fleet->unsettled();
  EXPECT_GE(fleet->events().elapsed(), 4min);
  EXPECT_TRUE(fleet->idle_faults().empty());
  EXPECT_EQ(fleet->struck(), 1u);
}

TEST(cluster_hollow, faults_of_nodes_that_struck_nothing_are_told) {
  auto fleet = make(with_faults(R"(
faults:
  - {node: l4, event: xid, xid: 79}
  - {node: cpu, event: container-crash, container: nvidia-device-plugin, at: 60s}
  - {node: cpu, event: pull-failure, at: 61s, for: 1s}
  - {node: cpu, event: pull-delay, delay: 1s, for: 10s}
  - {node: cpu, event: reboot, at: 62s}
)"));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 10min)) << fleet->first_broken_link();
  std::string told;
  for (const IdleFault& fault : fleet->idle_faults()) told += fault.text + "\n";
  EXPECT_EQ(
      told,
      "faults.yaml:3: fault 'fault 1': struck nothing: no driver was loaded there then, to report it\n"
      "faults.yaml:4: fault 'fault 2': struck nothing: no container 'nvidia-device-plugin' ran there then; "
      "those that did: worker\n"
      "faults.yaml:5: fault 'fault 3': struck nothing: no image was pulled there then\n");
}

TEST(cluster_hollow, light_nodes_beside_each_other) {
  auto fleet = make(options_of(R"(
mode: light
nodes:
  - name: gpu
    count: 20
    gpus: {model: H200, count: 8}
)"));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min))
      << fleet->first_broken_link() << fleet::render(fleet->chain());
  EXPECT_EQ(fleet->chain().nodes[19].allocatable.at("nvidia.com/gpu"), 8);
}

}  // namespace
}  // namespace gpuop::cluster::runs
