// Hollow fleets on a cluster that an earlier one has left: what is said of it is of this run, and of the
// fleet file as it is now.
#include <gtest/gtest.h>

#include <utility>

#include "cluster/fleet/kept.h"
#include "runs.h"

namespace gpuop::cluster::runs {
namespace {

constexpr const char* kLight = R"(
mode: light
nodes:
  - name: n
    count: 3
    gpus: {model: H200, count: 8}
)";

std::unique_ptr<HollowFleet> make(HollowFleetOptions options) {
  auto fleet = HollowFleet::create(std::move(options));
  EXPECT_TRUE(fleet) << fleet.error().text();
  return fleet ? std::move(*fleet) : nullptr;
}

// A cluster that one run has brought up and left.
class Kept {
 public:
  explicit Kept(std::string_view file, const std::function<void(HollowFleet&)>& last = {}) {
    auto fleet = make(options(file));
    if (!fleet) return;
    EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
    if (last) last(*fleet);
  }
  HollowFleetOptions options(std::string_view file) const {
    HollowFleetOptions out = options_of(file);
    out.data_dir = dir_.path();
    return out;
  }

 private:
  TempDir dir_;
};

void set_policy(HollowFleetOptions& options, Keys path, const Json& value) {
  for (Json& object : options.objects)
    if (get_string(object, {"kind"}) == "ClusterPolicy") set(object, path, value);
}

Json node_of(HollowFleet& fleet, const std::string& name) {
  const auto node = kube::await(
      fleet.loop(), [&](const auto& done) { return fleet.client().get(kube::kNodes, "", name, done); });
  return node ? *node : Json();
}

std::string_view gpus(const Json& node, std::string_view of) {
  return get_string(node, {"status", of, "nvidia.com/gpu"}, "none");
}

TEST(cluster_hollow, a_plugin_that_is_switched_off_takes_its_resource_along) {
  for (const char* file : {kThree, kLight}) {
    const Kept kept(file);
    HollowFleetOptions options = kept.options(file);
    set_policy(options, {"spec", "devicePlugin", "enabled"}, false);
    const std::string name = options.fleet.nodes[0].name;
    auto fleet = make(std::move(options));
    ASSERT_TRUE(fleet);
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min))
        << name << ": " << fleet->first_broken_link();
    EXPECT_EQ(gpus(node_of(*fleet, name), "allocatable"), "0") << name;
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(6min); }, 1h));
    EXPECT_EQ(gpus(node_of(*fleet, name), "allocatable"), "0") << name;
    EXPECT_EQ(gpus(node_of(*fleet, name), "capacity"), "0") << name;
  }
}

// A plugin's pod that goes while its node runs: allocatable at once, capacity after the kubelet's grace.
TEST(cluster_hollow, a_plugin_that_goes_from_a_light_node_leaves_its_capacity_for_a_while) {
  auto fleet = make(options_of(kLight));
  ASSERT_TRUE(fleet);
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h));
  ASSERT_EQ(gpus(node_of(*fleet, "n-0"), "allocatable"), "8");
  const Json off = *parse_json(R"({"spec":{"devicePlugin":{"enabled":false}}})");
  const auto changed = kube::await(fleet->loop(), [&](const auto& done) {
    return fleet->client().patch(kube::kClusterPolicies, "", "cluster-policy", kube::Patch::kMerge, off, {},
                                 done);
  });
  ASSERT_TRUE(changed) << changed.error().message;
  fleet->loop().run_for(1min);
  EXPECT_EQ(gpus(node_of(*fleet, "n-0"), "allocatable"), "0");
  EXPECT_EQ(gpus(node_of(*fleet, "n-0"), "capacity"), "8");
  EXPECT_TRUE(fleet->ready()) << fleet->first_broken_link();
  fleet->loop().run_for(5min);
  EXPECT_EQ(gpus(node_of(*fleet, "n-0"), "capacity"), "0");
}

TEST(cluster_hollow, what_the_run_before_said_makes_nothing_ready) {
  for (const char* file : {kThree, kLight}) {
    const Kept kept(file);
    auto fleet = make(kept.options(file));
    ASSERT_TRUE(fleet);
    const Time began = fleet->loop().now();
    EXPECT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min)) << fleet->first_broken_link();
    const auto pods = kube::await(
        fleet->loop(), [&](const auto& done) { return fleet->client().list(kube::kPods, "", {}, done); });
    for (const Json& pod : get_array(*pods, {"items"})) EXPECT_FALSE(is_of_the_past(pod, began)) << file;
    for (const FleetNode& node : kept.options(file).fleet.nodes)
      EXPECT_FALSE(is_unheard(node_of(*fleet, node.name), began)) << node.name;
  }
  const Kept kept(kThree);
  HollowFleetOptions options = kept.options(kThree);
  options.faults = *parse_faults("faults: [{node: '*', event: lost}]\n", "faults.yaml");
  auto fleet = make(std::move(options));
  ASSERT_TRUE(fleet);
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->ready(); }, 30s));
  EXPECT_EQ(fleet->first_broken_link(), "node a100: its kubelet has not reported in this run");
}

TEST(cluster_hollow, a_kept_cluster_without_an_operator_is_not_ready) {
  const Kept kept(kThree, [](HollowFleet& fleet) {
    const auto removed = kube::await(fleet.loop(), [&](const auto& done) {
      return fleet.client().remove(kube::kDeployments, "gpu-operator", "gpu-operator",
                                   {.propagation = "Background"}, done);
    });
    EXPECT_TRUE(removed);
    fleet.loop().run_for(1min);
    EXPECT_FALSE(fleet.ready());
  });
  HollowFleetOptions options = kept.options(kThree);
  options.objects.clear();
  auto fleet = make(std::move(options));
  ASSERT_TRUE(fleet);
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min));
  EXPECT_NE(fleet->first_broken_link().find("has no Deployment gpu-operator"), std::string::npos)
      << fleet->first_broken_link();
}

TEST(cluster_hollow, a_fleet_file_that_changed_is_followed) {
  const Kept kept(R"(
mode: hollow
nodes:
  - {name: a100, gpus: {model: A100-SXM4-80GB, count: 8}, driver: preinstalled, labels: {zone: a, rack: r1}}
  - {name: l4, gpus: {model: L4, count: 2}, driver: container}
  - {name: bare, gpus: {model: L4, count: 1}, driver: preinstalled}
  - {name: cpu, taints: [{key: t, value: old, effect: NoSchedule}]}
)");
  auto fleet = make(kept.options(R"(
mode: hollow
nodes:
  - {name: a100, gpus: {model: H200, count: 4}, driver: preinstalled, kernel: 6.8.0-1-generic, cpus: 64, labels: {zone: b}}
  - {name: t4, gpus: {model: T4, count: 1}, driver: preinstalled}
  - {name: bare}
  - {name: cpu, taints: [{key: t, value: new, effect: NoSchedule}]}
)"));
  ASSERT_TRUE(fleet);
  ASSERT_EQ(fleet->notes().size(), 2u);
  EXPECT_NE(fleet->notes()[0].find("node 'bare': its driver was 'preinstalled' and is 'none' now"),
            std::string::npos)
      << fleet->notes()[0];
  EXPECT_NE(fleet->notes()[1].find("node 'l4' is kept in '"), std::string::npos) << fleet->notes()[1];
  ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min)) << fleet->first_broken_link();
  const Json a100 = node_of(*fleet, "a100");
  EXPECT_EQ(gpus(a100, "allocatable"), "4");
  EXPECT_EQ(get_string(a100, {"status", "nodeInfo", "kernelVersion"}), "6.8.0-1-generic");
  EXPECT_EQ(get_string(a100, {"status", "capacity", "cpu"}), "64");
  EXPECT_EQ(kube::label(a100, "nvidia.com/gpu.product"), "NVIDIA-H200");
  EXPECT_EQ(kube::label(a100, "zone"), "b");
  EXPECT_FALSE(has(a100, {"metadata", "labels", "rack"}));
  EXPECT_EQ(gpus(node_of(*fleet, "t4"), "allocatable"), "1");
  EXPECT_NE(kube::label(node_of(*fleet, "bare"), "nvidia.com/gpu.present"), "true");
  EXPECT_EQ(to_text(*find(node_of(*fleet, "cpu"), {"spec", "taints"})),
            R"([{"key":"t","value":"new","effect":"NoSchedule"}])");
  EXPECT_TRUE(node_of(*fleet, "l4").is_null());
  const auto pods = kube::await(
      fleet->loop(), [&](const auto& done) { return fleet->client().list(kube::kPods, "", {}, done); });
  for (const Json& pod : get_array(*pods, {"items"})) EXPECT_NE(get_string(pod, {"spec", "nodeName"}), "l4");
}

// Nothing on a node would ever take back that its OS has a driver.
TEST(cluster_hollow, a_node_whose_driver_changed_is_installed_anew) {
  const auto file = [](const char* driver) {
    return "mode: hollow\nnodes: [{name: n, gpus: {model: L4, count: 2}, driver: " + std::string(driver) +
           "}]\n";
  };
  const Kept kept(file("preinstalled"));
  std::string uid;
  for (const char* driver : {"preinstalled", "container", "preinstalled"}) {
    auto fleet = make(kept.options(file(driver)));
    ASSERT_TRUE(fleet);
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
    const Json node = node_of(*fleet, "n");
    EXPECT_EQ(uid.empty(), fleet->notes().empty());
    EXPECT_NE(std::exchange(uid, str(kube::uid_of(node))), kube::uid_of(node));
    const bool own = std::string_view(driver) == "preinstalled";
    EXPECT_EQ(kube::label(node, "nvidia.com/gpu.deploy.driver"), own ? "pre-installed" : "true");
    EXPECT_EQ(gpus(node, "allocatable"), "2");
    std::size_t drivers = 0;
    const auto pods = kube::await(
        fleet->loop(), [&](const auto& done) { return fleet->client().list(kube::kPods, "", {}, done); });
    for (const Json& pod : get_array(*pods, {"items"}))
      drivers += kube::label(pod, "app") == "nvidia-driver-daemonset" ? 1 : 0;
    EXPECT_EQ(drivers, own ? 0u : 1u) << driver;
  }
}

void name_policy(HollowFleetOptions& options, const std::string& name) {
  set_policy(options, {"metadata", "name"}, Json(name));
}
std::vector<std::string> policies_of(HollowFleet& fleet) {
  std::vector<std::string> out;
  const auto found = kube::await(fleet.loop(), [&](const auto& done) {
    return fleet.client().list(kube::kClusterPolicies, "", {}, done);
  });
  for (const Json& policy : get_array(*found, {"items"}))
    out.push_back(str(kube::name_of(policy)) + " " + str(get_string(policy, {"status", "state"})));
  return out;
}

TEST(cluster_hollow, a_policy_of_another_name_takes_the_place_of_the_last_runs) {
  const Kept kept(kThree);
  for (const char* name : {"other", "other", "cluster-policy"}) {
    HollowFleetOptions options = kept.options(kThree);
    name_policy(options, name);
    set_policy(options, {"spec", "gfd", "enabled"}, std::string_view(name) == "cluster-policy");
    auto fleet = make(std::move(options));
    ASSERT_TRUE(fleet);
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 1h)) << fleet->first_broken_link();
    EXPECT_EQ(policies_of(*fleet), std::vector{std::string(name) + " ready"});
    const auto sets = kube::await(fleet->loop(), [&](const auto& done) {
      return fleet->client().list(kube::kDaemonSets, "gpu-operator", {}, done);
    });
    bool gfd = false;
    for (const Json& set : get_array(*sets, {"items"})) {
      gfd = gfd || kube::name_of(set) == "gpu-feature-discovery";
      const Json* owner = kube::controller_of(set);
      if (owner && get_string(*owner, {"kind"}) == "ClusterPolicy") {
        EXPECT_EQ(get_string(*owner, {"name"}), name) << kube::name_of(set);
      }
    }
    EXPECT_EQ(gfd, std::string_view(name) == "cluster-policy");
  }
}

TEST(cluster_hollow, a_policy_that_somebody_made_stays_and_an_ignored_one_is_not_ready) {
  const Kept kept(kThree, [](HollowFleet& fleet) {
    const auto remade = [&](const auto& call) {
      const auto answer = kube::await(fleet.loop(), call);
      EXPECT_TRUE(answer);
    };
    Json policy = *kube::await(fleet.loop(), [&](const auto& done) {
      return fleet.client().get(kube::kClusterPolicies, "", "cluster-policy", done);
    });
    remade([&](const auto& done) {
      return fleet.client().remove(kube::kClusterPolicies, "", "cluster-policy", {}, done);
    });
    policy = JsonObject{{"apiVersion", "nvidia.com/v1"},
                        {"kind", "ClusterPolicy"},
                        {"metadata", JsonObject{{"name", "mine"}}},
                        {"spec", *find(policy, {"spec"})}};
    remade([&](const auto& done) {
      return fleet.client().create(kube::kClusterPolicies, "", policy, {}, done);
    });
    fleet.loop().run_for(2min);
  });
  HollowFleetOptions options = kept.options(kThree);
  name_policy(options, "other");
  auto fleet = make(std::move(options));
  ASSERT_TRUE(fleet);
  ASSERT_EQ(fleet->notes().size(), 1u);
  EXPECT_NE(
      fleet->notes()[0].find("warning: ClusterPolicy 'other' is ignored by the operator: 'mine' is older"),
      std::string::npos)
      << fleet->notes()[0];
  EXPECT_FALSE(fleet->loop().run_until([&] { return fleet->ready(); }, 10min));
  EXPECT_EQ(fleet->first_broken_link(), "ClusterPolicy 'other' is ignored by the operator: 'mine' is older");
  EXPECT_EQ(policies_of(*fleet), (std::vector<std::string>{"mine ready", "other ignored"}));
}

// What others did to a node is theirs.
TEST(cluster_hollow, a_fleet_file_that_did_not_change_changes_nothing) {
  const char* file = R"(
mode: light
nodes: [{name: n, labels: {zone: a}, taints: [{key: t, value: v, effect: NoSchedule}]}]
)";
  TempDir dir;
  for (const bool first : {true, false}) {
    HollowFleetOptions options = options_of(file);
    options.data_dir = dir.path();
    auto fleet = make(std::move(options));
    ASSERT_TRUE(fleet);
    fleet->loop().run_for(1min);
    const Json node = node_of(*fleet, "n");
    EXPECT_EQ(get_array(node, {"spec", "taints"}).size(), first ? 1u : 0u);
    EXPECT_EQ(kube::label(node, "mine"), first ? "" : "x");
    const Json patch = *parse_json(R"({"metadata":{"labels":{"mine":"x"}},"spec":{"taints":null}})");
    if (!first) continue;
    const auto patched = kube::await(fleet->loop(), [&](const auto& done) {
      return fleet->client().patch(kube::kNodes, "", "n", kube::Patch::kMerge, patch, {}, done);
    });
    ASSERT_TRUE(patched);
  }
}

}  // namespace
}  // namespace gpuop::cluster::runs
