// NVIDIADriver resources in a cluster (operator.md §1.4).
#include "test_cluster.h"

namespace gpuop::op {
namespace {

const std::string kOwner = "nvidia.com/gpu-operator.driver.owner";

struct Drivers : Cluster {
  Drivers() {
    policy("p", R"({"driver":{"enabled":true,"useNvidiaDriverCRD":true}})");
    settle();
  }
  // The API server's answer: 201, or the refusal's code and message.
  std::string driver(const std::string& name, const std::string& spec) {
    Json object = *parse_json(
        R"({"apiVersion":"nvidia.com/v1alpha1","kind":"NVIDIADriver","metadata":{"name":")" + name +
        R"("},"spec":{"driverType":"gpu","repository":"nvcr.io/nvidia","image":"driver",)"
        R"("version":"580.105.08"}})");
    kube::merge_apply(*find_mutable(object, {"spec"}), *parse_json(spec));
    const auto made = kube::await(
        *loop, [&](auto done) { return client->create(kube::kNvidiaDrivers, "", object, {}, done); });
    settle();
    return made ? "201" : std::to_string(made.error().status) + " " + made.error().message;
  }
  std::string state_of(const std::string& name) {
    return str(get_string(get(kube::kNvidiaDrivers, "", name), {"status", "state"}));
  }
  std::string error_of(const std::string& name, const char* part = "message") {
    const Json live = get(kube::kNvidiaDrivers, "", name);
    const Json* error = kube::condition(live, "Error");
    return error ? str(get_string(*error, {part})) : "";
  }
  std::vector<std::string> driver_sets() {
    auto all = names(kube::kDaemonSets, kNs);
    std::erase_if(all, [](const std::string& name) { return name.find("-driver-") == std::string::npos; });
    return all;
  }
};

TEST(operator_drivers_control, a_default_resource_owns_nodes_and_becomes_ready) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  EXPECT_TRUE(cluster.driver_sets().empty()) << "no resource, no driver";
  EXPECT_EQ(cluster.driver("default", R"({"default":true})"), "201");
  EXPECT_EQ(cluster.labels("n1")[kOwner], "default");
  ASSERT_EQ(cluster.driver_sets().size(), 1u);
  EXPECT_EQ(cluster.state_of("default"), "notReady");
  EXPECT_EQ(cluster.error_of("default", "reason"), "DriverNotReady");
  EXPECT_EQ(get_string(cluster.get(kube::kNvidiaDrivers, "", "default"), {"status", "namespace"}), kNs);
  const Json node = cluster.get(kube::kNodes, "", "n1");
  EXPECT_EQ(kube::annotation(node, "nvidia.com/gpu-driver-upgrade-enabled"), "true");

  // A driver's DaemonSet has OnDelete: its pods tell.
  const std::string name = cluster.driver_sets().front();
  const Json set = cluster.get(kube::kDaemonSets, kNs, name);
  const std::string owner = R"([{"apiVersion":"apps/v1","kind":"DaemonSet","controller":true,"name":")" +
                            name + R"(","uid":")" + str(get_string(set, {"metadata", "uid"})) + R"("}])";
  auto create = [&](const kube::Resource& type, const std::string& text) {
    Cluster::must(kube::await(*cluster.loop, [&](auto done) {
      return cluster.client->create(type, kNs, *parse_json(text), {}, done);
    }));
  };
  create(kube::kControllerRevisions, R"({"metadata":{"name":")" + name + R"(-abc","labels":{"app":")" + name +
                                         R"("},"ownerReferences":)" + owner + R"(},"revision":1,"data":{}})");
  create(kube::kPods, R"({"metadata":{"name":"d","labels":{"app":")" + name +
                          R"(","controller-revision-hash":"abc"},"ownerReferences":)" + owner +
                          R"(},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}})");
  cluster.merge(
      kube::kPods, kNs, "d",
      R"({"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"c","ready":true,"image":"i","imageID":"i","restartCount":0}]}})",
      "status");
  cluster.all_available();
  EXPECT_EQ(cluster.state_of("default"), "ready") << cluster.error_of("default");
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes) << "quiet";
}

TEST(operator_drivers_control, case32_conflicts_move_no_label_and_end_without_a_restart) {
  Drivers cluster;
  cluster.node("n1", std::string(kGpu) + R"(,"pool":"x","zone":"y")");
  cluster.settle();
  cluster.driver("a", R"({"nodeSelector":{"pool":"x"}})");
  EXPECT_EQ(cluster.labels("n1")[kOwner], "a");
  cluster.driver("b", R"({"nodeSelector":{"zone":"y"}})");
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(cluster.state_of(name), "notReady");
    EXPECT_EQ(cluster.error_of(name, "reason"), "ConflictingNodeSelector") << name;
    EXPECT_NE(cluster.error_of(name).find("n1"), std::string::npos);
    EXPECT_NE(cluster.error_of(name).find("a, b"), std::string::npos);
  }
  EXPECT_EQ(cluster.labels("n1")[kOwner], "a");
  cluster.merge(kube::kNvidiaDrivers, "", "a", R"({"spec":{"nodeSelector":{"pool":"other"}}})");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1")[kOwner], "b");
  EXPECT_EQ(cluster.state_of("a"), "ready") << "no pool, nothing to wait for";
  EXPECT_EQ(cluster.error_of("b", "reason"), "DriverNotReady");
  // The one that gave way goes; so would a conflict with it.
  cluster.remove(kube::kNvidiaDrivers, "", "b");
  cluster.settle();
  EXPECT_FALSE(cluster.labels("n1").contains(kOwner));
}

TEST(operator_drivers_control, case33_the_api_server_refuses_what_its_rules_forbid) {
  Drivers cluster;
  const std::string refused = cluster.driver("default", R"({"default":true,"nodeSelector":{"a":"b"}})");
  EXPECT_TRUE(refused.starts_with("422")) << refused;
  EXPECT_NE(refused.find("default NVIDIADriver must not use nodeSelector"), std::string::npos) << refused;
  EXPECT_EQ(cluster.driver("d", R"({"driverType":"gpu"})"), "201");
  const Json patch = *parse_json(R"({"spec":{"driverType":"vgpu"}})");
  const auto changed = kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->patch(kube::kNvidiaDrivers, "", "d", kube::Patch::kMerge, patch, {}, done);
  });
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("immutable"), std::string::npos) << changed.error().message;
}

TEST(operator_drivers_control, case34_a_missing_config_map_is_named_and_found_when_it_comes) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.driver("d", R"({"default":true,"repoConfig":{"name":"missing"}})");
  EXPECT_EQ(cluster.state_of("d"), "notReady");
  EXPECT_EQ(cluster.error_of("d", "reason"), "ReconcileFailed");
  EXPECT_NE(cluster.error_of("d").find("'missing'"), std::string::npos) << cluster.error_of("d");
  EXPECT_NE(cluster.error_of("d").find(kNs), std::string::npos);
  EXPECT_TRUE(cluster.driver_sets().empty());
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kConfigMaps, kNs,
                                  *parse_json(R"({"metadata":{"name":"missing"},"data":{"a.list":"x"}})"), {},
                                  done);
  }));
  cluster.settle();
  EXPECT_EQ(cluster.driver_sets().size(), 1u);
}

TEST(operator_drivers_control, case35_a_pool_with_a_tainted_node_keeps_its_daemonset) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.driver("d", R"({"default":true})");
  ASSERT_EQ(cluster.driver_sets().size(), 1u);
  const std::string name = cluster.driver_sets().front();
  const Json before = cluster.get(kube::kDaemonSets, kNs, name);
  cluster.merge(
      kube::kDaemonSets, kNs, name,
      R"({"status":{"observedGeneration":1,"desiredNumberScheduled":0,"currentNumberScheduled":0,"numberReady":0,"numberMisscheduled":0}})",
      "status");
  cluster.label("n1", R"("x":"y")");
  cluster.loop->run_for(2min);
  EXPECT_EQ(get_string(cluster.get(kube::kDaemonSets, kNs, name), {"metadata", "uid"}),
            get_string(before, {"metadata", "uid"}));
  // The pool is gone when its last node is.
  cluster.remove(kube::kNodes, "", "n1");
  cluster.settle();
  EXPECT_TRUE(cluster.driver_sets().empty());
}

TEST(operator_drivers_control, an_owner_label_that_is_refused_comes_again) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  int failures = 5;
  cluster.refuse = [&](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.method != "PATCH" || request.body.find(kOwner) == std::string::npos || failures == 0)
      return std::nullopt;
    --failures;
    return Cluster::status_answer(500, "InternalError", "no");
  };
  EXPECT_EQ(cluster.driver("default", R"({"default":true})"), "201");
  EXPECT_EQ(cluster.labels("n1").count(kOwner), 0u);
  cluster.loop->run_for(30s);
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(cluster.labels("n1")[kOwner], "default");
}

TEST(operator_drivers_control, an_edit_of_a_drivers_daemonset_is_put_back_and_told) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  EXPECT_EQ(cluster.driver("default", R"({"default":true})"), "201");
  ASSERT_EQ(cluster.driver_sets().size(), 1u);
  const std::string set = cluster.driver_sets().front();
  const Json before = cluster.get(kube::kDaemonSets, kNs, set);
  cluster.merge(kube::kDaemonSets, kNs, set,
                R"({"spec":{"template":{"spec":{"priorityClassName":"theirs"}}}})");
  cluster.settle();
  EXPECT_TRUE(*find(cluster.get(kube::kDaemonSets, kNs, set), {"spec"}) == *find(before, {"spec"}));
  const auto advice = [&] {
    const Json live = cluster.get(kube::kNvidiaDrivers, "", "default");
    const Json* found = kube::condition(live, "Advice");
    return found ? str(get_string(*found, {"message"})) : "";
  };
  const std::string told = advice();
  EXPECT_TRUE(
      told.starts_with("DaemonSet '" + set + "': spec.template.spec.priorityClassName was changed by ") &&
      told.ends_with("Z: change NVIDIADriver 'default' instead"))
      << told;
  cluster.loop->run_for(11min);
  EXPECT_EQ(advice(), told);
  cluster.merge(kube::kNvidiaDrivers, "", "default", R"({"spec":{"priorityClassName":"mine"}})");
  cluster.settle();
  EXPECT_EQ(advice(), "");
}

// A selector's key is the user's own, on nodes as on resources.
TEST(operator_drivers_control, a_node_that_is_selected_otherwise_changes_hands_at_once) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.driver("a", R"({"nodeSelector":{"pool":"x"}})");
  cluster.driver("rest", R"({"default":true})");
  EXPECT_EQ(cluster.labels("n1")[kOwner], "rest");
  cluster.label("n1", R"("pool":"x")");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1")[kOwner], "a");
  cluster.label("n1", R"("pool":"y")");
  cluster.settle();
  EXPECT_EQ(cluster.labels("n1")[kOwner], "rest");
  cluster.loop->run_for(10s);
  const int writes = cluster.writes;
  cluster.label("n1", R"("other":"y")");
  cluster.loop->run_for(1min);
  EXPECT_EQ(cluster.writes, writes + 1) << "the label's own write";
}

// One that is on its way out owns nothing and is in nobody's way.
TEST(operator_drivers_control, a_resource_that_is_being_deleted_conflicts_with_nobody) {
  Drivers cluster;
  cluster.node("n1", std::string(kGpu) + R"(,"pool":"x")");
  cluster.settle();
  cluster.driver("a", R"({"nodeSelector":{"pool":"x"}})");
  cluster.merge(kube::kNvidiaDrivers, "", "a", R"({"metadata":{"finalizers":["example.com/wait"]}})");
  cluster.driver("b", R"({"nodeSelector":{"pool":"x"}})");
  EXPECT_EQ(cluster.error_of("b", "reason"), "ConflictingNodeSelector");
  cluster.remove(kube::kNvidiaDrivers, "", "a");
  cluster.settle();
  ASSERT_FALSE(cluster.get(kube::kNvidiaDrivers, "", "a").is_null()) << "its finalizer holds it";
  EXPECT_EQ(cluster.labels("n1")[kOwner], "b");
  EXPECT_EQ(cluster.error_of("b", "reason"), "DriverNotReady");
}

TEST(operator_drivers_control, a_second_default_stops_both_until_it_is_gone) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.driver("one", R"({"default":true})");
  cluster.driver("two", R"({"default":true})");
  for (const char* name : {"one", "two"}) {
    EXPECT_EQ(cluster.error_of(name, "reason"), "ReconcileFailed") << name;
    EXPECT_NE(cluster.error_of(name).find("one, two"), std::string::npos) << cluster.error_of(name);
  }
  EXPECT_EQ(cluster.labels("n1")[kOwner], "one") << "fail closed";
  cluster.remove(kube::kNvidiaDrivers, "", "one");
  cluster.settle();
  EXPECT_EQ(cluster.error_of("two", "reason"), "DriverNotReady");
  EXPECT_EQ(cluster.labels("n1")[kOwner], "two");
}

TEST(operator_drivers_control, feature_labels_that_blink_take_no_driver_away) {
  Drivers cluster;
  cluster.node("n1", kGpu);
  cluster.settle();
  cluster.driver("d", R"({"default":true})");
  ASSERT_EQ(cluster.driver_sets().size(), 1u);
  cluster.label("n1", R"("feature.node.kubernetes.io/system-os_release.ID":null)");
  cluster.loop->run_for(30s);
  EXPECT_EQ(cluster.driver_sets().size(), 1u);
}

TEST(operator_drivers_control, two_resources_share_the_probe_script_in_peace) {
  Drivers cluster;
  cluster.node("n1", std::string(kGpu) + R"(,"pool":"x")");
  cluster.node("n2", kGpu);
  cluster.settle();
  cluster.driver("a", R"({"nodeSelector":{"pool":"x"}})");
  cluster.driver("rest", R"({"default":true})");
  EXPECT_EQ(cluster.driver_sets().size(), 2u);
  cluster.loop->run_for(10s);  // its nodes get no further, which is told once
  const int writes = cluster.writes;
  cluster.label("n2", R"("nvidia.com/whatever":"1")");
  cluster.loop->run_for(2min);
  EXPECT_EQ(cluster.writes, writes + 1) << "the label's own write";
}

TEST(operator_drivers_control,
     resources_are_disabled_where_the_policy_manages_drivers_and_alone_without_one) {
  Cluster cluster;
  cluster.policy("p", R"({"driver":{"enabled":true,"repository":"r","image":"i","version":"1"}})");
  cluster.node("n1", kGpu);
  cluster.settle();
  const Json object = *parse_json(
      R"({"apiVersion":"nvidia.com/v1alpha1","kind":"NVIDIADriver","metadata":{"name":"d"},
      "spec":{"default":true,"driverType":"gpu","repository":"r","image":"i","version":"1"}})");
  Cluster::must(kube::await(*cluster.loop, [&](auto done) {
    return cluster.client->create(kube::kNvidiaDrivers, "", object, {}, done);
  }));
  cluster.settle();
  Json live = cluster.get(kube::kNvidiaDrivers, "", "d");
  EXPECT_EQ(get_string(live, {"status", "state"}), "disabled");
  EXPECT_EQ(get_string(*kube::condition(live, "Error"), {"message"}),
            "useNvidiaDriverCRD is not enabled in ClusterPolicy");
  EXPECT_FALSE(cluster.labels("n1").contains(kOwner));
  cluster.remove(kube::kClusterPolicies, "", "p");
  cluster.settle();
  live = cluster.get(kube::kNvidiaDrivers, "", "d");
  EXPECT_EQ(get_string(*kube::condition(live, "Error"), {"reason"}), "DriverNotReady");
  EXPECT_EQ(cluster.labels("n1")[kOwner], "d");
}

}  // namespace
}  // namespace gpuop::op
