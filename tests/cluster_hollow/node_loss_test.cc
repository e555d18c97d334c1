// A node that nobody hears of any more, from its last word to its return: conditions, taints, evictions, and
// the GPU stack's pods, which stay.
#include <gtest/gtest.h>

#include <map>

#include "runs.h"

namespace gpuop::cluster::runs {
namespace {

constexpr const char* kUnreachable = "node.kubernetes.io/unreachable";

class NodeLoss {
 public:
  explicit NodeLoss(std::string_view event) {
    HollowFleetOptions options = options_of(kThree);
    auto plan = parse_faults(
        "faults:\n  - {at: 300s, node: l4, for: 600s, event: " + std::string(event) + "}\n", "faults.yaml");
    EXPECT_TRUE(plan) << plan.error().text();
    options.faults = std::move(*plan);
    auto made = HollowFleet::create(std::move(options));
    EXPECT_TRUE(made) << made.error().text();
    fleet = std::move(*made);
  }
  // By the fleet's clock.
  void until(Duration at) { fleet->loop().run_for(at - fleet->events().elapsed()); }
  Json get(const kube::Resource& type, const std::string& ns, const std::string& name) {
    auto got = kube::await(fleet->loop(),
                           [&](const auto& done) { return fleet->client().get(type, ns, name, done); });
    return got ? *got : Json();
  }
  void create(const std::string& name, const std::string& tolerations) {
    const std::string text = "{apiVersion: v1, kind: Pod, metadata: {name: " + name +
                             ", namespace: default}, spec: {nodeSelector: {kubernetes.io/hostname: l4}, "
                             "tolerations: " +
                             tolerations + ", containers: [{name: c, image: '" + kImage +
                             "', command: [sleep, '3600']}]}}";
    const auto parsed = parse_yaml(text, "pod");
    ASSERT_TRUE(parsed) << parsed.error().text();
    const auto made = kube::await(fleet->loop(), [&](const auto& done) {
      return fleet->client().create(kube::kPods, "default", parsed->at(0).value, {}, done);
    });
    ASSERT_TRUE(made) << made.error().message;
  }
  // "Running", "Terminating", "none", with Ready's status.
  std::string pod(const std::string& name) {
    const Json pod = get(kube::kPods, "default", name);
    if (!pod.is_object()) return "none";
    if (has(pod, {"metadata", "deletionTimestamp"})) return "Terminating";
    const Json* ready = kube::condition(pod, "Ready");
    return str(get_string(pod, {"status", "phase"})) + " " +
           (ready != nullptr ? str(get_string(*ready, {"status"})) : "-");
  }
  std::string ready() {
    const Json node = get(kube::kNodes, "", "l4");
    const Json* condition = kube::condition(node, "Ready");
    return condition != nullptr
               ? str(get_string(*condition, {"status"})) + " " + str(get_string(*condition, {"reason"}))
               : "-";
  }
  std::string taints() {
    std::string out;
    const Json node = get(kube::kNodes, "", "l4");
    for (const Json& taint : get_array(node, {"spec", "taints"}))
      out += str(get_string(taint, {"key"})) + ":" + str(get_string(taint, {"effect"})) + " ";
    return out;
  }
  // What the policy says of itself: "ready", or why not.
  std::string policy() {
    const auto list = kube::await(fleet->loop(), [&](const auto& done) {
      return fleet->client().list(kube::kClusterPolicies, "", {}, done);
    });
    const Json& policy = get_array(*list, {"items"}).at(0);
    const Json* error = kube::condition(policy, "Error");
    const std::string state = str(get_string(policy, {"status", "state"}));
    return state == "ready" || error == nullptr ? state : str(get_string(*error, {"message"}));
  }
  // The stack's pods on the node: who they are, and whether they are being deleted.
  std::map<std::string, bool> stack() {
    std::map<std::string, bool> out;
    const auto list = kube::await(fleet->loop(), [&](const auto& done) {
      return fleet->client().list(kube::kPods, "gpu-operator", {.field_selector = "spec.nodeName=l4"}, done);
    });
    for (const Json& pod : get_array(*list, {"items"})) {
      const Json* owner = kube::controller_of(pod);
      if (owner == nullptr || get_string(*owner, {"kind"}) != "DaemonSet") continue;
      out[str(kube::name_of(pod))] = has(pod, {"metadata", "deletionTimestamp"});
    }
    return out;
  }

  std::unique_ptr<HollowFleet> fleet;
};

void lost_and_found(std::string_view event) {
  SCOPED_TRACE(event);
  NodeLoss n(event);
  n.until(200s);
  ASSERT_TRUE(n.fleet->ready()) << n.fleet->first_broken_link();
  n.create("patient", "[{key: " + std::string(kUnreachable) +
                          ", operator: Exists, effect: NoExecute, tolerationSeconds: 60}]");
  n.create("usual", "[]");
  n.create("loyal", "[{key: " + std::string(kUnreachable) + ", operator: Exists, effect: NoExecute}]");
  n.until(299s);
  for (const char* name : {"patient", "usual", "loyal"}) EXPECT_EQ(n.pod(name), "Running True") << name;
  const auto stack = n.stack();
  EXPECT_GT(stack.size(), 5u);

  // Its last Lease may be ten seconds old, and is good for fifty.
  n.until(335s);
  EXPECT_EQ(n.ready(), "True KubeletReady");
  n.until(352s);
  EXPECT_EQ(n.ready(), "Unknown NodeStatusUnknown");
  EXPECT_EQ(n.taints(), std::string(kUnreachable) + ":NoExecute " + kUnreachable + ":NoSchedule ");
  for (const char* name : {"patient", "usual", "loyal"}) EXPECT_EQ(n.pod(name), "Running False") << name;
  n.until(353s);
  EXPECT_NE(n.policy().find("; nodes not ready: [l4]; "), std::string::npos) << n.policy();
  EXPECT_NE(n.policy().find("node l4: node: the node is not ready: "), std::string::npos) << n.policy();
  n.until(420s);
  EXPECT_EQ(n.pod("patient"), "Terminating") << "after its 60 s; its kubelet cannot say that it is gone";
  EXPECT_EQ(n.pod("usual"), "Running False");
  n.until(660s);
  EXPECT_EQ(n.pod("usual"), "Terminating") << "after the 300 s that every pod gets";
  EXPECT_EQ(n.pod("loyal"), "Running False");
  EXPECT_EQ(n.stack(), stack) << "DaemonSet pods stay";
  EXPECT_NE(n.fleet->first_broken_link().find("l4"), std::string::npos) << n.fleet->first_broken_link();

  n.until(960s);
  EXPECT_EQ(n.ready(), "True KubeletReady");
  EXPECT_EQ(n.taints(), "");
  EXPECT_EQ(n.pod("patient"), "none");
  EXPECT_EQ(n.pod("usual"), "none");
  EXPECT_EQ(n.pod("loyal"), "Running True");
  EXPECT_EQ(n.stack(), stack) << "the same pods";
  EXPECT_TRUE(n.fleet->loop().run_until([&] { return n.fleet->ready(); }, 1min))
      << n.fleet->first_broken_link();
  EXPECT_EQ(n.policy(), "ready");
}

TEST(cluster_hollow, a_node_that_is_cut_off_comes_back) {
  lost_and_found("lost");
}
TEST(cluster_hollow, a_node_whose_kubelet_stops_comes_back) {
  lost_and_found("kubelet-restart");
}

}  // namespace
}  // namespace gpuop::cluster::runs
