// Operands without a stage of their own that one node lacks: the node's condition and the policy's say it in
// the same words, and both come right with it.
#include <gtest/gtest.h>

#include "test_cluster.h"

namespace gpuop::op {
namespace {

class operator_others : public ::testing::Test {
 protected:
  static constexpr const char* kName = "nvidia-mig-manager";
  void SetUp() override {
    c.policy("p", R"({"migManager":{"enabled":true}})");
    c.node("n1", std::string(kGpu) + R"(,"nvidia.com/mig.capable":"true")");
    c.settle();
    c.all_available();
    c.loop->run_for(10s);
    ASSERT_EQ(c.state("p"), "ready") << to_text(c.condition("p", "Error"));
    ASSERT_EQ(field("status"), "True") << field("message");
    ASSERT_FALSE(c.get(kube::kPods, kNs, std::string(kName) + "-n1").is_null());
  }
  std::string field(const char* name) { return str(get_string(c.node_condition("n1", "GPUReady"), {name})); }
  void lose_pod() {
    kube::DeleteOptions now;
    now.grace_seconds = 0;
    Cluster::must(kube::await(*c.loop, [&](auto done) {
      return c.client->remove(kube::kPods, kNs, std::string(kName) + "-n1", now, std::move(done));
    }));
  }
  void counts(int current) {
    c.merge(kube::kDaemonSets, kNs, kName,
            R"({"status":{"desiredNumberScheduled":1,"numberReady":0,"currentNumberScheduled":)" +
                std::to_string(current) + R"(,"numberAvailable":0,"numberUnavailable":1}})",
            "status");
  }
  // `words`: in both conditions. Then what was in the way goes.
  void told(const std::string& words) {
    c.loop->run_for(40s);
    EXPECT_EQ(field("status"), "False");
    EXPECT_EQ(field("message"), words);
    EXPECT_EQ(c.state("p"), "notReady");
    EXPECT_NE(get_string(c.condition("p", "Error"), {"message"}).find("node n1: " + words), std::string::npos)
        << to_text(c.condition("p", "Error"));
    EXPECT_NE(c.metrics.text().find(R"(gpu_operator_gpu_node_not_ready{node="n1",reason="NvidiaMigManager)"),
              std::string::npos);
  }
  void comes_back() {
    c.pod(kName, "n1", Cluster::kRunning);
    c.daemonsets_available();
    c.merge(kube::kDaemonSets, kNs, kName, R"({"status":{"numberUnavailable":null}})", "status");
    c.loop->run_for(40s);
    EXPECT_EQ(field("status"), "True") << field("message");
    EXPECT_EQ(c.state("p"), "ready") << to_text(c.condition("p", "Error"));
  }
  Cluster c;
};

// Its DaemonSet's controller leaves the node out, so that none of its pods is missing.
TEST_F(operator_others, a_taint_keeps_one_off) {
  c.merge(kube::kNodes, "", "n1", R"({"spec":{"taints":[{"key":"team","effect":"NoSchedule"}]}})");
  lose_pod();
  c.merge(
      kube::kDaemonSets, kNs, kName,
      R"({"status":{"desiredNumberScheduled":0,"numberReady":0,"currentNumberScheduled":0,"numberAvailable":0,
              "updatedNumberScheduled":0}})",
      "status");
  c.loop->run_for(40s);
  EXPECT_EQ(field("reason"), "NvidiaMigManagerNotReady");
  const std::string words = field("message");
  EXPECT_EQ(words.substr(0, words.find(" of the node")), "nvidia-mig-manager: taint team:NoSchedule");
  told(words);
  c.merge(kube::kNodes, "", "n1", R"({"spec":{"taints":null}})");
  comes_back();
}

TEST_F(operator_others, one_does_not_fit_on_its_node) {
  lose_pod();
  counts(1);
  Json pod = *parse_json(R"({"metadata":{"name":"m","labels":{"app":"nvidia-mig-manager"},"ownerReferences":[
      {"apiVersion":"apps/v1","kind":"DaemonSet","name":"nvidia-mig-manager","controller":true}]},"spec":{
      "containers":[{"name":"c","image":"i"}],
      "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
      {"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}}})");
  const Json set_of = c.get(kube::kDaemonSets, kNs, kName);
  find_mutable(pod, {"metadata", "ownerReferences"})->as_array()[0].as_object()["uid"] = kube::uid_of(set_of);
  c.create(kube::kPods, kNs, to_text(pod));
  c.merge(kube::kPods, kNs, "m",
          R"({"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",
              "reason":"Unschedulable","message":"0/1 nodes are available: 1 Insufficient memory."}]}})",
          "status");
  told(
      "nvidia-mig-manager: pod m: 0/1 nodes are available: 1 Insufficient memory.; free that resource on the "
      "node, or lower the operand's resources in the policy");
  c.remove(kube::kPods, kNs, "m");
  comes_back();
}

TEST_F(operator_others, one_is_refused_by_a_quota) {
  lose_pod();
  c.create(kube::kEvents, kNs,
           R"({"metadata":{"name":"e"},"involvedObject":{"kind":"DaemonSet","name":"nvidia-mig-manager",
               "namespace":"gpu-operator"},"reason":"FailedCreate","type":"Warning","lastTimestamp":
               "2026-01-01T00:00:20Z","message":"Error creating: pods \"nvidia-mig-manager-\" is forbidden: exceeded quota: few, requested: pods=1"})");
  // Its status comes later.
  counts(0);
  told(
      "nvidia-mig-manager: DaemonSet nvidia-mig-manager cannot make its pod: pods \"nvidia-mig-manager-\" is "
      "forbidden: exceeded quota: few, requested: pods=1; raise ResourceQuota 'few' of the operator's "
      "namespace, or allow its operands there");
  EXPECT_EQ(field("reason"), "NvidiaMigManagerFailed");
  comes_back();
}

TEST_F(operator_others, one_cannot_be_pulled_or_crashes) {
  counts(1);
  c.pod(kName, "n1",
        R"({"phase":"Pending","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
      {"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff",
       "message":"not found"}}}]})");
  told(
      "nvidia-mig-manager: pod nvidia-mig-manager-n1: container c: ImagePullBackOff: not found; check the "
      "image's repository, name, version and pull secrets in the policy");
  comes_back();
}

}  // namespace
}  // namespace gpuop::op
