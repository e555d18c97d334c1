#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

using kube::kConfigMaps;
using kube::kControllerRevisions;
using kube::kDaemonSets;
using kube::kPods;

constexpr kube::Resource kWidgets{"test.io", "v1", "widgets", "Widget", false};

void add_widgets(SmallCluster& t) {
  t.create(kube::kCustomResourceDefinitions, "", R"(
metadata: {name: widgets.test.io}
spec:
  group: test.io
  scope: Cluster
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
)");
  t.settle(2s);
}

Json owned_by(const Json& owner, Json object, bool blocks = true) {
  Json reference = kube::owner_reference(owner);
  set(reference, {"blockOwnerDeletion"}, Json(blocks));
  set(object, {"metadata", "ownerReferences"}, JsonArray{reference});
  return object;
}

struct OwnerCluster : SmallCluster {
  OwnerCluster() {
    kubelet = true;
    add_node("n1", R"({"gpu":"yes"})");
    add_widgets(*this);
    owner = create(kWidgets, "", R"(metadata: {name: w})");
    create(kDaemonSets, "default", owned_by(owner, SmallCluster::yaml(kDaemonSet)));
    settle();
    EXPECT_EQ(count(kPods, "default"), 1);
  }
  Json owner;
};

TEST(cluster_controllers, case26_background_deletion_takes_all_dependents) {
  OwnerCluster t;
  t.remove(kWidgets, "", "w", {.propagation = "Background"});
  t.settle();
  EXPECT_FALSE(t.get(kDaemonSets, "default", "d"));
  EXPECT_EQ(t.count(kPods, "default"), 0);
  EXPECT_EQ(t.count(kControllerRevisions, "default"), 0);
}

TEST(cluster_controllers, dependents_go_with_their_owners_whole_kind) {
  OwnerCluster t;
  t.remove(kube::kCustomResourceDefinitions, "", "widgets.test.io");
  t.settle(5s);
  EXPECT_FALSE(t.get(kDaemonSets, "default", "d"));
  EXPECT_EQ(t.count(kPods, "default"), 0);
}

TEST(cluster_controllers, case26_orphaned_dependents_stay_without_owner) {
  OwnerCluster t;
  t.remove(kWidgets, "", "w", {.propagation = "Orphan"});
  t.settle();
  EXPECT_FALSE(t.get(kWidgets, "", "w"));
  const auto set = t.get(kDaemonSets, "default", "d");
  ASSERT_TRUE(set);
  EXPECT_TRUE(get_array(*set, {"metadata", "ownerReferences"}).empty());
  EXPECT_EQ(t.count(kPods, "default"), 1);
}

TEST(cluster_controllers, foreground_deletion_waits_for_its_dependents) {
  OwnerCluster t;
  t.kubelet = false;  // the pod does not go
  t.remove(kDaemonSets, "default", "d", {.propagation = "Foreground"});
  t.settle(1s);
  EXPECT_TRUE(t.get(kDaemonSets, "default", "d"));
  const JsonArray pods = t.list(kPods, "default");
  ASSERT_EQ(pods.size(), 1u);
  EXPECT_TRUE(has(pods[0], {"metadata", "deletionTimestamp"}));
  t.remove(kPods, "default", str(kube::name_of(pods[0])), {.grace_seconds = 0});
  t.settle(1s);
  EXPECT_FALSE(t.get(kDaemonSets, "default", "d"));
}

TEST(cluster_controllers, an_object_with_one_owner_left_stays) {
  SmallCluster t;
  const Json a = t.create(kConfigMaps, "default", R"(metadata: {name: a})");
  const Json b = t.create(kConfigMaps, "default", R"(metadata: {name: b})");
  Json child = SmallCluster::yaml("metadata: {name: child}");
  Json second = kube::owner_reference(b, false);
  set(child, {"metadata", "ownerReferences"}, JsonArray{kube::owner_reference(a), second});
  t.create(kConfigMaps, "default", child);
  t.settle();
  t.remove(kConfigMaps, "default", "a");
  t.settle();
  auto left = t.get(kConfigMaps, "default", "child");
  ASSERT_TRUE(left);
  EXPECT_EQ(get_array(*left, {"metadata", "ownerReferences"}).size(), 1u);
  // The same name with another uid is another object.
  t.remove(kConfigMaps, "default", "b");
  t.create(kConfigMaps, "default", R"(metadata: {name: b})");
  t.settle();
  EXPECT_FALSE(t.get(kConfigMaps, "default", "child"));
}

TEST(cluster_controllers, foreground_deletion_lets_go_of_what_others_own) {
  SmallCluster t;
  const Json a = t.create(kConfigMaps, "default", R"(metadata: {name: a})");
  const Json b = t.create(kConfigMaps, "default", R"(metadata: {name: b})");
  Json child = SmallCluster::yaml("metadata: {name: child}");
  set(child, {"metadata", "ownerReferences"},
      JsonArray{kube::owner_reference(a), kube::owner_reference(b, false)});
  t.create(kConfigMaps, "default", child);
  t.settle();
  t.remove(kConfigMaps, "default", "a", {.propagation = "Foreground"});
  t.settle();
  EXPECT_FALSE(t.get(kConfigMaps, "default", "a"));
  const auto left = t.get(kConfigMaps, "default", "child");
  ASSERT_TRUE(left);
  EXPECT_EQ(get_array(*left, {"metadata", "ownerReferences"}).size(), 1u);
}

TEST(cluster_controllers, case27_owner_in_another_namespace_is_none) {
  SmallCluster t;
  t.create(kube::kNamespaces, "", R"(metadata: {name: other})");
  const Json owner = t.create(kConfigMaps, "other", R"(metadata: {name: o})");
  t.settle();
  t.create(kConfigMaps, "default", owned_by(owner, SmallCluster::yaml("metadata: {name: child}")));
  t.settle();
  EXPECT_FALSE(t.get(kConfigMaps, "default", "child"));
  int events = 0;
  for (const Json& event : t.list(kube::kEvents, "default"))
    events += get_string(event, {"reason"}) == "OwnerRefInvalidNamespace";
  EXPECT_EQ(events, 1);
}

TEST(cluster_controllers, namespaces_end_with_all_that_is_in_them) {
  SmallCluster t;
  t.create(kube::kNamespaces, "", R"(metadata: {name: x})");
  t.settle();
  EXPECT_TRUE(t.get(kube::kServiceAccounts, "x", "default"));
  t.create(kConfigMaps, "x", R"(metadata: {name: held, finalizers: [test.io/hold]})");
  t.create(kConfigMaps, "x", R"(metadata: {name: free})");
  t.remove(kube::kNamespaces, "", "x");
  t.settle(1s);
  EXPECT_FALSE(t.get(kConfigMaps, "x", "free"));
  const auto ns = t.get(kube::kNamespaces, "", "x");
  ASSERT_TRUE(ns);
  EXPECT_EQ(get_string(*ns, {"status", "phase"}), "Terminating");
  t.merge(kConfigMaps, "x", "held", R"({"metadata":{"finalizers":null}})");
  t.settle(1s);
  EXPECT_FALSE(t.get(kube::kNamespaces, "", "x"));
}

TEST(cluster_controllers, service_accounts_come_back) {
  SmallCluster t;
  t.create(kube::kNamespaces, "", R"(metadata: {name: x})");
  t.settle();
  ASSERT_TRUE(t.get(kube::kServiceAccounts, "x", "default"));
  t.remove(kube::kServiceAccounts, "x", "default");
  t.settle();
  EXPECT_TRUE(t.get(kube::kServiceAccounts, "x", "default"));
}

TEST(cluster_controllers, events_end_after_an_hour) {
  SmallCluster t;
  t.create(kPods, "default", R"(
metadata: {name: p}
spec: {containers: [{name: c, image: i}]}
)");
  t.settle();
  ASSERT_EQ(t.count(kube::kEvents, "default"), 1);
  t.loop->run_for(59min);
  EXPECT_EQ(t.count(kube::kEvents, "default"), 1);
  t.loop->run_for(2min);
  EXPECT_EQ(t.count(kube::kEvents, "default"), 0);
}

}  // namespace
}  // namespace gpuop::cluster::test
