// The chart's hooks against the embedded API server (operator.md §2.4).
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/loop.h"
#include "cluster/apiserver/api_server.h"
#include "kube/client.h"
#include "kube/object.h"
#include "operator/manage_crds.h"
#include "policy/crds.h"

namespace gpuop::op {
namespace {

class Hooks : public ::testing::Test {
 protected:
  std::unique_ptr<Loop> loop_ = Loop::make_virtual(*parse_time("2026-01-01T00:00:00Z"));
  cluster::ApiServer server_{*loop_, {}};
  int writes_ = 0;
  std::shared_ptr<kube::Transport> transport_ =
      kube::make_memory_transport(*loop_, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
        if (request.method != "GET") ++writes_;
        server_.handler()(std::move(request), std::move(out));
      });
  kube::Client client_{*loop_, transport_};

  Json get(const kube::Resource& type, const std::string& name) {
    auto live = kube::await(*loop_, [&](auto done) { return client_.get(type, "", name, done); });
    return live ? *live : Json();
  }
};

TEST_F(Hooks, definitions_are_created_then_left_alone_then_brought_up_to_date) {
  auto crds = policy::crds();
  ASSERT_TRUE(apply_crds(*loop_, client_, crds));
  EXPECT_EQ(writes_, static_cast<int>(crds.size()));
  ASSERT_TRUE(apply_crds(*loop_, client_, crds));
  EXPECT_EQ(writes_, static_cast<int>(crds.size())) << "nothing differs: nothing is written";

  const std::string name(kube::name_of(crds.front()));
  const Json label = *parse_json(R"({"metadata":{"labels":{"theirs":"1"}}})");
  ASSERT_TRUE(kube::await(*loop_, [&](auto done) {
    return client_.patch(kube::kCustomResourceDefinitions, "", name, kube::Patch::kMerge, label, {}, done);
  }));
  set(crds.front(), {"spec", "names", "shortNames"}, *parse_json(R"(["newer"])"));
  set(crds.front(), {"metadata", "labels", "ours"}, Json("2"));
  ASSERT_TRUE(apply_crds(*loop_, client_, crds));
  const Json live = get(kube::kCustomResourceDefinitions, name);
  EXPECT_EQ(to_text(*find(live, {"spec", "names", "shortNames"})), R"(["newer"])");
  EXPECT_EQ(get_string(live, {"metadata", "labels", "theirs"}), "1");
  EXPECT_EQ(get_string(live, {"metadata", "labels", "ours"}), "2");

  ASSERT_TRUE(delete_crds(*loop_, client_, crds));
  EXPECT_TRUE(get(kube::kCustomResourceDefinitions, name).is_null());
  EXPECT_TRUE(delete_crds(*loop_, client_, crds)) << "what is not there is as good as deleted";
}

TEST_F(Hooks, the_charts_definitions_are_served_those_of_compute_domains_among_them) {
  const auto crds = read_crds({fs::path(SOURCE_ROOT) / "deploy/chart/crds"});
  ASSERT_TRUE(crds) << crds.error().text();
  ASSERT_TRUE(apply_crds(*loop_, client_, *crds));
  loop_->run_for(100ms);
  constexpr kube::Resource domains{"resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain", true};
  const Json domain = *parse_json(R"({"apiVersion":"resource.nvidia.com/v1beta1","kind":"ComputeDomain",
    "metadata":{"name":"d"},"spec":{"channel":{"resourceClaimTemplate":{"name":"t"}}}})");
  const auto made =
      kube::await(*loop_, [&](auto done) { return client_.create(domains, "default", domain, {}, done); });
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(get_int(*made, {"spec", "numNodes"}, -1), 0);
  EXPECT_EQ(get_string(*made, {"spec", "channel", "allocationMode"}), "Single");
  const auto changed = kube::await(*loop_, [&](auto done) {
    return client_.patch(domains, "default", "d", kube::Patch::kMerge,
                         *parse_json(R"({"spec":{"numNodes":2}})"), {}, done);
  });
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("A computeDomain.spec is immutable"), std::string::npos)
      << changed.error().message;
}

TEST_F(Hooks, files_with_anything_else_are_refused_by_name) {
  TempDir dir;
  ASSERT_TRUE(make_dirs(dir.path() / "below"));
  const auto good = dir.path() / "below/a.yaml";
  ASSERT_TRUE(write_file_atomic(good, to_text(policy::crds().front())));
  auto read = read_crds({dir.path()});
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->size(), 1u);
  ASSERT_TRUE(write_file_atomic(dir.path() / "b.yaml", "kind: Namespace\nmetadata: {name: kube-system}\n"));
  read = read_crds({dir.path()});
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().text().find("b.yaml"), std::string::npos);
  EXPECT_NE(read.error().text().find("Namespace"), std::string::npos);
  read = read_crds({dir.path() / "none"});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kNotFound);
}

TEST_F(Hooks, gpu_cluster_is_waited_for_until_its_finalizer_is_gone) {
  constexpr kube::Resource type{"nvidia.com", "v1alpha1", "gpuclusters", "GPUCluster", false};
  EXPECT_TRUE(cleanup_gpuclusters(*loop_, client_, "gpu-cluster", 1s)) << "no such kind";
  const Json crd = *parse_json(R"({"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"gpuclusters.nvidia.com"},"spec":{"group":"nvidia.com","scope":"Cluster",
    "names":{"kind":"GPUCluster","listKind":"GPUClusterList","plural":"gpuclusters","singular":"gpucluster"},
    "versions":[{"name":"v1alpha1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
    "properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}})");
  ASSERT_TRUE(apply_crds(*loop_, client_, {crd}));
  loop_->run_for(10ms);
  EXPECT_TRUE(cleanup_gpuclusters(*loop_, client_, "gpu-cluster", 1s)) << "no such object";
  const Json object = *parse_json(
      R"({"apiVersion":"nvidia.com/v1alpha1","kind":"GPUCluster","metadata":{"name":"gpu-cluster","finalizers":["x.io/claims"]},"spec":{}})");
  ASSERT_TRUE(kube::await(*loop_, [&](auto done) { return client_.create(type, "", object, {}, done); }));
  const auto held = cleanup_gpuclusters(*loop_, client_, "gpu-cluster", 5s);
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code(), Code::kTimeout);
  Handle later = loop_->after(2s, [&] {
    client_
        .patch(type, "", "gpu-cluster", kube::Patch::kMerge,
               *parse_json(R"({"metadata":{"finalizers":null}})"), {}, [](auto) {})
        .detach();
  });
  EXPECT_TRUE(cleanup_gpuclusters(*loop_, client_, "gpu-cluster", 5s));
  EXPECT_TRUE(get(type, "gpu-cluster").is_null());
}

}  // namespace
}  // namespace gpuop::op
