// The topology manager's hints and policies, and devices that follow them.
#include "cluster/kubelet/topology.h"

#include "fixture.h"
#include "scripted_plugin.h"

namespace gpuop::cluster {
namespace {

std::vector<Device> two_a_node() {
  return {{"A", true, {0}}, {"B", true, {0}}, {"C", true, {1}}, {"D", true, {1}}};
}
const std::set<std::string> kAll{"A", "B", "C", "D"};

TEST(topology, hints_are_the_sets_of_nodes_that_suffice) {
  const auto one = device_hints(two_a_node(), kAll, {}, 2, 2);
  ASSERT_TRUE(one);
  EXPECT_EQ(*one, (std::vector<TopologyHint>{{1, true}, {2, true}, {3, false}}));
  // What the machine could do narrowly, but cannot at the moment, is not preferred.
  const auto split = device_hints(two_a_node(), {"A", "C"}, {}, 2, 2);
  EXPECT_EQ(*split, (std::vector<TopologyHint>{{3, false}}));
  // More than a node has at all: both nodes are the best that there is.
  EXPECT_EQ(*device_hints(two_a_node(), kAll, {}, 3, 2), (std::vector<TopologyHint>{{3, true}}));
  EXPECT_EQ(*device_hints(two_a_node(), kAll, {"C"}, 2, 2),
            (std::vector<TopologyHint>{{2, true}, {3, false}}));
  EXPECT_EQ(device_hints({{"A", true, {}}}, {"A"}, {}, 1, 2), std::nullopt);
  EXPECT_TRUE(device_hints(two_a_node(), {}, {}, 1, 2)->empty());
}

TEST(topology, policies) {
  const std::vector<TopologyHints> free{std::vector<TopologyHint>{{1, true}, {2, true}, {3, false}}};
  const std::vector<TopologyHints> split{std::vector<TopologyHint>{{3, false}}};
  using enum TopologyPolicy;
  EXPECT_EQ(decide_topology(kNone, split, 2), (TopologyDecision{true, 0}));
  EXPECT_EQ(decide_topology(kBestEffort, free, 2), (TopologyDecision{true, 1}));
  EXPECT_EQ(decide_topology(kBestEffort, split, 2), (TopologyDecision{true, 0}));
  EXPECT_EQ(decide_topology(kRestricted, free, 2), (TopologyDecision{true, 1}));
  EXPECT_FALSE(decide_topology(kRestricted, split, 2).admitted);
  EXPECT_FALSE(decide_topology(kSingleNumaNode, split, 2).admitted);
  // A resource that does not care leaves the choice to the other.
  EXPECT_EQ(decide_topology(kSingleNumaNode, {std::nullopt, free[0]}, 2), (TopologyDecision{true, 1}));
  // Two that share one node only.
  EXPECT_EQ(decide_topology(kRestricted, {free[0], std::vector<TopologyHint>{{2, true}}}, 2),
            (TopologyDecision{true, 2}));
  EXPECT_TRUE(decide_topology(kRestricted, {}, 2).admitted);
  EXPECT_EQ(parse_topology_policy("best-efort").error().text(),
            "topology manager policy 'best-efort': must be one of none, best-effort, restricted, "
            "single-numa-node (did you mean 'best-effort'?)");
}

std::shared_ptr<ScriptedPlugin> numa_gpus(Node& n) {
  auto plugin = std::make_shared<ScriptedPlugin>(*n.loop);
  plugin->devices = {{"A", true, {0}}, {"C", true, {1}}, {"B", true, {0}}, {"D", true, {1}}};
  return plugin;
}

TEST(cluster_kubelet, best_effort_takes_gpus_of_one_numa_node) {
  Node n;
  n.options.topology_policy = TopologyPolicy::kBestEffort;
  n.options.numa_nodes = 2;
  n.start();
  auto plugin = numa_gpus(n);
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("one", gpu_pod(1));
  EXPECT_EQ(plugin->calls.back(), "allocate A");
  // Node 1 alone has two left.
  n.add_pod("two", gpu_pod(2));
  EXPECT_EQ(plugin->calls.back(), "allocate C,D");
}

TEST(cluster_kubelet, the_plugin_chooses_among_aligned_devices) {
  Node n;
  n.options.topology_policy = TopologyPolicy::kBestEffort;
  n.options.numa_nodes = 2;
  n.start();
  auto plugin = numa_gpus(n);
  plugin->prefers = std::vector<std::string>{"B", "C"};
  n.kubelet->add_plugin("nvidia.com/gpu", plugin);
  n.settle();
  n.add_pod("one", gpu_pod(1));
  EXPECT_EQ(plugin->calls.at(0), "preferred A,B must  of 1");
  EXPECT_EQ(plugin->calls.back(), "allocate B");
}

TEST(cluster_kubelet, single_numa_node_refuses_what_would_be_split) {
  Node n;
  n.options.topology_policy = TopologyPolicy::kSingleNumaNode;
  n.options.numa_nodes = 2;
  n.start();
  n.kubelet->add_plugin("nvidia.com/gpu", numa_gpus(n));
  n.settle();
  n.add_pod("p", gpu_pod(3));
  EXPECT_EQ(n.phase("p"), "Failed");
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "reason"}), "TopologyAffinityError");
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "message"}),
            "Pod was rejected: Resources cannot be allocated with Topology locality");
  EXPECT_EQ(n.events("TopologyAffinityError"), 1);
}

}  // namespace
}  // namespace gpuop::cluster
