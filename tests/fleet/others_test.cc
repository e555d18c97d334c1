// Operands without a stage of their own: where they are wanted, what keeps their pods away, and what of it is
// nobody's fault.
#include <gtest/gtest.h>

#include "fleet/chain.h"
#include "fleet/missing.h"
#include "fleet/refusals.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

using Shared = std::shared_ptr<const Json>;

Shared share(Json object) {
  return std::make_shared<const Json>(std::move(object));
}

Json gpu_node() {
  return *parse_json(R"({"metadata":{"name":"n1","labels":{"nvidia.com/gpu.present":"true",
      "nvidia.com/gpu.product":"NVIDIA-L4","nvidia.com/gpu.deploy.operator-validator":"true",
      "nvidia.com/gpu.deploy.mig-manager":"true","nvidia.com/gpu.deploy.dcgm":"true"}},
      "status":{"allocatable":{"nvidia.com/gpu":"1"},"capacity":{"nvidia.com/gpu":"1"}}})");
}

Json daemonset(const std::string& name, const std::string& label) {
  Json out = *parse_json(R"({"metadata":{"name":")" + name +
                         R"(","namespace":"gpu-operator","ownerReferences":[
      {"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","name":"p","controller":true}]},
      "status":{"desiredNumberScheduled":1,"currentNumberScheduled":1}})");
  set(out, {"spec", "template", "metadata", "labels", "app"}, name);
  set(out, {"spec", "template", "spec", "nodeSelector", "nvidia.com/gpu.deploy." + label}, "true");
  return out;
}
Json mig_manager() {
  return daemonset("nvidia-mig-manager", "mig-manager");
}

Json pod(const std::string& name, const std::string& daemonset, const std::string& status) {
  Json out =
      *parse_json(R"({"metadata":{"name":")" + name + R"(","namespace":"gpu-operator","labels":{"app":")" +
                  (daemonset.empty() ? name : daemonset) + R"("}},"spec":{"nodeName":"n1"}})");
  if (!daemonset.empty())
    set(out, {"metadata", "ownerReferences"},
        JsonArray{JsonObject{{"kind", "DaemonSet"}, {"name", daemonset}, {"controller", true}}});
  set(out, {"status"}, *parse_json(status));
  return out;
}
constexpr const char* kReady = R"({"conditions":[{"type":"Ready","status":"True"}]})";
Objects validated() {
  return {share(pod("nvidia-operator-validator", "", kReady))};
}

ChainFacts facts(Json set) {
  return {{"driver", "toolkit", "plugin", "labels", "telemetry"}, {share(std::move(set))}};
}
std::optional<BrokenLink> link_of(const Json& node, const Objects& pods, const ChainFacts& facts) {
  return chain_of(node, pods, facts).broken_link();
}

TEST(fleet_others, one_without_a_pod_keeps_its_node_from_ready) {
  const auto link = link_of(gpu_node(), validated(), facts(mig_manager()));
  ASSERT_TRUE(link);
  EXPECT_EQ(link->text(),
            "nvidia-mig-manager: pod of nvidia-mig-manager is not there yet; see why its DaemonSet makes "
            "none: kubectl -n gpu-operator describe daemonset nvidia-mig-manager");
  EXPECT_EQ(link->reason, "NvidiaMigManagerNotReady");
  EXPECT_FALSE(link->failed || link->kept_off);
  Objects pods = validated();
  pods.push_back(share(pod("m", "nvidia-mig-manager", kReady)));
  EXPECT_FALSE(link_of(gpu_node(), pods, facts(mig_manager())));
}

TEST(fleet_others, one_that_is_not_wanted_is_nobodys_concern) {
  Json node = gpu_node();
  set(node, {"metadata", "labels", "nvidia.com/gpu.deploy.mig-manager"}, "false");
  EXPECT_FALSE(link_of(node, validated(), facts(mig_manager())));
  // Of somebody else, with a selector of ours.
  Json foreign = mig_manager();
  remove(foreign, {"metadata", "ownerReferences"});
  EXPECT_FALSE(link_of(gpu_node(), validated(), facts(foreign)));
  // For another kernel.
  Json layout = mig_manager();
  set(layout, {"spec", "template", "spec", "nodeSelector", "feature.node.kubernetes.io/kernel-version.full"},
      "6.9");
  EXPECT_FALSE(link_of(gpu_node(), validated(), facts(layout)));
  // An NVIDIADriver's user chooses its nodes.
  Json chosen = mig_manager();
  find_mutable(chosen, {"metadata", "ownerReferences"})->as_array()[0].as_object()["kind"] = "NVIDIADriver";
  set(chosen, {"spec", "template", "spec", "nodeSelector", "pool"}, "b");
  EXPECT_FALSE(link_of(gpu_node(), validated(), facts(chosen)));
}

TEST(fleet_others, a_taint_that_only_one_does_not_tolerate_is_named) {
  Json node = gpu_node();
  set(node, {"spec", "taints"}, JsonArray{JsonObject{{"key", "team"}, {"effect", "NoSchedule"}}});
  const auto link = link_of(node, validated(), facts(mig_manager()));
  ASSERT_TRUE(link);
  EXPECT_EQ(link->evidence,
            "taint team:NoSchedule of the node is not tolerated by DaemonSet nvidia-mig-manager");
  EXPECT_TRUE(link->kept_off);
  Objects pods = validated();
  pods.push_back(share(pod("m", "nvidia-mig-manager", kReady)));
  EXPECT_FALSE(link_of(node, pods, facts(mig_manager()))) << "what runs goes on running";
}

TEST(fleet_others, a_selector_that_somebody_added_is_named) {
  Json set_of = mig_manager();
  set(set_of, {"spec", "template", "spec", "nodeSelector", "zone"}, "a");
  const auto link = link_of(gpu_node(), validated(), facts(set_of));
  ASSERT_TRUE(link);
  EXPECT_EQ(link->evidence,
            "DaemonSet nvidia-mig-manager is not for this node: its nodeSelector asks for the label zone=a, "
            "which the node has not");
  EXPECT_TRUE(link->kept_off);
}

// No node has it yet: its affinity says whose it is.
TEST(fleet_others, a_pod_that_does_not_fit_is_found_on_the_node_that_it_is_for) {
  const std::string status = R"({"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",
      "message":"0/2 nodes are available: 1 Insufficient cpu."}]})";
  for (const char* app : {"nvidia-mig-manager", "nvidia-operator-validator"}) {
    Json waits = pod("x", app, status);
    remove(waits, {"spec", "nodeName"});
    set(waits, {"spec", "affinity"},
        *parse_json(R"({"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
        "nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}})"));
    EXPECT_EQ(target_node(waits), "n1");
    ClusterObjects objects;
    objects.policies = {share(*parse_json(R"({"metadata":{"name":"p"},"spec":{"driver":{"enabled":false},
        "toolkit":{"enabled":false},"devicePlugin":{"enabled":false},"gfd":{"enabled":false},
        "dcgmExporter":{"enabled":false}}})"))};
    objects.nodes = {share(gpu_node())};
    if (app == std::string("nvidia-mig-manager")) objects.pods = validated();
    objects.pods.push_back(share(waits));
    objects.daemonsets = {share(daemonset(app, "mig-manager"))};
    const auto link = cluster_chain(objects).nodes.at(0).broken_link();
    ASSERT_TRUE(link) << app;
    EXPECT_EQ(link->evidence, "pod x: 0/2 nodes are available: 1 Insufficient cpu.");
    EXPECT_EQ(link->cure, "free that resource on the node, or lower the operand's resources in the policy");
    EXPECT_TRUE(link->failed);
  }
}

Json refusal(const std::string& name, const std::string& at, const std::string& why) {
  return *parse_json(R"({"involvedObject":{"kind":"DaemonSet","name":")" + name +
                     R"("},"reason":"FailedCreate","lastTimestamp":")" + at + R"(","message":)" +
                     to_text(Json("Error creating: " + why)) + "}");
}

TEST(fleet_others, a_pod_that_the_api_server_refuses_is_explained) {
  const std::map<std::string, std::string> cures = {
      {R"(pods "m-" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1)",
       "raise ResourceQuota 'few' of the operator's namespace, or allow its operands there"},
      {R"(admission webhook "w.example.com" denied the request: no)",
       "exempt the operator's namespace from webhook 'w.example.com', or change in the policy what it "
       "complains about"},
      {R"(pods "m-" is forbidden: violates PodSecurity "baseline:latest": privileged)",
       "label the operator's namespace pod-security.kubernetes.io/enforce=privileged"},
      {"etcdserver: no space",
       "see what refuses it: kubectl -n gpu-operator describe daemonset nvidia-mig-manager"}};
  for (const auto& [why, cure] : cures) {
    ChainFacts all = facts(mig_manager());
    all.refused = refused_pods({share(refusal("nvidia-mig-manager", "2026-01-01T00:02:00Z", why)),
                                share(refusal("nvidia-mig-manager", "2026-01-01T00:01:00Z", "older")),
                                share(refusal("another", "2026-01-01T00:03:00Z", "its own"))});
    // The pods that it lacks may be of other nodes, and it may have made them since.
    EXPECT_FALSE(link_of(gpu_node(), validated(), all)->failed);
    Json lacks = mig_manager();
    set(lacks, {"status", "currentNumberScheduled"}, Json(0));
    all.daemonsets = {share(lacks)};
    const auto link = link_of(gpu_node(), validated(), all);
    ASSERT_TRUE(link);
    EXPECT_TRUE(link->failed);
    EXPECT_EQ(link->text(),
              "nvidia-mig-manager: DaemonSet nvidia-mig-manager cannot make its pod: " + why + "; " + cure);
  }
}

// What was proven before does not make up for it.
TEST(fleet_others, operands_with_a_stage_are_refused_too) {
  Json toolkit = daemonset("nvidia-container-toolkit-daemonset", "mig-manager");
  set(toolkit, {"status", "currentNumberScheduled"}, Json(0));
  Json node = gpu_node();
  set(node, {"metadata", "labels", "nvidia.com/gpu.deploy.container-toolkit"}, "true");
  ChainFacts all{{"driver", "plugin", "labels", "telemetry"}, {share(toolkit)}};
  all.refused = {{"nvidia-container-toolkit-daemonset", "exceeded quota: q, x"}};
  const auto link = link_of(node, validated(), all);
  ASSERT_TRUE(link);
  EXPECT_EQ(link->stage, "toolkit");
  EXPECT_TRUE(link->failed);
  EXPECT_EQ(link->evidence,
            "DaemonSet nvidia-container-toolkit-daemonset cannot make its pod: exceeded quota: q, x");
}

TEST(fleet_others, an_old_pod_that_is_ending_is_waited_for) {
  Json old = pod("m", "nvidia-mig-manager", kReady);
  set(old, {"metadata", "deletionTimestamp"}, "2026-01-01T00:00:00Z");
  Objects pods = validated();
  pods.push_back(share(old));
  EXPECT_EQ(link_of(gpu_node(), pods, facts(mig_manager()))->text(),
            "nvidia-mig-manager: the old pod m is ending, and another comes when it is gone");
}

}  // namespace
}  // namespace gpuop::fleet
