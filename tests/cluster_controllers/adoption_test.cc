// Orphans are taken, strayed ones let go of: each controller with what it owns.
#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

using kube::kControllerRevisions;
using kube::kDaemonSets;
using kube::kDeployments;
using kube::kJobs;
using kube::kPods;
using kube::kReplicaSets;

constexpr std::string_view kDeployment = R"(
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
)";
constexpr std::string_view kReplicaSet = R"(
metadata: {name: r, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: r}}
  template:
    metadata: {labels: {app: r}}
    spec: {containers: [{name: c, image: i}]}
)";
constexpr std::string_view kPod = R"(
metadata: {name: p, namespace: default, labels: {app: r}}
spec: {containers: [{name: c, image: i}]}
)";
constexpr const char* kAway = R"({"metadata":{"labels":{"app":"away"}}})";

struct AdoptionCluster : SmallCluster {
  AdoptionCluster() {
    kubelet = true;
    for (const char* name : {"n1", "n2"}) add_node(name, R"({"gpu":"yes"})");
  }
  void orphan(const kube::Resource& type, const std::string& name) {
    remove(type, "default", name, {.propagation = "Orphan"});
    settle();
    EXPECT_FALSE(get(type, "default", name));
  }
  // "Kind/name" of the controller; "" where there is none.
  std::string owner(const kube::Resource& type, const std::string& name) {
    const auto object = get(type, "default", name);
    const Json* found = object ? kube::controller_of(*object) : nullptr;
    return found == nullptr ? ""
                            : str(get_string(*found, {"kind"})) + "/" + str(get_string(*found, {"name"}));
  }
  std::set<std::string> uids(const kube::Resource& type, const std::string& labels = "") {
    std::set<std::string> out;
    for (const Json& object : list(type, "default", labels)) out.insert(str(kube::uid_of(object)));
    return out;
  }
  std::string only_name(const kube::Resource& type, const std::string& labels = "") {
    const JsonArray found = list(type, "default", labels);
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? "" : str(kube::name_of(found[0]));
  }
  void stray(const kube::Resource& type, const std::string& name) {
    merge(type, "default", name, kAway);
    settle();
  }
  void relabel(const kube::Resource& type, const std::string& name, const std::string& app) {
    merge(type, "default", name, R"({"metadata":{"labels":{"app":")" + app + "\"}}}");
    settle();
  }
};

TEST(cluster_controllers, a_deployment_takes_its_replica_sets_back) {
  AdoptionCluster t;
  t.create(kDeployments, "default", kDeployment);
  t.settle();
  t.merge(kDeployments, "default", "web",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}})");
  t.settle(1s);
  const auto sets = t.uids(kReplicaSets), pods = t.uids(kPods);
  ASSERT_EQ(sets.size(), 2u);
  t.orphan(kDeployments, "web");
  for (const Json& set : t.list(kReplicaSets, "default")) EXPECT_EQ(kube::controller_of(set), nullptr);
  Json again = SmallCluster::yaml(kDeployment);
  set(again, {"spec", "template", "spec", "containers"}, *parse_json(R"([{"name":"c","image":"j"}])"));
  const Json made = t.create(kDeployments, "default", again);
  t.settle(1s);
  EXPECT_EQ(t.uids(kReplicaSets), sets);
  EXPECT_EQ(t.uids(kPods), pods);
  for (const Json& set : t.list(kReplicaSets, "default")) {
    const JsonArray& owners = get_array(set, {"metadata", "ownerReferences"});
    ASSERT_EQ(owners.size(), 1u);
    EXPECT_EQ(owners[0], kube::owner_reference(made));
  }
  const Json now = *t.get(kDeployments, "default", "web");
  EXPECT_EQ(get_int(now, {"status", "availableReplicas"}), 3);
  EXPECT_EQ(kube::annotation(now, "deployment.kubernetes.io/revision"), "2");
}

TEST(cluster_controllers, a_deployment_lets_a_strayed_replica_set_go) {
  AdoptionCluster t;
  t.create(kDeployments, "default", kDeployment);
  t.settle();
  const std::string first = t.only_name(kReplicaSets);
  t.stray(kReplicaSets, first);
  EXPECT_EQ(t.owner(kReplicaSets, first), "");
  // Its name is taken: the next has another hash.
  EXPECT_EQ(get_int(*t.get(kDeployments, "default", "web"), {"status", "collisionCount"}), 1);
  EXPECT_EQ(get_int(*t.get(kDeployments, "default", "web"), {"status", "updatedReplicas"}), 3);
  const std::string second = t.only_name(kReplicaSets, "app=web");
  EXPECT_EQ(t.owner(kReplicaSets, second), "Deployment/web");
  t.relabel(kReplicaSets, first, "web");
  EXPECT_EQ(t.owner(kReplicaSets, first), "Deployment/web");
  t.settle(1s);
  EXPECT_EQ(t.count(kPods, "default"), 3);
}

TEST(cluster_controllers, a_replica_set_takes_and_lets_go) {
  AdoptionCluster t;
  t.create(kPods, "default", kPod);
  t.settle();
  t.loop->run_for(2s);
  t.create(kReplicaSets, "default", kReplicaSet);
  t.settle();
  EXPECT_EQ(t.only_name(kPods), "p");
  EXPECT_EQ(t.owner(kPods, "p"), "ReplicaSet/r");
  t.loop->run_for(2s);
  t.stray(kPods, "p");
  EXPECT_EQ(t.owner(kPods, "p"), "");
  EXPECT_EQ(t.count(kPods, "default", "app=r"), 1);
  t.loop->run_for(2s);
  t.relabel(kPods, "p", "r");  // one too many: the younger goes
  EXPECT_EQ(t.owner(kPods, "p"), "ReplicaSet/r");
  EXPECT_EQ(t.only_name(kPods), "p");
}

TEST(cluster_controllers, a_replica_set_leaves_what_is_not_its_own) {
  AdoptionCluster t;
  t.create(kReplicaSets, "default", kReplicaSet);
  t.settle();
  const std::string first = t.only_name(kPods);
  Json other = SmallCluster::yaml(kReplicaSet);
  set(other, {"metadata", "name"}, Json("s"));
  t.create(kReplicaSets, "default", other);
  t.settle();
  EXPECT_EQ(t.owner(kPods, first), "ReplicaSet/r");
  EXPECT_EQ(t.count(kPods, "default"), 2);
  // Another's, though not its controller's kind; one that has ended; one that goes; one in another namespace.
  t.create(
      kPods, "default",
      R"({metadata: {name: held, labels: {app: r}, ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: )" +
          str(kube::uid_of(*t.get(kube::kNodes, "", "n1"))) +
          ", controller: true}]}, spec: {containers: [{name: c, image: i}]}}");
  t.kubelet = false;
  t.create(
      kPods, "default",
      "{metadata: {name: going, labels: {app: elsewhere}, finalizers: [x.example/y]}, spec: {containers: "
      "[{name: c, "
      "image: i}]}}");
  t.remove(kPods, "default", "going");
  t.relabel(kPods, "going", "r");
  const Json ended = t.create(
      kPods, "default",
      "{metadata: {name: ended, labels: {app: elsewhere}}, spec: {containers: [{name: c, image: i}]}}");
  t.settle();
  t.set_pod_status(ended, R"({"phase":"Succeeded"})");
  t.settle();
  t.relabel(kPods, "ended", "r");
  EXPECT_EQ(t.owner(kPods, "held"), "Node/n1");
  EXPECT_EQ(t.owner(kPods, "going"), "");
  EXPECT_EQ(t.owner(kPods, "ended"), "");
  EXPECT_EQ(t.owner(kPods, first), "ReplicaSet/r");
}

TEST(cluster_controllers, a_controller_that_goes_takes_nothing) {
  AdoptionCluster t;
  Json set_object = SmallCluster::yaml(kReplicaSet);
  set(set_object, {"metadata", "finalizers"}, *parse_json(R"(["x.example/y"])"));
  t.create(kReplicaSets, "default", set_object);
  Json daemon = SmallCluster::yaml(kDaemonSet);
  set(daemon, {"metadata", "finalizers"}, *parse_json(R"(["x.example/y"])"));
  t.create(kDaemonSets, "default", daemon);
  t.settle();
  t.remove(kReplicaSets, "default", "r", {.propagation = "Orphan"});
  t.remove(kDaemonSets, "default", "d", {.propagation = "Orphan"});
  t.settle(10s);
  ASSERT_TRUE(t.get(kReplicaSets, "default", "r"));
  ASSERT_TRUE(t.get(kDaemonSets, "default", "d"));
  const auto pods = t.uids(kPods);
  t.create(kPods, "default", kPod);
  t.create(kPods, "default",
           "{metadata: {name: q, labels: {app: d}}, spec: {containers: [{name: c, image: i}]}}");
  t.settle(10s);
  for (const Json& pod : t.list(kPods, "default"))
    EXPECT_EQ(kube::controller_of(pod), nullptr) << kube::name_of(pod);
  EXPECT_EQ(t.count(kPods, "default"), static_cast<int>(pods.size()) + 2);
}

TEST(cluster_controllers, a_daemon_set_takes_its_pods_and_history_back) {
  AdoptionCluster t;
  t.create(kDaemonSets, "default", kDaemonSet);
  t.settle();
  t.merge(kDaemonSets, "default", "d",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}})");
  t.settle(10s);
  const auto pods = t.uids(kPods), revisions = t.uids(kControllerRevisions);
  ASSERT_EQ(pods.size(), 2u);
  ASSERT_EQ(revisions.size(), 2u);
  t.orphan(kDaemonSets, "d");
  Json again = SmallCluster::yaml(kDaemonSet);
  set(again, {"spec", "template", "spec", "containers"}, *parse_json(R"([{"name":"c","image":"j"}])"));
  t.create(kDaemonSets, "default", again);
  t.settle(10s);
  EXPECT_EQ(t.uids(kPods), pods);
  EXPECT_EQ(t.uids(kControllerRevisions), revisions);
  for (const Json& revision : t.list(kControllerRevisions, "default"))
    EXPECT_EQ(t.owner(kControllerRevisions, str(kube::name_of(revision))), "DaemonSet/d");
  const Json now = *t.get(kDaemonSets, "default", "d");
  EXPECT_EQ(get_int(now, {"status", "updatedNumberScheduled"}), 2);
  EXPECT_EQ(get_int(now, {"status", "numberAvailable"}), 2);
  EXPECT_FALSE(has(now, {"status", "collisionCount"}));
  // A template of the past gets the next number, as if nothing had been between.
  t.merge(kDaemonSets, "default", "d",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}})");
  t.settle(10s);
  std::set<std::int64_t> numbers;
  for (const Json& revision : t.list(kControllerRevisions, "default"))
    numbers.insert(get_int(revision, {"revision"}));
  EXPECT_EQ(numbers, (std::set<std::int64_t>{2, 3}));
}

TEST(cluster_controllers, a_daemon_set_replaces_old_pods_that_it_took) {
  AdoptionCluster t;
  t.create(kDaemonSets, "default", kDaemonSet);
  t.settle();
  t.merge(kDaemonSets, "default", "d",
          R"({"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}})");
  t.settle(10s);
  t.orphan(kDaemonSets, "d");
  // Its pods are of the second generation, and of another template than the new one's.
  int most = 0;
  t.pods.on_change([&](const auto&, const auto&) { most = std::max(most, static_cast<int>(t.pods.size())); });
  Json other = SmallCluster::yaml(kDaemonSet);
  set(other, {"spec", "template", "spec", "containers"}, *parse_json(R"([{"name":"c","image":"k"}])"));
  t.create(kDaemonSets, "default", other);
  t.settle(10s);
  EXPECT_EQ(most, 2);  // never one beside the old
  for (const Json& pod : t.list(kPods, "default")) {
    EXPECT_EQ(get_string(get_array(pod, {"spec", "containers"})[0], {"image"}), "k");
    EXPECT_EQ(t.owner(kPods, str(kube::name_of(pod))), "DaemonSet/d");
  }
  EXPECT_EQ(t.count(kControllerRevisions, "default"), 3);
}

TEST(cluster_controllers, a_daemon_set_lets_strayed_pods_go) {
  AdoptionCluster t;
  t.create(kDaemonSets, "default", kDaemonSet);
  t.settle();
  t.loop->run_for(2s);
  const std::string first = str(kube::name_of(t.list(kPods, "default")[0]));
  t.stray(kPods, first);
  EXPECT_EQ(t.owner(kPods, first), "");
  EXPECT_EQ(t.count(kPods, "default", "app=d"), 2);
  EXPECT_EQ(t.count(kPods, "default"), 3);
  t.loop->run_for(2s);
  t.relabel(kPods, first, "d");  // two on one node: the older stays
  EXPECT_EQ(t.owner(kPods, first), "DaemonSet/d");
  EXPECT_EQ(t.count(kPods, "default"), 2);
  const std::string revision = t.only_name(kControllerRevisions);
  t.stray(kControllerRevisions, revision);
  EXPECT_EQ(t.owner(kControllerRevisions, revision), "");
  // What another controls is not its own, whatever its labels.
  Json twin = SmallCluster::yaml(kDaemonSet);
  set(twin, {"metadata", "name"}, Json("twin"));
  t.create(kDaemonSets, "default", twin);
  t.settle();
  std::map<std::string, int> owners;
  for (const Json& pod : t.list(kPods, "default")) ++owners[t.owner(kPods, str(kube::name_of(pod)))];
  EXPECT_EQ(owners, (std::map<std::string, int>{{"DaemonSet/d", 2}, {"DaemonSet/twin", 2}}));
}

TEST(cluster_controllers, a_job_takes_and_lets_go) {
  AdoptionCluster t;
  t.create(kJobs, "default", R"(
metadata: {name: j, namespace: default}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
)");
  t.settle();
  const std::string first = t.only_name(kPods);
  const std::string uid = str(kube::uid_of(*t.get(kJobs, "default", "j")));
  t.loop->run_for(2s);
  t.merge(kPods, "default", first,
          R"({"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"away","controller-uid":"away"}}})");
  t.settle();
  EXPECT_EQ(t.owner(kPods, first), "");
  EXPECT_EQ(t.count(kPods, "default", "batch.kubernetes.io/controller-uid=" + uid), 1);
  t.merge(kPods, "default", first,
          R"({"metadata":{"labels":{"batch.kubernetes.io/controller-uid":")" + uid + "\"}}}");
  t.settle();
  EXPECT_EQ(t.count(kPods, "default", "batch.kubernetes.io/controller-uid=" + uid), 1);
  EXPECT_EQ(get_int(*t.get(kJobs, "default", "j"), {"status", "active"}), 1);
  // A pod of before does not belong to a job of the same name.
  t.orphan(kJobs, "j");
  EXPECT_EQ(kube::controller_of(t.list(kPods, "default")[0]), nullptr);
}

// However far the controller has come with the first.
TEST(cluster_controllers, a_daemon_set_that_is_made_again_at_once_gets_its_pods) {
  AdoptionCluster t;
  for (int turns = 0; turns < 12; ++turns) {
    t.create(kDaemonSets, "default", kDaemonSet);
    for (int i = 0; i < turns; ++i) t.get(kDaemonSets, "default", "d");
    t.remove(kDaemonSets, "default", "d");
    const Json second = t.create(kDaemonSets, "default", kDaemonSet);
    t.settle(2s);
    EXPECT_EQ(t.count(kPods, "default"), 2) << turns;
    for (const Json& pod : t.list(kPods, "default"))
      EXPECT_EQ(get_string(*kube::controller_of(pod), {"uid"}), kube::uid_of(second)) << turns;
    const JsonArray revisions = t.list(kControllerRevisions, "default");
    ASSERT_EQ(revisions.size(), 1u) << turns;
    EXPECT_EQ(get_string(*kube::controller_of(revisions[0]), {"uid"}), kube::uid_of(second)) << turns;
    EXPECT_FALSE(has(*t.get(kDaemonSets, "default", "d"), {"status", "collisionCount"})) << turns;
    t.remove(kDaemonSets, "default", "d");
    t.settle(2s);
    ASSERT_EQ(t.count(kPods, "default"), 0);
  }
}

TEST(cluster_controllers, many_orphans_are_taken_in_turn) {
  AdoptionCluster t;
  Json large = SmallCluster::yaml(kReplicaSet);
  set(large, {"spec", "replicas"}, Json(260));
  set(large, {"spec", "template", "spec", "schedulerName"}, Json("none"));
  t.create(kReplicaSets, "default", large);
  t.settle(10s);
  const auto pods = t.uids(kPods);
  ASSERT_EQ(pods.size(), 260u);
  t.orphan(kReplicaSets, "r");
  t.create(kReplicaSets, "default", large);
  t.settle(10s);
  EXPECT_EQ(t.uids(kPods), pods);
  EXPECT_EQ(get_int(*t.get(kReplicaSets, "default", "r"), {"status", "replicas"}), 260);
}

}  // namespace
}  // namespace gpuop::cluster::test
