// Drivers that change hands or layout, and what versions before left (operator.md §3.1, §3.6).
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kDriver =
    R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"580.105.08"}})";

struct Layouts : Cluster {
  explicit Layouts(const std::string& spec = kDriver) {
    node("n1", kGpu);
    policy("p", spec);
    settle();
    spy = [this](const HttpRequest& request) {
      if (request.method == "DELETE") deletes.push_back(request.path + " " + request.query + request.body);
    };
  }
  std::vector<std::string> driver_sets() {
    auto all = names(kube::kDaemonSets, kNs);
    std::erase_if(all, [](const std::string& name) { return name.find("-driver-") == std::string::npos; });
    return all;
  }
  void driver(const std::string& patch) {
    merge(kube::kClusterPolicies, "", "p", R"({"spec":{"driver":)" + patch + "}}");
    settle();
  }
  void create(const kube::Resource& type, const std::string& ns, const std::string& object) {
    must(kube::await(*loop, [&](auto done) {
      return client->create(type, ns, *parse_json(object), {}, std::move(done));
    }));
  }
  // A pod of a DaemonSet that runs.
  void owned_pod(const std::string& name, const std::string& set, const std::string& uid) {
    create(kube::kPods, kNs,
           R"({"metadata":{"name":")" + name + R"(","ownerReferences":[{"apiVersion":"apps/v1",
        "kind":"DaemonSet","controller":true,"name":")" +
               set + R"(","uid":")" + uid +
               R"("}]},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}})");
  }
  // Every DaemonSet's controller has seen it and found no node for it: the one that there is takes no pods.
  void nothing_to_schedule() {
    merge(kube::kNodes, "", "n1", R"({"spec":{"taints":[{"key":"kept-free","effect":"NoSchedule"}]}})");
    for (const auto& name : names(kube::kDaemonSets, kNs))
      merge(kube::kDaemonSets, kNs, name,
            R"({"status":{"observedGeneration":)" +
                std::to_string(get_int(get(kube::kDaemonSets, kNs, name), {"metadata", "generation"})) +
                R"(,"desiredNumberScheduled":0}})",
            "status");
    settle();
  }
  std::string error() { return str(get_string(condition("p", "Error"), {"message"})); }

  std::vector<std::string> deletes;
};

TEST(operator_layouts, a_handover_to_nvidiadrivers_leaves_driver_pods_running) {
  Layouts cluster;
  ASSERT_EQ(cluster.driver_sets(), std::vector<std::string>{"nvidia-driver-daemonset"});
  cluster.driver(R"({"useNvidiaDriverCRD":true})");
  // Once, however long whoever lets the pods go takes.
  cluster.loop->run_for(1min);
  ASSERT_EQ(cluster.deletes.size(), 1u);
  EXPECT_NE(cluster.deletes[0].find("/daemonsets/nvidia-driver-daemonset"), std::string::npos);
  EXPECT_NE(cluster.deletes[0].find("Orphan"), std::string::npos) << cluster.deletes[0];
  // What its account and rights are, running pods need.
  EXPECT_FALSE(cluster.get(kube::kServiceAccounts, kNs, "nvidia-driver").is_null());
  EXPECT_FALSE(cluster.get(kube::kClusterRoles, "", "nvidia-driver").is_null());
}

TEST(operator_layouts, another_layout_is_ready_when_the_pods_of_the_last_are_gone) {
  Layouts cluster;
  const Json old = cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset");
  const std::string uid(get_string(old, {"metadata", "uid"}));
  cluster.driver(R"({"usePrecompiled":true})");
  EXPECT_EQ(cluster.driver_sets(),
            std::vector<std::string>{"nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04"});
  for (const auto& request : cluster.deletes)
    EXPECT_EQ(request.find("Orphan"), std::string::npos) << "its pods go with it: " << request;
  // Nobody collects here: a pod of the last layout as it stands until its node has let it go.
  cluster.owned_pod("left", "nvidia-driver-daemonset", uid);
  cluster.nothing_to_schedule();
  EXPECT_NE(cluster.error().find("state-driver: pod left of another layout is still there"),
            std::string::npos)
      << cluster.error();
  kube::DeleteOptions now;
  now.grace_seconds = 0;
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->remove(kube::kPods, kNs, "left", now, std::move(done));
  }));
  cluster.settle();
  EXPECT_EQ(cluster.error().find("state-driver"), std::string::npos) << cluster.error();
  // And back.
  cluster.driver(R"({"usePrecompiled":false})");
  EXPECT_EQ(cluster.driver_sets(), std::vector<std::string>{"nvidia-driver-daemonset"});
}

TEST(operator_layouts, a_kernel_that_no_node_has_takes_its_driver_away) {
  Layouts cluster(
      R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"580","usePrecompiled":true}})");
  cluster.node("n2", std::string(kGpu) + R"(,"feature.node.kubernetes.io/kernel-version.full":"6.9.0")");
  cluster.settle();
  const std::string first = "nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04";
  const std::string second = "nvidia-driver-daemonset-6.9.0-ubuntu24.04";
  EXPECT_EQ(cluster.driver_sets(), (std::vector<std::string>{first, second}));
  // No pod is wanted of it while its node is tainted, yet it is not made again and again.
  cluster.merge(kube::kDaemonSets, kNs, second,
                R"({"status":{"observedGeneration":1,"desiredNumberScheduled":0,"numberMisscheduled":0}})",
                "status");
  const std::string uid(get_string(cluster.get(kube::kDaemonSets, kNs, second), {"metadata", "uid"}));
  cluster.loop->run_for(5min);
  EXPECT_EQ(get_string(cluster.get(kube::kDaemonSets, kNs, second), {"metadata", "uid"}), uid);
  cluster.label("n2", R"("feature.node.kubernetes.io/kernel-version.full":"6.8.0-60-generic")");
  cluster.settle();
  EXPECT_EQ(cluster.driver_sets(), std::vector<std::string>{first});
}

TEST(operator_layouts, a_kata_manager_of_old_is_taken_away) {
  Cluster cluster(false);
  const auto create = [&](const kube::Resource& type, const std::string& ns, const std::string& object) {
    Cluster::must(kube::await(*cluster.loop, [&](auto done) {
      return cluster.client->create(type, ns, *parse_json(object), {}, std::move(done));
    }));
  };
  for (const auto* type : {&kube::kServiceAccounts, &kube::kRoles, &kube::kConfigMaps})
    create(*type, kNs,
           std::string(R"({"metadata":{"name":"nvidia-kata-manager)") +
               (type == &kube::kConfigMaps ? "-config" : "") + R"("}})");
  create(kube::kRuntimeClasses, "", R"({"handler":"kata-qemu","metadata":{"name":"kata-qemu-nvidia-gpu",
      "labels":{"nvidia.com/kata-runtime-class":"true"}}})");
  create(kube::kRuntimeClasses, "", R"({"handler":"kata","metadata":{"name":"kata"}})");
  cluster.policy("p");
  cluster.start_operator();
  cluster.settle();
  EXPECT_TRUE(cluster.get(kube::kServiceAccounts, kNs, "nvidia-kata-manager").is_null());
  EXPECT_TRUE(cluster.get(kube::kRoles, kNs, "nvidia-kata-manager").is_null());
  EXPECT_TRUE(cluster.get(kube::kConfigMaps, kNs, "nvidia-kata-manager-config").is_null());
  EXPECT_EQ(cluster.names(kube::kRuntimeClasses, ""),
            (std::vector<std::string>{"kata", "nvidia", "nvidia-cdi", "nvidia-legacy"}))
      << "others' classes stay";
}

}  // namespace
}  // namespace gpuop::op
